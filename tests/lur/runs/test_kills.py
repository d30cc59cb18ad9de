"""`lur train` as a process: killed, interrupted, out of disk, twice at once. Started again, it ends the same."""

import os
import random
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from lur.runs import checkpoint
from lur.runs.reader import read_run
from lur.runs.train_run import read_run_config
from lur.training.experiment import initial_state, load_task, resolve
from lur.training.loop import STOPPING

LUR = [
    sys.executable,
    "-c",
    """
import os, resource, sys
from lur.cli import main
if "LIMIT" in os.environ:  # of bytes in a file
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["LIMIT"]),) * 2)
sys.exit(main())
""",
]
RUN = [
    "quadratic", "--clients", "8", "--clients-per-round", "3", "--server", "yogi", "--theta", "1:2", "--decay", "paper",
    "--decay-window", "9", "--decay-patience", "9", "--decay-cooldown", "9", "--evaluate-every", "50",
]  # fmt: skip
FILES = ("log.jsonl", "evaluation.jsonl", "result.json")
LIMIT = 300.0
"""Seconds after which a process that should have done something is given up."""
pytestmark = pytest.mark.promote


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return {**os.environ, "LUR_CACHE": str(tmp_path_factory.mktemp("cache")), "JAX_NUM_CPU_DEVICES": "2"}


def started(cache, path, rounds, *more):
    command = [*LUR, "train", *RUN, "--rounds", str(rounds), "--run-dir", str(path), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=cache)


def lur(cache, path, rounds, *more):
    process = started(cache, path, rounds, *more)
    out, err = process.communicate(timeout=LIMIT)
    return process.returncode, out, err


def content(path):
    """The logs without timings, the result, and the final state."""
    config = read_run_config(path)
    initial = initial_state(resolve(config, load_task(config)))
    found = checkpoint.restore(path / "checkpoints", path, initial, pytest.fail)
    leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(found.state)]
    return [(path / name).read_bytes() for name in FILES], found.round, leaves


@pytest.fixture(scope="module")
def whole(cache, tmp_path_factory):
    """The content of a run of some rounds that nothing happened to."""
    made = {}

    def of(rounds, *more):
        if (rounds, *more) not in made:
            path = tmp_path_factory.mktemp("runs") / "whole"
            assert lur(cache, path, rounds, *more)[0] == 0
            made[rounds, *more] = content(path)
        return made[rounds, *more]

    return of


def size(path):
    return path.stat().st_size if path.exists() else 0


def until_it_writes(process, path):
    """Wait until the log of a process that goes on has other lines than it had."""
    before, since = size(path / "log.jsonl"), time.monotonic()
    while size(path / "log.jsonl") == before and process.poll() is None:
        assert time.monotonic() - since < LIMIT
        time.sleep(0.002)


def killed(cache, path, rounds, kills, rng, *more):
    """Kill so many processes at random moments: most while it trains, some while it starts. How many wrote then."""
    during = 0
    for k in range(kills):
        process = started(cache, path, rounds, *more)
        if k % 5 == 4:
            time.sleep(rng.uniform(0, 2.5))
        else:
            until_it_writes(process, path)
            time.sleep(rng.uniform(0, 0.4))
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        during += any((path / "checkpoints").glob("*.partial")) if (path / "checkpoints").exists() else False
        if (path / "run.json").exists():
            assert read_run(path).state == "stopped"
    return during


def test_killed_three_times(cache, tmp_path, whole):
    rounds = 150
    killed(cache, tmp_path, rounds, 3, random.Random(0), "--checkpoint-every", "1")
    status, out, err = lur(cache, tmp_path, rounds)
    assert (status, err) == (0, "")
    assert f"{tmp_path}: resuming after round " in out
    assert content(tmp_path) == whole(rounds)


@pytest.mark.full
@pytest.mark.parametrize("layout", ["vmap", "sharded"])
def test_killed_fifty_times(cache, tmp_path, whole, layout):
    rounds, more = 900, ("--layout", layout)
    during = killed(cache, tmp_path, rounds, 50, random.Random(1), *more, "--checkpoint-every", "1")
    done = len(read_run(tmp_path).rounds)
    assert lur(cache, tmp_path, rounds, *more)[0] == 0
    assert content(tmp_path) == whole(rounds, *more)
    print(f"{layout}: 50 kills, {during} of them while a checkpoint was written, the last after round {done}")
    assert during >= 5


def test_interrupted_and_twice_at_once(cache, tmp_path, whole):
    process = started(cache, tmp_path, 2**30)
    until_it_writes(process, tmp_path)
    assert read_run(tmp_path).state == "running"
    status, _, err = lur(cache, tmp_path, 2**30)
    assert status == 2
    assert f"expected a run that no other process uses, found it locked by process {process.pid}" in err
    assert err.count("\n") == 1
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (130, STOPPING.decode())
    record = read_run(tmp_path)
    done = len(record.rounds)
    assert f"stopped after round {done:,} of {2**30:,}: saved in {tmp_path}" in out
    assert record.state == "stopped"
    assert (tmp_path / "checkpoints" / f"{done:08d}").exists()
    few = whole(150)[0][0].splitlines()
    assert (tmp_path / "log.jsonl").read_bytes().splitlines()[:150] == few[:done]
    status, out, _ = lur(cache, tmp_path, done + 1)
    assert status == 0
    assert f"resuming after round {done:,}\n" in out


def test_without_a_folder_an_interrupt_is_polite(cache):
    command = [*LUR, "train", *RUN, "--rounds", str(2**30)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=cache)
    while not process.stdout.readline().startswith("  round 50"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (130, STOPPING.decode())
    assert "nothing was saved, because no --run-dir was given" in out


def test_files_that_may_not_grow(cache, tmp_path, whole):
    rounds = 150
    limit = len(whole(rounds)[0][0]) // 2
    status, _, err = lur(cache | {"LIMIT": str(limit)}, tmp_path, rounds, "--checkpoint-every", "10")
    assert status == 2
    assert err.startswith("lur: [Errno 27] File too large")
    assert err.count("\n") == 1
    assert "keeps the checkpoint of round " in err
    assert (tmp_path / "log.jsonl").read_bytes() == whole(rounds)[0][0][: size(tmp_path / "log.jsonl")]
    assert (tmp_path / "log.jsonl").read_bytes().endswith(b"\n")
    assert lur(cache, tmp_path, rounds)[0] == 0
    assert content(tmp_path) == whole(rounds)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 8 kB, where one may be made, and a way to change it."""

    def mount(*arguments):
        return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode

    if mount("-t", "tmpfs", "-o", "size=8k", "tmpfs", str(tmp_path)):
        pytest.skip("no disk can be mounted here")
    try:
        yield tmp_path, lambda options: mount("-o", f"remount,{options}", str(tmp_path))
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_full_disk_and_one_that_cannot_be_written(cache, small_disk, whole):
    disk, remount = small_disk
    path, rounds = disk / "run", 150
    for kilobytes in (8, 60, 250):  # full at the start, in a log, in this or that file of a checkpoint
        assert remount(f"size={kilobytes}k") == 0
        status, _, err = lur(cache, path, rounds, "--checkpoint-every", "10")
        assert status == 2
        assert "o space left on device" in err
        assert err.count("\n") == 1, err
        assert not [*path.rglob("*.partial")]
    assert remount("ro") == 0
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    status, _, err = lur(cache, path, rounds)
    assert status == 2
    assert "Read-only file system" in err
    assert err.count("\n") == 1
    assert before == {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert read_run(path).state == "stopped"
    assert remount("rw,size=10m") == 0
    assert lur(cache, path, rounds)[0] == 0
    assert content(path) == whole(rounds)
