"""One run over several processes: the same numbers, whatever happens to one of them."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from lur.cli import worker
from lur.cli.launch import launch
from lur.parallel import processes
from lur.runs.reader import read_run
from tests.lur.cli.launched import BOUND, LIMIT, LUR, ROOT, members, soaked, started, struck
from tests.lur.runs.test_kills import until_it_writes

RUN = ["quadratic", "--clients", "8", "--clients-per-round", "5", "--server", "yogi", "--theta", "1:2"]
FILES = ("log.jsonl", "evaluation.jsonl", "result.json")
pytestmark = pytest.mark.promote


@pytest.fixture(scope="module")
def environ(tmp_path_factory):
    return {**os.environ, "LUR_CACHE": str(tmp_path_factory.mktemp("cache")), "JAX_NUM_CPU_DEVICES": "2"}


def content(path):
    return [(path / name).read_bytes() for name in FILES]


def whole(environ, path, processes, *arguments):
    launcher = started(environ, processes, "train", *arguments, "--run-dir", str(path))
    out, err = launcher.communicate(timeout=LIMIT)
    assert launcher.returncode == 0, err
    return out, err


def losses(path):
    return np.array([line["loss"] for line in read_run(path).rounds])


def test_killed_and_gone_on_with_the_same_and_with_fewer_processes(environ, tmp_path, lur):
    arguments = [*RUN, "--rounds", "80", "--evaluate-every", "40", "--checkpoint-every", "20"]
    path = tmp_path / "run"
    launcher = started(environ, 2, "train", *arguments, "--run-dir", str(path))
    until_it_writes(launcher, path)
    assert len(members(launcher)) == 2
    status, _, err, seconds = struck(launcher, signal.SIGKILL, 1)
    assert status == 1
    assert "lur launch: process 1 was killed by SIGKILL; all 2 processes were ended" in err
    assert seconds < LIMIT
    first = (path / "log.jsonl").read_bytes()
    out, err = whole(environ, path, 2, *arguments)
    assert err == ""
    assert "2 processes with 4 devices" in out
    assert "after training: loss f(x)" in out
    seen = (path / "log.jsonl").read_bytes()
    rounds = [json.loads(line)["round"] for line in seen.splitlines()]
    assert rounds == [*range(1, 81)]
    kept = first.splitlines()[: len(first.splitlines()) // 20 * 20]
    assert seen.splitlines()[: len(kept)] == kept
    alone = tmp_path / "alone"
    assert lur("train", *arguments, "--run-dir", alone)[0] == 0
    # the sum over devices has another order: float32's 6e-8 grows along 80 rounds to no more than this
    np.testing.assert_allclose(losses(path), losses(alone), rtol=1e-4)
    assert lur("train", *arguments[:-6], "--rounds", "90", "--evaluate-every", "40", "--run-dir", path)[0] == 0
    assert len(losses(path)) == 90


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((("verify",),), "expected one of train and its arguments after --, got 'verify'"),
        (((),), "expected one of train"),
        ((("train", "digits"), 0), "--processes must be >= 1, got 0"),
        ((("train", "digits"), 2, -1), "--devices must be >= 1, got -1"),
        ((("train", "digits"), 2, 1, 0.0), "--heartbeat must be >= 1, got 0.0"),
    ],
)
def test_what_cannot_be_launched(arguments, says):
    names = ("command", "processes", "devices", "heartbeat")
    with pytest.raises(ValueError, match=says):
        launch(**dict(zip(names, arguments, strict=False)))


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (jax.errors.JaxRuntimeError("closed"), processes.LOST, "lur: process 0 lost another process: closed"),
        (KeyError("a bug"), processes.BROKEN, "KeyError: 'a bug'"),
    ],
)
def test_an_error_ends_a_process_without_waiting_for_the_others(monkeypatch, capsys, error, status, says):
    def fail():
        raise error

    monkeypatch.setattr(worker, "main", fail)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(worker, "keep_stdout_for_python", lambda: None)
    monkeypatch.setattr(worker, "exit_now", sys.exit)
    with pytest.raises(SystemExit, match=f"^{status}$"):
        worker.work()
    assert capsys.readouterr().err.splitlines()[-1] == says


@pytest.mark.faults
@pytest.mark.parametrize(("number", "index"), [(signal.SIGKILL, 0), (signal.SIGSTOP, 0), (signal.SIGSTOP, 1)])
def test_a_process_that_dies_or_hangs(environ, tmp_path, number, index):
    launcher = started(environ, 2, "train", *RUN, "--rounds", str(2**20), "--run-dir", str(tmp_path), heartbeat=5.0)
    until_it_writes(launcher, tmp_path)
    status, _, err, seconds = struck(launcher, number, index)
    print(f"{signal.Signals(number).name} of process {index}: the launcher ended after {seconds:.1f} s")
    assert status == 1
    assert ("sent no heartbeat for 5 s" if number == signal.SIGSTOP else "was killed by SIGKILL") in err, err
    assert f"lur launch: process {index} " in err
    assert members(launcher) == []
    assert seconds < BOUND


@pytest.mark.faults
def test_asked_to_stop(environ, tmp_path):
    launcher = started(environ, 2, "train", *RUN, "--rounds", str(2**20), "--run-dir", str(tmp_path))
    until_it_writes(launcher, tmp_path)
    launcher.send_signal(signal.SIGINT)
    out, _ = launcher.communicate(timeout=LIMIT)
    assert launcher.returncode == 130
    done = len(read_run(tmp_path).rounds)
    assert f"stopped after round {done:,}" in out
    assert (tmp_path / "checkpoints" / f"{done:08d}").exists()


@pytest.mark.faults
def test_nothing_is_left_when_the_launcher_is_killed(environ, tmp_path):
    launcher = started(environ, 2, "train", *RUN, "--rounds", str(2**20), "--run-dir", str(tmp_path))
    until_it_writes(launcher, tmp_path)
    left = members(launcher)
    launcher.kill()
    launcher.communicate(timeout=LIMIT)  # its output ends with the last process that has it
    for pid in left:
        for _ in range(int(LIMIT)):
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                break
            time.sleep(0.1)
        else:
            pytest.fail(f"process {pid} goes on")


@pytest.mark.faults
def test_processes_that_slurm_would_start(environ, tmp_path):
    """`srun lur launch -- train ...`, with Slurm's variables set by hand: jax.distributed finds the rest."""
    slurm = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    command = [*LUR, "launch", "--", "train", *RUN, "--rounds", "20", "--run-dir", str(tmp_path)]
    tasks = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            env={**environ, **slurm, "SLURM_PROCID": str(k), "SLURM_LOCALID": str(k)},
        )
        for k in range(2)
    ]  # fmt: skip
    said = [task.communicate(timeout=LIMIT) for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], said
    assert "2 processes with 4 devices" in said[0][0]
    assert said[1][0] == ""
    assert len(losses(tmp_path)) == 20


SOAK = int(os.environ.get("SOAK_ROUNDS", "20000"))


@pytest.mark.faults
def test_soak_of_digits_under_random_kills(environ, tmp_path):
    """About twenty kills of random processes along the run; every tenth is a stop instead, and must be noticed."""
    arguments = ["train", "digits", "--rounds", str(SOAK), "--evaluate-every", "1000", "--checkpoint-seconds", "1"]
    launcher = started(environ, 2, *arguments, "--run-dir", str(tmp_path / "whole"))
    until_it_writes(launcher, tmp_path / "whole")
    since = time.monotonic()
    samples = watched_memory(launcher, tmp_path / "whole")
    assert launcher.returncode == 0
    seconds = time.monotonic() - since
    slope = np.polyfit(*zip(*samples, strict=True), 1)[0]
    print(
        f"undisturbed: {SOAK:,} rounds in {seconds:.0f} s; resident memory at the end {samples[-1][1]:.0f} MB, "
        f"slope {1000 * slope:+.2f} MB per 1,000 rounds over the last three quarters ({len(samples)} samples)",
        flush=True,
    )
    counts, slowest = soaked(environ, tmp_path / "soaked", [2], random.Random(0), arguments, seconds / 10, stops=10)
    seen, expected = content(tmp_path / "soaked"), content(tmp_path / "whole")
    rounds = [json.loads(line)["round"] for line in seen[0].splitlines()]
    lost, twice = len({*range(1, SOAK + 1)} - {*rounds}), len(rounds) - len({*rounds})
    print(
        f"{SOAK:,} rounds, {counts['kills']} faults ({counts['stops']} of them stops), {counts['starts'] - 1} resumes, "
        f"{lost} lost lines, {twice} duplicated lines, {counts['hangs']} hangs (the slowest end took {slowest:.1f} s), "
        f"files {'identical' if seen == expected else 'different'}",
        flush=True,
    )
    assert (lost, twice, counts["hangs"]) == (0, 0, 0)
    assert seen == expected
    assert counts["kills"] >= 5
    assert slope * 20_000 < 20  # MB


def watched_memory(launcher, path):
    """(round, MB) of the largest of the processes, twice a second, without the first quarter of the rounds."""
    samples = []
    while launcher.poll() is None:
        pages = [resident(pid) for pid in members(launcher)]
        last = (path / "log.jsonl").read_bytes().count(b"\n") if (path / "log.jsonl").exists() else 0
        if last > SOAK / 4 and pages:
            samples.append((last, max(pages)))
        time.sleep(0.5)
    launcher.communicate()
    return samples


def resident(pid):
    """The resident memory of a process in MB."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except FileNotFoundError:
        return 0.0
