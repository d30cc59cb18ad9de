"""The command line `lur`: `main` runs one command and turns errors into one sentence."""

import os
import sys


def main() -> int:
    """The command line: errors in one sentence, exit status 2."""
    from lur.cli.commands import run

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
