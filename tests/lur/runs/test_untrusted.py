"""Stores, checkpoints, configurations and logs from elsewhere: read, or refused with an error that names the file.

Nothing in them runs, and nothing is written outside their folder.
"""

import ast
import os
import pickle
import shutil
import tracemalloc
from contextlib import suppress
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from lur import tasks
from lur.data.gather import resident
from lur.data.store import StoreError, open_store
from lur.data.writer import write_store
from lur.runs.checkpoint import restore, save
from lur.runs.errors import RunError
from lur.runs.files import Log
from lur.runs.report_page import report_page
from lur.runs.train_run import train_in_folder
from lur.training import configuration as config
from lur.training.configuration import RunConfig
from lur.training.experiment import resolve
from tests.lur.data.readers.damage import mutated

ROOT = Path(__file__).resolve().parents[3]
STATE = {"a": jnp.arange(6.0).reshape(2, 3), "b": jnp.zeros(2, jnp.int32)}
QUICK, ALL = 6, 250
LARGEST = 2**27
"""Bytes that reading a small folder may take, whatever its files say of sizes."""


def store_at(path):
    clients = [
        (f"client {i}", {"x": np.full((i + 1, 2), i, np.float32), "words": [b"ab" * (k + 1) for k in range(i + 1)]})
        for i in range(3)
    ]
    write_store(path, clients, {})


def read_store(path):
    store = open_store(path)
    resident(store)
    assert len([*store.items()]) == store.clients


def checkpoint_at(path):
    path.mkdir()
    log = Log(path / "log.jsonl")
    for k in (1, 2):
        log.append([{"round": k}])
        save(path / "checkpoints", k, STATE, {"log.jsonl": log.sync()})
    log.close()


def read_checkpoint(path):
    said = []
    found = restore(path / "checkpoints", path, STATE, said.append)
    for line in said:
        assert str(path) in line
    if found is None or found.round < 2 or said:
        raise RunError(f"{path}: {said}")


def config_at(path):
    path.mkdir()
    run = RunConfig("digits", rounds=7, client_lr=0.1, theta="1:3", store=Path("a b"), evaluate_every=2)
    (path / "config.toml").write_text(config.to_toml(run))


def read_config(path):
    config.read_config(path / "config.toml")


def run_at(path):
    task = tasks.load("quadratic", clients=8)
    run = RunConfig("quadratic", rounds=4, clients=8, clients_per_round=3, theta="1:2", evaluate_every=2)
    for _ in train_in_folder(path, resolve(run, task), chunk=2, notify=lambda line: None):
        pass
    shutil.rmtree(path / "checkpoints")


def read_run(path):
    text = report_page([path])
    assert "<script" not in text.lower()


MAKERS = {
    "store": (store_at, read_store, StoreError),
    "checkpoint": (checkpoint_at, read_checkpoint, RunError),
    "config": (config_at, read_config, ValueError),
    "log": (run_at, read_run, ValueError),
}


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)


def outcomes(folder, kind, count, seed=0):
    """Read so many folders with one damaged file each: how many were read, how many refused."""
    make, read, documented = MAKERS[kind]
    good = folder / "good"
    folder.mkdir(exist_ok=True)
    make(good)
    read(good)
    rng = np.random.default_rng(seed)
    files = sorted(path.relative_to(good) for path in good.rglob("*") if path.is_file() and path.name != "lock")
    read_well = refused = 0
    for k in range(count):
        bad = folder / "bad"
        shutil.copytree(good, bad)
        file = bad / files[k % len(files)]
        file.write_bytes(mutated(file.read_bytes(), rng))
        tracemalloc.start()
        try:
            read(bad)
            read_well += 1
        except documented as error:
            if str(bad) not in str(error):
                raise
            refused += 1
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < LARGEST, file
        shutil.rmtree(bad)
        assert [path.name for path in folder.iterdir()] == ["good"], f"{file}: something was left"
    return read_well, refused


@pytest.mark.parametrize("kind", MAKERS)
def test_a_few_malformed_folders(tmp_path, kind):
    assert sum(outcomes(tmp_path / "in", kind, QUICK, seed=1)) == QUICK


@pytest.mark.faults
def test_a_thousand_malformed_folders(tmp_path):
    found = {kind: outcomes(tmp_path / kind, kind, ALL) for kind in MAKERS}
    print(", ".join(f"{kind}: {good} read, {bad} refused" for kind, (good, bad) in found.items()))
    assert sum(map(sum, found.values())) == 1000
    assert all(bad >= ALL // 10 for _, bad in found.values())


class Planted:
    """What leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (open, (str(self.mark), "w"))


@pytest.mark.parametrize("kind", MAKERS)
def test_a_planted_pickle_is_not_executed(tmp_path, kind):
    make, read, documented = MAKERS[kind]
    good, mark = tmp_path / "good", tmp_path / "mark"
    make(good)
    plain = pickle.dumps(Planted(mark))
    array = tmp_path / "planted.npy"
    np.save(array, np.array([Planted(mark)], object), allow_pickle=True)
    pickle.loads(plain).close()
    assert mark.exists()  # the plant works
    mark.unlink()
    files = [path.relative_to(good) for path in good.rglob("*") if path.is_file() and path.name != "lock"]
    for file in files:
        for content in (plain, array.read_bytes()):
            bad = tmp_path / "bad"
            shutil.copytree(good, bad)
            (bad / file).write_bytes(content)
            with suppress(documented):  # a log without a whole line is one without lines
                read(bad)
            shutil.rmtree(bad)
            assert not mark.exists(), file


def test_no_load_path_can_unpickle():
    """No module of lur imports what runs code from data, or asks numpy to."""
    for path in (ROOT / "lur").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"pickle", "dill", "marshal", "shelve", "yaml"}, path
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), path
                assert node.value.value is False, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), path
