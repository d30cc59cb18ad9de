"""A run folder becomes a task, a model, a state and a configuration again."""

import shutil

import jax
import numpy as np
import pytest

import lur
from lur.runs.errors import RunError
from lur.runs.train_run import train_in_folder
from lur.training.configuration import RunConfig
from lur.training.experiment import load_task, resolve

CONFIG = RunConfig(
    "digits", rounds=4, clients=10, clients_per_round=3, held_out=0.2, method="scaffold", checkpoint_every=2
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder and its last progress."""
    path = tmp_path_factory.mktemp("runs") / "digits"
    *_, last = train_in_folder(path, resolve(CONFIG, load_task(CONFIG)), notify=lambda text: None)
    return path, last


def assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_the_model_has_the_evaluations_of_the_run(run):
    path, last = run
    loaded = lur.load_run(path)
    assert_equal(loaded.params, last.state.params)
    assert_equal(loaded.state, last.state)
    assert loaded.config.local_steps == 10
    assert lur.evaluate(loaded.task, loaded.params) == last.evaluation
    assert lur.evaluate(loaded.task, loaded.params, on="test") == last.held_out["test"]
    assert lur.evaluate(loaded.task, loaded.params, on="clients") == last.held_out["clients"]


def test_a_damaged_checkpoint_is_passed_over_and_left_alone(run, tmp_path):
    path, _ = run
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    first, second = sorted((copy / "checkpoints").iterdir())
    (second / "manifest.json").write_text("{}")
    assert int(lur.load_run(copy).state.round) == 2
    assert sorted((copy / "checkpoints").iterdir()) == [first, second]
    (first / "manifest.json").write_text("{}")
    with pytest.raises(RunError, match="expected an intact checkpoint, found none"):
        lur.load_run(copy)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(RunError, match="expected the folder of a run of `lur train`, found none"):
        lur.load_run(tmp_path)
