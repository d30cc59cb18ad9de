"""The table of commands, one file each. A command imports what it needs when it runs."""

from lur.cli.arguments import Commands
from lur.cli.bench import bench
from lur.cli.completion import completion
from lur.cli.config import config
from lur.cli.data import COMMANDS as DATA
from lur.cli.decay_search import decay
from lur.cli.diagnose import diagnose
from lur.cli.doctor import doctor
from lur.cli.explore import explore
from lur.cli.launch import launch
from lur.cli.methods import methods
from lur.cli.predict import predict
from lur.cli.report import report
from lur.cli.reproduce import reproduce
from lur.cli.sweep import sweep
from lur.cli.train import train
from lur.cli.tune import tune
from lur.cli.verify import verify

COMMANDS: Commands = {
    "verify": verify,
    "predict": predict,
    "explore": explore,
    "train": train,
    "config": config,
    "methods": methods,
    "sweep": sweep,
    "tune": tune,
    "decay": decay,
    "launch": launch,
    "data": DATA,
    "reproduce": reproduce,
    "diagnose": diagnose,
    "report": report,
    "doctor": doctor,
    "bench": bench,
    "completion": completion,
}
"""The commands by name; a group of commands is a mapping. `lur.cli.overview` has their order in `lur --help`."""
