"""A sweep in a run folder: cut anywhere, killed, refused; the numbers are always the same."""

import json
import random
import shutil
import signal
import subprocess
import time
from dataclasses import replace

import jax
import numpy as np
import pytest

from lur import tasks
from lur.runs import checkpoint
from lur.runs.errors import RunError
from lur.runs.sweep_results import read_sweep
from lur.runs.sweep_run import read_sweep_config, read_sweep_toml, sweep_in_folder, sweep_to_toml
from lur.training.configuration import RunConfig
from lur.training.loop import StopRequest
from lur.training.sweep_plan import SweepConfig, plan_sweep
from lur.training.sweeps import initial_position
from tests.lur.runs.test_kills import LIMIT, LUR, cache, until_it_writes  # noqa: F401

TASK = tasks.load("quadratic", clients=8)
RUN = RunConfig(
    "quadratic", rounds=20, clients=8, clients_per_round=3, theta="1:2", evaluate_every=10, seed=3, checkpoint_every=8
)
SWEEP = SweepConfig(RUN, (0.1, 0.5), (0.1, 30.0, 1e25))
FILES = ("log.jsonl", "evaluation.jsonl", "result.json")
METHODS = {}


def plan(sweep=SWEEP, memory=2**30):
    """The plan; those that differ in nothing that the methods depend on share them and their compiled programs."""
    planned = plan_sweep(sweep, TASK, memory)
    key = replace(planned.experiment.config, rounds=1, evaluate_every=None, checkpoint_every=None)
    method, zero = METHODS.setdefault(key, (planned.experiment.method, planned.zero_lr_method))
    program = planned.experiment.program._replace(method=method)
    return planned._replace(experiment=planned.experiment._replace(program=program), zero_lr_method=zero)


def run(path, sweep=SWEEP, memory=2**30, **options):
    notes = []
    return [*sweep_in_folder(path, plan(sweep, memory), notify=notes.append, **options)], notes


def content(path, sweep=SWEEP, memory=2**30):
    """The logs without timings, the result, and the last state."""
    like = initial_position(plan(sweep, memory), 0)
    state = checkpoint.restore(path / "checkpoints", path, like, pytest.fail)
    leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state.state)]
    return [(path / name).read_text() for name in FILES], state.round, leaves


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweeps") / "whole"
    run(path)
    return path


def test_what_a_folder_holds(whole):
    found = read_sweep(whole)
    assert found.finished
    assert found.sweep == plan().sweep == read_sweep_config(whole)
    assert [(cell.gamma, cell.eta) for cell in found.cells] == [*SWEEP.cells]
    assert [cell.diverged is not None for cell in found.cells] == [False, True, True] * 2
    for cell in found.cells:
        assert len(cell.loss) == len(cell.norm) == (cell.diverged[0] if cell.diverged else 20)
        assert [t for t, *_ in cell.evaluations] == ([] if cell.diverged and cell.diverged[0] < 10 else [10, 20])
    result = json.loads((whole / "result.json").read_text())
    assert result["diverged"] == {
        str(cell.number): {"round": cell.diverged[0], "why": cell.diverged[1]} for cell in found.cells if cell.diverged
    }
    assert run(whole)[1] == [f"{whole}: finished; nothing to do"]


@pytest.mark.parametrize("memory", [2**30, 0])
def test_cut_anywhere(tmp_path, whole, memory):
    """Stopped after each part, of all lengths; in one program and one cell after the other."""
    if not memory:
        run(tmp_path / "whole", memory=0)
        whole = tmp_path / "whole"
    path, sizes = tmp_path / "cut", [1, 3, 2, 7, 20]
    while not (path / "result.json").exists():
        stop, size = StopRequest(), sizes.pop(0)
        sizes.append(size)
        for _ in sweep_in_folder(path, plan(memory=memory), notify=lambda line: None, stop=stop, chunk=size):
            stop.signal = 2
    assert content(path, memory=memory) == content(whole, memory=memory)


def test_killed_before_its_end_was_written(tmp_path, whole):
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    (path / "result.json").unlink()
    found, said = run(path)
    assert not found
    assert said[-1] == f"{path}: resuming after round 20 of group 0"
    assert content(path) == content(whole)


def test_a_damaged_checkpoint(tmp_path, whole):
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    (path / "result.json").unlink()
    file = max(
        (f for f in (path / "checkpoints" / "00000020").rglob("*") if f.is_file()), key=lambda f: f.stat().st_size
    )
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    _, said = run(path)
    assert any(line.startswith("skipped the checkpoint of round 20") for line in said)
    assert content(path) == content(whole)


def test_with_a_decay_rule(tmp_path):
    rule = {"decay": "paper", "decay_window": 2, "decay_patience": 1, "decay_cooldown": 1, "decay_delta": 0.5}
    sweep = SweepConfig(replace(RUN, **rule), (0.5,), (0.1, 0.5))
    run(tmp_path, sweep)
    for cell in read_sweep(tmp_path).cells:
        assert len(cell.gammas) == 20
        assert cell.gammas[-1] < cell.gammas[0] == 0.5


def test_going_or_cut_off_it_can_be_read(tmp_path):
    going = sweep_in_folder(tmp_path, plan(), notify=lambda line: None, chunk=3)
    next(going)
    found = read_sweep(tmp_path)
    assert not found.finished
    assert [len(cell.loss) for cell in found.cells] == [1] * 6
    going.close()
    with (tmp_path / "log.jsonl").open("ab") as file:
        file.write(b'{"group": 0, "ro')
    assert [len(cell.loss) for cell in read_sweep(tmp_path).cells] == [1] * 6


@pytest.mark.parametrize(
    ("sweep", "says"),
    [
        (replace(SWEEP, client_lr=(0.1,)), "client_lr 0.1,0.5 -> 0.1$"),
        (replace(SWEEP, run=replace(RUN, seed=4)), "seed 3 -> 4$"),
        (replace(SWEEP, run=replace(RUN, rounds=30)), "rounds 20 -> 30$"),
    ],
)
def test_another_configuration_is_refused(whole, sweep, says):
    with pytest.raises(RunError, match=f"expected the configuration that the run began with, got {says}"):
        run(whole, sweep)


def test_toml(tmp_path):
    for sweep in (plan().sweep, SweepConfig(RUN, (0.1, 1e-25), tied=True)):
        (tmp_path / "a.toml").write_text(sweep_to_toml(sweep))
        assert read_sweep_toml(tmp_path / "a.toml") == sweep
    (tmp_path / "b.toml").write_text('task = "digits"\n[sweep]\nclient_lr = 3\n')
    with pytest.raises(RunError, match=r"b\.toml"):
        read_sweep_toml(tmp_path / "b.toml")


COMMAND = [
    "sweep", "quadratic", "--clients", "8", "--clients-per-round", "3", "--server", "yogi", "--theta", "1:2",
    "--client-lr", "0,0.1,1,100", "--server-lr", "0.01,0.1,1e30", "--evaluate-every", "50", "--checkpoint-every", "1",
]  # fmt: skip


def started(cache, path, rounds):  # noqa: F811
    command = [*LUR, *COMMAND, "--rounds", str(rounds), "--run-dir", str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=cache)


def killed_and_whole(cache, tmp_path, rounds, kills, longest=0.3):  # noqa: F811
    rng, path = random.Random(0), tmp_path / "killed"
    for _ in range(kills):
        process = started(cache, path, rounds)
        until_it_writes(process, path)
        time.sleep(rng.uniform(0, longest))
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGKILL)
        process.communicate()
    for one in (path, tmp_path / "whole"):
        process = started(cache, one, rounds)
        _, err = process.communicate(timeout=LIMIT)
        assert (process.returncode, err) == (0, "")
    planned = plan_sweep(read_sweep_config(path), TASK)
    found = []
    for one in (path, tmp_path / "whole"):
        like = initial_position(planned, 0)
        state = checkpoint.restore(one / "checkpoints", one, like, pytest.fail)
        leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state.state)]
        found.append(([(one / name).read_bytes() for name in FILES], state.round, leaves))
    assert found[0] == found[1]


@pytest.mark.promote
def test_killed_twice(cache, tmp_path):  # noqa: F811
    killed_and_whole(cache, tmp_path, 30, 2)


@pytest.mark.full
@pytest.mark.promote
def test_killed_fifty_times(cache, tmp_path):  # noqa: F811
    killed_and_whole(cache, tmp_path, 400, 50, 1.0)
