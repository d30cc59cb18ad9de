"""`lur launch` under faults: random kills of random processes, and what became of the run."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.lur.runs.test_kills import until_it_writes

LUR = [sys.executable, "-c", "import sys; from lur.cli import main; sys.exit(main())"]
ROOT = Path(__file__).resolve().parents[3]
LIMIT = 600.0
"""Seconds after which a test gives a launcher up."""
BOUND = 30.0
"""Seconds after a fault within which a launcher must have ended all; one that takes longer hangs."""


def started(environ, processes, *arguments, heartbeat=20.0):
    """A launcher at work; it has a process group of its own."""
    command = [*LUR, "launch", "--processes", str(processes), "--heartbeat", str(heartbeat), "--", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ, cwd=ROOT)


def members(launcher):
    """The processes that a launcher started, in their order."""
    done = subprocess.run(["ps", "-o", "pid=", "--ppid", str(launcher.pid)], capture_output=True, text=True)
    return sorted(int(pid) for pid in done.stdout.split())


def struck(launcher, number, index):
    """Send a signal to one of the processes; the launcher's status, what it said, and the seconds it took."""
    found = members(launcher)
    if index >= len(found):  # it had just ended
        return (launcher.wait(LIMIT), *launcher.communicate(), 0.0)
    since = time.monotonic()
    with suppress(ProcessLookupError):  # likewise
        os.kill(found[index], number)
    out, err = launcher.communicate(timeout=LIMIT)
    return launcher.returncode, out, err, time.monotonic() - since


def soaked(environ, path, counts_of_processes, rng, arguments, wait, stops=0):
    """Run to the end under kills of random processes after up to `wait` seconds of rounds; what happened how often.

    Every `stops`-th time a process is stopped instead.
    """
    counts, slowest = Counter(), 0.0
    while True:
        processes = counts_of_processes[counts["starts"] % len(counts_of_processes)]
        launcher = started(environ, processes, *arguments, "--run-dir", str(path), heartbeat=5.0)
        counts["starts"] += 1
        until_it_writes(launcher, path)
        time.sleep(rng.uniform(0, wait))
        if launcher.poll() is not None:
            _, err = launcher.communicate()
            assert launcher.returncode == 0, err
            return counts, slowest
        is_stop = stops and counts["kills"] % stops == stops - 1
        status, _, err, seconds = struck(
            launcher, signal.SIGSTOP if is_stop else signal.SIGKILL, rng.randrange(processes)
        )
        slowest = max(slowest, seconds)
        counts["hangs"] += seconds > BOUND
        if status == 0:
            return counts, slowest
        assert "lur launch: process" in err, err
        counts["kills"] += 1
        counts["stops"] += bool(is_stop)
