"""The command line `lur`: `main` runs one command and turns errors into one sentence."""

import os
import sys

from lur._extras import MissingExtraError, optional_imports


def main() -> int:
    """Run the command that the arguments name.

    Returns:
      The exit status: the command's own; 2 for an error, which is printed as one sentence; 130 if interrupted.
    """
    status = 0
    try:
        with optional_imports(" ".join(["lur", *sys.argv[1:2]])):
            from lur.cli.commands import run

            status = run(sys.argv[1:])
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return status
    except KeyboardInterrupt:
        print("lur: interrupted", file=sys.stderr)
        return 130
    except (ValueError, OSError, MissingExtraError) as error:
        print(f"lur: {error}", file=sys.stderr)
        return 2
