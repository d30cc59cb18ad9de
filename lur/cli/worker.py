"""`lur` as one of several processes, started by `lur launch` or by a cluster's own launcher."""

import os
import sys
import traceback

import jax

from lur.cli import main
from lur.parallel.processes import BROKEN, LOST, end_at_once


def work() -> None:
    """`lur` as one of several processes: ends at once, with one sentence, when another is lost, or by an error."""
    apart_from_libraries()
    try:
        status = main()
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1:
            raise
        line = (str(error).splitlines() or [""])[0][:300]
        print(f"lur: process {jax.process_index()} lost another process: {line}", file=sys.stderr, flush=True)
        end_at_once(LOST)
    except Exception:
        if jax.process_count() == 1:
            raise
        traceback.print_exc()
        end_at_once(BROKEN)
    if status and jax.process_count() > 1:
        end_at_once(status)
    sys.exit(status)


def apart_from_libraries() -> None:
    """Keep standard output for Python: gloo, which sums between CPUs, writes to it of every connection it makes."""
    sys.stdout = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
