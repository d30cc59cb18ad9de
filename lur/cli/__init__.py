"""The command line `lur`: `main` runs one command and turns an error into one sentence."""

import os
import sys
from collections.abc import Mapping

from lur._extras import MissingExtraError, optional_imports


def main() -> int:
    """Run the command that the arguments name.

    Returns:
      The exit status: the command's own; 2 for an error, which is printed as one sentence; 130 if interrupted.
    """
    status = 0
    try:
        with optional_imports(" ".join(["lur", *sys.argv[1:2]])):
            status = run_command(sys.argv[1:])
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return status
    except KeyboardInterrupt:
        print("lur: interrupted", file=sys.stderr)
        return 130
    except (ValueError, OSError, MissingExtraError) as error:
        from lur.printable_text import printable

        print(f"lur: {printable(error)}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"lur: {str(error) or 'out of memory'}; ask for less, or use a machine with more", file=sys.stderr)
        return 2


def run_command(arguments: list[str]) -> int:
    """Run one command. Returns the exit status."""
    from lur.cli.arguments import parse_call
    from lur.cli.commands import COMMANDS
    from lur.cli.output import complete_json_flag
    from lur.cli.overview import START_HERE, group_overview, overview
    from lur.training.configuration import did_you_mean

    match arguments:
        case []:
            print(START_HERE)
            return 0
        case ["-h" | "--help" | "help", *_]:
            print(overview(COMMANDS))
            return 0
        case ["--version", *_]:
            from lur._version import __version__

            print(f"lur {__version__}")
            return 0
    command, prog, rest = COMMANDS, "lur", complete_json_flag(arguments)
    while isinstance(command, Mapping):
        if not rest or rest[0] in ("-h", "--help"):
            print(group_overview(prog, command))
            return 0
        name, *rest = rest
        if name not in command:
            raise ValueError(f"unknown command {prog} {name}{did_you_mean(name, command)} ({prog} --help lists them)")
        command, prog = command[name], f"{prog} {name}"
    return parse_call(command, prog, rest)()
