"""`lur train` in a run folder: cut anywhere, extended, stopped, diverged, refused; the numbers are always the same."""

import json
import os
import re
import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest

from lur import tasks
from lur.runs import checkpoint
from lur.runs.errors import RunError
from lur.runs.reader import block_statistics, read_run
from lur.runs.train_run import LOGS, read_run_config, train_in_folder
from lur.training.configuration import RunConfig, config_from_values, resolve_config, with_changes
from lur.training.experiment import initial_state, resolve
from lur.training.loop import StopRequest, train

CONFIG = RunConfig(
    "quadratic", rounds=12, clients=8, clients_per_round=3, server="yogi", theta="1:2", evaluate_every=5, seed=3,
    decay="reference", decay_window=2, decay_patience=1, decay_cooldown=1, decay_delta=0.5, checkpoint_every=4,
)  # fmt: skip
TASK = tasks.load("quadratic", clients=8)
METHODS = {}
pytestmark = pytest.mark.promote


def experiment(config=CONFIG, task=TASK):
    """The experiment; those that differ in nothing that a method depends on share it and its compiled program."""
    resolved = resolve(config, task)
    key = replace(resolved.config, rounds=1, evaluate_every=None, checkpoint_every=None, client_lr=0.0, server_lr=0.0)
    method = METHODS.setdefault((id(task), key), resolved.method)
    return resolved._replace(program=resolved.program._replace(method=method))


def lengths(*sizes):
    """Chunks of these sizes, then of the last one."""
    left = [*sizes]
    return lambda seconds: left.pop(0) if len(left) > 1 else left[0]


def run(path, config=CONFIG, **options):
    notes = []
    resolved = experiment(config, options.pop("task", TASK))
    return [*train_in_folder(path, resolved, notify=notes.append, **options)], notes


def content(path):
    """All that must be the same: the logs without timings, the result, the final state."""
    state = checkpoint.restore(path / "checkpoints", path, initial_state(experiment()), pytest.fail)
    leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state.state)]
    texts = [(path / name).read_text() for name in ("log.jsonl", "evaluation.jsonl", "result.json")]
    return texts, state.round, leaves


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "whole"
    with jax.numpy_dtype_promotion("standard"):
        run(path)
    return path


def test_what_a_folder_holds(whole):
    record = read_run(whole)
    assert (record.state, record.kind) == ("finished", "train")
    assert (
        config_from_values(record.config)
        == with_changes(resolve_config(CONFIG, TASK.settings))
        == read_run_config(whole)
    )
    assert [line["round"] for line in record.rounds] == [*range(1, 13)]
    assert list(record.rounds[0]) == ["round", "loss", "update_norm", "client_lr", "server_lr", "decayed"]
    assert [line["round"] for line in record.evaluations] == [5, 10, 12]
    assert sum(line["rounds"] for line in record.timings) == 12
    assert any(line["decayed"] for line in record.rounds)
    assert record.rounds[-1]["client_lr"] < record.rounds[0]["client_lr"] == 0.1
    assert {"jax", "device", "revision", "layout"} <= set(record.environment["begun"])
    assert sorted(path.name for path in (whole / "checkpoints").iterdir()) == ["00000004", "00000008", "00000012"]
    assert [block.rounds for block in block_statistics(record.rounds, size=5)] == [5, 5, 2]
    infos = [at.infos for at in train(experiment(), chunk=12)]  # without a folder: the same numbers
    assert [line["loss"] for line in record.rounds] == [float(str(loss)) for info in infos for loss in info.loss]
    assert run(whole) == ([], [f"{whole}: finished after 12 rounds; nothing to do"])


def test_cut_anywhere(tmp_path, whole):
    """Chunks of all sizes, and a new process's state of mind after every checkpoint."""
    path = tmp_path / "cut"
    for rounds, sizes in ((1, (1,)), (3, (2,)), (8, (1, 3, 1)), (11, (7,)), (12, (1,))):
        run(path, replace(CONFIG, rounds=rounds), chunk=lengths(*sizes))
        assert read_run(path).state == "finished"
    assert content(path) == content(whole)


def test_killed_before_its_end_was_written(tmp_path, whole):
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    (path / "result.json").unlink()
    assert read_run(path).state == "stopped"
    found, said = run(path)
    assert [at.rounds for at in found] == [12]
    assert said == [f"{path}: resuming after round 12"]
    assert content(path) == content(whole)


@pytest.mark.parametrize("harm", ["flip", "empty", "missing", "all"])
def test_a_damaged_checkpoint(tmp_path, whole, harm):
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    (path / "result.json").unlink()
    hurt = [path / "checkpoints" / "00000012"] if harm != "all" else [*(path / "checkpoints").iterdir()]
    for one in hurt:
        if harm == "missing":
            shutil.rmtree(one)
        elif harm == "empty":
            os.truncate(one / "manifest.json", 0)
        else:
            file = max((file for file in one.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)
            file.write_bytes(file.read_bytes()[:-1] + b"?")
    _, said = run(path)
    passed = {"missing": 0, "all": 3}.get(harm, 1)
    assert [line.startswith("skipped the checkpoint of round") for line in said] == [True] * passed + [False]
    assert said[-1] == f"{path}: resuming after round {0 if harm == 'all' else 8}"
    assert content(path) == content(whole)


@pytest.mark.parametrize("value", ['"1"', "NaN", "null", "[]"])
def test_a_log_whose_last_round_is_no_number(tmp_path, whole, value):
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    (path / "result.json").unlink()
    with (path / "log.jsonl").open("a") as file:
        file.write(f'{{"round": {value}}}\n')
    run(path)
    assert content(path) == content(whole)


def test_a_run_that_is_going_or_was_cut_off_can_be_read(tmp_path, whole):
    path = tmp_path / "run"
    going = train_in_folder(path, experiment(), chunk=3, notify=pytest.fail)
    next(going)
    record = read_run(path)
    assert (record.state, [line["round"] for line in record.rounds]) == ("running", [1, 2, 3])
    going.close()
    with (path / "log.jsonl").open("ab") as file:
        file.write(b'{"round": 4, "lo')
    record = read_run(path)
    assert (record.state, len(record.rounds)) == ("stopped", 3)
    run(path)
    assert content(path) == content(whole)


def test_asked_to_stop(tmp_path, whole):
    path, stop = tmp_path / "run", StopRequest()
    seen = []
    for at in train_in_folder(
        path, experiment(replace(CONFIG, checkpoint_every=None)), stop=stop, chunk=3, notify=pytest.fail
    ):
        seen.append(at.rounds)
        stop.signal = 2
    assert seen == [3]
    assert read_run(path).state == "stopped"
    assert run(path)[1] == [f"{path}: resuming after round 3"]
    assert content(path) == content(whole)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"client_lr": 0.5, "evaluate_every": None}, "client_lr 0.1 -> 0.5; evaluate_every 5 -> none$"),
        ({"rounds": 11}, "rounds 12 -> 11, of which 12 are done$"),
        ({"task": "digits"}, "task quadratic -> digits"),
    ],
)
def test_another_configuration_is_refused_with_the_difference(whole, changes, says):
    before = content(whole)
    with pytest.raises(RunError, match=f"expected the configuration that the run began with, got {says}"):
        run(whole, replace(CONFIG, **changes))
    assert content(whole) == before


def test_other_data_are_refused(whole):
    with pytest.raises(RunError, match="expected the data that the run began with"):
        run(whole, task=tasks.load("quadratic", clients=8, seed=1))


@pytest.mark.parametrize(
    ("changes", "first", "why"),
    [
        ({"client_lr": 1e30}, 1, "update_norm is (nan|inf)"),
        ({"server_lr": 1e25, "server": "sgd"}, 2, "loss is (nan|inf)"),
        ({"server_lr": 30.0, "server": "sgd", "decay": "off", "evaluate_every": None}, None, "above the limit 1e"),
    ],
)
def test_divergence_ends_a_run(tmp_path, changes, first, why):
    config, path = replace(CONFIG, **changes), tmp_path / "run"
    found, _ = run(path, config, chunk=12)
    at = found[-1]
    record = read_run(path)
    assert record.state == "diverged"
    assert record.why == at.diverged == record.rounds[-1]["diverged"]
    assert [line["round"] for line in record.rounds] == [*range(1, at.rounds + 1)]
    assert at.rounds == (first or at.rounds) < 12
    assert not any("diverged" in line for line in record.rounds[:-1])
    assert int(at.state.round) == at.rounds
    assert re.search(why, record.why)
    texts = {name: (path / name).read_bytes() for name in (*LOGS, "result.json")}
    assert run(path, config)[1] == [f"{path}: diverged in round {at.rounds}: {record.why}; nothing to do"]
    (path / "result.json").unlink()  # killed before its end was written
    run(path, config)
    assert {name: (path / name).read_bytes() for name in (*LOGS, "result.json")} == texts
    run(tmp_path / "single", config, chunk=1)
    assert (tmp_path / "single" / "log.jsonl").read_bytes() == texts["log.jsonl"]


def test_divergence_seen_by_an_evaluation(tmp_path):
    config = replace(CONFIG, rounds=5, server="sgd", server_lr=1e4, decay="off", evaluate_every=1)
    found, _ = run(tmp_path, config)
    record = read_run(tmp_path)
    assert (record.state, found[-1].rounds) == ("diverged", 1)
    assert record.why == record.evaluations[-1]["diverged"]
    assert record.why.startswith("f(x) is ")
    before = (tmp_path / "evaluation.jsonl").read_bytes(), (tmp_path / "result.json").read_bytes()
    (tmp_path / "result.json").unlink()
    run(tmp_path, config)
    assert before == ((tmp_path / "evaluation.jsonl").read_bytes(), (tmp_path / "result.json").read_bytes())
    assert json.loads(before[1])["state"] == "diverged"


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "run", "/proc/nowhere/run"):
        with pytest.raises(OSError, match=r"file|nowhere"):
            run(type(tmp_path)(path))
