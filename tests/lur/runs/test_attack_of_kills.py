"""Kills (-9) of train, sweep, tune, decay and launch at random moments: the resumed runs end with the same bytes.

`pytest -m faults -s tests/lur/runs/test_attack_of_kills.py` kills 105 processes, and prints how it went.
"""

import os
import random
import signal
import subprocess
import time

import pytest

from tests.lur.cli.launched import ROOT, members
from tests.lur.runs.test_damaged_folders import FILES, final_arrays
from tests.lur.runs.test_kills import LIMIT, LUR, cache, size  # noqa: F401

SMALL = ["quadratic", "--clients", "8", "--clients-per-round", "3", "--theta", "1:2", "--checkpoint-every", "1"]
ROUNDS = {"train": 60, "sweep": 30, "tune": 30, "decay": 40, "launch": 40}
GRID = ["--server", "yogi", "--evaluate-every", "10", "--client-lr", "0,0.1,100", "--server-lr", "0.01,0.1,1e30"]
COMMANDS = {
    "train": ["train", *SMALL, "--server", "yogi", "--evaluate-every", "20", "--decay", "paper"],
    "sweep": ["sweep", *SMALL, *GRID],
    "tune": ["tune", *SMALL, *GRID],
    "decay": ["decay", *SMALL, "--client-lr", "1e30,0.1", "--server-lr", "0.01,0.1", "--decay-window", "9"],
    "launch": ["launch", "--processes", "2", "--", "train", *SMALL, "--layout", "sharded"],
}
KILLS, PER_RUN = 21, 7
TABLES = ("tuned.csv", "tuned.json")


def started(environ, name, path):
    command = [*LUR, *COMMANDS[name], "--rounds", str(ROUNDS[name]), "--run-dir", str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ, cwd=ROOT)


def to_the_end(environ, name, path):
    process = started(environ, name, path)
    _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (0, "")


def written(path):
    """The number of bytes in all logs below a folder."""
    return sum(map(size, path.rglob("log.jsonl")))


def content(path):
    """All files below a folder that must be the same, and the last state of each of its runs."""
    files = [one for one in path.rglob("*") if one.name in (*FILES, *TABLES) or one.suffix == ".svg"]
    states = {str(one.parent.relative_to(path)): final_arrays(one.parent) for one in path.rglob("run.json")}
    return {str(one.relative_to(path)): one.read_bytes() for one in files}, states


def killed(environ, name, path, rng):
    """Start a command and kill it, or one of its processes, at a random moment. Whether it had not ended before."""
    process, before = started(environ, name, path), written(path)
    if rng.random() < 0.25:  # while it starts, or at any moment later
        time.sleep(rng.uniform(0, 5))
    else:
        since = time.monotonic()
        while written(path) == before and process.poll() is None:
            assert time.monotonic() - since < LIMIT
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.5))
    if process.poll() is not None:
        assert process.returncode == 0, process.communicate()
        process.communicate()
        return False
    own = members(process) if name == "launch" else []
    os.kill(rng.choice([process.pid, *own]), signal.SIGKILL)
    process.communicate(timeout=LIMIT)
    deadline = time.monotonic() + LIMIT
    while any(map(is_running, own)):  # the processes of a killed launcher notice that it is gone
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return True


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.faults
@pytest.mark.parametrize("name", COMMANDS)
def test_twenty_one_kills(cache, tmp_path, name):  # noqa: F811
    rng = random.Random(name)
    to_the_end(cache, name, tmp_path / "whole")
    expected = content(tmp_path / "whole")
    kills = runs = first = 0
    while kills < KILLS:
        path = tmp_path / f"killed-{runs}"
        for _ in range(PER_RUN):
            fresh = written(path) == 0
            kills += killed(cache, name, path, rng)
            first += fresh and written(path) == 0
        to_the_end(cache, name, path)
        assert content(path) == expected
        runs += 1
    print(f"\n{name}: {kills} kills of {runs} runs, {first} of them before the first round; files identical")
