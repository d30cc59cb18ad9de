"""States that clients keep survive kill -9: the resumed run ends with the same states, bit for bit."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from lur.runs import checkpoint
from lur.training.experiment import initial_state
from tests.lur.runs.stateful_run import experiment
from tests.lur.runs.test_kills import until_it_writes

ROOT = Path(__file__).resolve().parents[3]
ROUNDS = 60


def start(folder, options, rounds=ROUNDS, devices=2):
    command = [sys.executable, "-m", "tests.lur.runs.stateful_run", str(folder), str(rounds), *options.split()]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "JAX_NUM_CPU_DEVICES": str(devices)})


def final_state(folder):
    restored = checkpoint.restore(folder / "checkpoints", folder, initial_state(experiment(ROUNDS)), pytest.fail)
    assert restored.round == ROUNDS
    return restored.state


def arrays_on_disk(folder):
    """The arrays of the last checkpoint of which it has the written rows only."""
    return sorted(path.stem for path in folder.glob(f"checkpoints/{ROUNDS:08d}/rows/*.index"))


@pytest.mark.parametrize(
    "options",
    ["vmap", "vmap on_disk", *(pytest.param(f"sharded{o}", marks=pytest.mark.full) for o in ("", " on_disk"))],
)
def test_client_states_after_kill_9(tmp_path, options):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert start(whole, options).wait() == 0
    for _ in range(2):
        process = start(cut, options)
        until_it_writes(process, cut)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert start(cut, options).wait() == 0
    assert len(arrays_on_disk(whole)) == len(arrays_on_disk(cut)) == 2 * ("on_disk" in options)
    states = final_state(whole), final_state(cut)
    assert (cut / "log.jsonl").read_bytes() == (whole / "log.jsonl").read_bytes()
    for one, other in zip(*map(jax.tree.leaves, states), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    assert int(states[0].clients["rounds"].sum()) == 3 * ROUNDS


@pytest.mark.full
def test_two_processes_resume_with_states_on_disk(tmp_path):
    """The second process, which has no checkpoint, is sent the rows that were written."""

    def run_two(folder, rounds):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        processes = [start(folder, f"sharded on_disk {port} {index}", rounds, devices=1) for index in (0, 1)]
        assert [process.wait() for process in processes] == [0, 0]

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run_two(whole, ROUNDS)
    for rounds in (2, ROUNDS):
        run_two(cut, rounds)
    assert len(arrays_on_disk(cut)) == 2
    assert (cut / "log.jsonl").read_bytes() == (whole / "log.jsonl").read_bytes()
    for one, other in zip(*map(jax.tree.leaves, (final_state(whole), final_state(cut))), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
