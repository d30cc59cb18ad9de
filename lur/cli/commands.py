"""The commands of `lur`, one file each. A command imports what it needs when it runs."""

from collections.abc import Mapping

from lur.cli.bench import bench
from lur.cli.completion import completion
from lur.cli.data import COMMANDS as DATA
from lur.cli.diagnose import diagnose
from lur.cli.doctor import doctor
from lur.cli.explore import explore
from lur.cli.launch import launch
from lur.cli.output import with_stdout
from lur.cli.overview import FIRST, group_overview, overview
from lur.cli.parsing import Commands, named, parsed
from lur.cli.predict import predict
from lur.cli.report import report
from lur.cli.reproduce import reproduce
from lur.cli.sweep import decay, sweep, tune
from lur.cli.train import config, train
from lur.cli.verify import verify

COMMANDS: Commands = {
    "verify": verify,
    "predict": predict,
    "explore": explore,
    "train": train,
    "config": config,
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
"""By name; a group of commands is a mapping of its own. `lur.cli.overview` has their order in `lur --help`."""


def run(arguments: list[str]) -> int:
    """One command."""
    match arguments:
        case []:
            print(FIRST)
            return 0
        case ["-h" | "--help" | "help", *_]:
            print(overview(COMMANDS))
            return 0
        case ["--version", *_]:
            from lur import __version__

            print(f"lur {__version__}")
            return 0
    name, *rest = with_stdout(arguments)
    command, prog = named(name, COMMANDS, "lur"), f"lur {name}"
    if isinstance(command, Mapping):
        if not rest or rest[0] in ("-h", "--help"):
            print(group_overview(name, command))
            return 0
        command, prog, rest = named(rest[0], command, prog), f"{prog} {rest[0]}", rest[1:]
    return parsed(command, prog, rest)()
