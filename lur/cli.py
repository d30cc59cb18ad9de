"""`lur`: thin, typed commands, each in a file of `lur.commands`, which imports what it needs when it runs."""

import os
import sys
from collections.abc import Mapping

from lur.commands.bench import bench
from lur.commands.completion import completion
from lur.commands.data import COMMANDS as DATA
from lur.commands.diagnose import diagnose
from lur.commands.doctor import doctor
from lur.commands.explore import explore
from lur.commands.launch import launch
from lur.commands.output import with_stdout
from lur.commands.overview import FIRST, group_overview, overview
from lur.commands.parsing import Commands, named, parsed
from lur.commands.predict import predict
from lur.commands.report import report
from lur.commands.reproduce import reproduce
from lur.commands.sweep import decay, sweep, tune
from lur.commands.train import config, train
from lur.commands.verify import verify

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
"""By name; a group of commands is a mapping of its own. `lur.commands.overview` has their order in `lur --help`."""


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


def main() -> int:
    """The command line: errors in one sentence, exit status 2."""
    status = 0
    try:
        status = run(sys.argv[1:])
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return status
    except KeyboardInterrupt:
        print("lur: interrupted", file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:
        print(f"lur: {error}", file=sys.stderr)
        return 2
