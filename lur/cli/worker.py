"""`lur` as one of several processes, started by `lur launch` or by the launcher of a cluster."""

import os
import sys
import traceback

import jax

from lur.cli import main
from lur.parallel.processes import BROKEN, LOST, exit_now


def work() -> None:
    """Run `lur` as one of several processes, and exit at once if another one is lost or an error occurs."""
    keep_stdout_for_python()
    try:
        status = main()
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1:
            raise
        line = (str(error).splitlines() or [""])[0][:300]
        print(f"lur: process {jax.process_index()} lost another process: {line}", file=sys.stderr, flush=True)
        exit_now(LOST)
    except Exception:  # reported in full; `jax.distributed` would otherwise wait for the other processes at exit
        if jax.process_count() == 1:
            raise
        traceback.print_exc()
        exit_now(BROKEN)
    if status and jax.process_count() > 1:
        exit_now(status)
    sys.exit(status)


def keep_stdout_for_python() -> None:
    """Keep libraries from writing to standard output: gloo, which sums between CPUs, reports each connection there."""
    sys.stdout = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
