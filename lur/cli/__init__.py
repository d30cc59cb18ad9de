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
        print(f"lur: {error}", file=sys.stderr)
        return 2


def run_command(arguments: list[str]) -> int:
    """Run one command. Returns the exit status."""
    from lur.cli.commands import COMMANDS
    from lur.cli.output import complete_json_flag
    from lur.cli.overview import START_HERE, group_overview, overview
    from lur.cli.parsing import find_command, parse_call

    match arguments:
        case []:
            print(START_HERE)
            return 0
        case ["-h" | "--help" | "help", *_]:
            print(overview(COMMANDS))
            return 0
        case ["--version", *_]:
            from lur import __version__

            print(f"lur {__version__}")
            return 0
    name, *rest = complete_json_flag(arguments)
    command, prog = find_command(name, COMMANDS, "lur"), f"lur {name}"
    if isinstance(command, Mapping):
        if not rest or rest[0] in ("-h", "--help"):
            print(group_overview(name, command))
            return 0
        command, prog, rest = find_command(rest[0], command, prog), f"{prog} {rest[0]}", rest[1:]
    return parse_call(command, prog, rest)()
