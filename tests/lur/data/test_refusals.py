"""What would be imported short, wrapped or misread is refused in a sentence."""

import json
import os
import sqlite3
import zlib
from contextlib import closing

import jax.numpy as jnp
import numpy as np
import pytest

from lur import tasks
from lur.data.gather import resident
from lur.data.ragged import from_rows
from lur.data.readers import fedjax_sqlite, leaf_json, samples, tff_sqlite
from lur.data.store import StoreError, open_store
from lur.data.writer import in_memory, write_store
from lur.engine.sampling_plan import plan_sampling
from lur.methods.local_update import local_update
from lur.tasks.digits import task as digits
from tests.lur.data.readers import writers

CLIENT = {"count": np.array([1, -2], np.int32)}


def test_a_database_with_a_write_ahead_log_is_refused(tmp_path):
    """A committed row is only in the -wal until a checkpoint; without it the file would be imported short."""
    path = writers.fedjax_sqlite(tmp_path / "a.sqlite", {b"a": CLIENT})
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        row = (b"b", zlib.compress(writers.fedjax_data(CLIENT)), 2)
        connection.execute("INSERT INTO federated_data VALUES (?, ?, ?)", row)
        connection.commit()
        with pytest.raises(StoreError, match=r"a\.sqlite: expected .* found a\.sqlite-wal"):
            list(fedjax_sqlite.clients(path))
    assert [id for id, _ in fedjax_sqlite.clients(path)] == ["a", "b"]  # closing it writes the log back


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_tff_database_with_unfinished_changes_is_refused(tmp_path, suffix):
    path = writers.tff_sqlite(tmp_path / "a.sqlite", {"train": {"a": CLIENT}})
    side = tmp_path / f"a.sqlite{suffix}"
    side.touch()
    assert len(list(tff_sqlite.clients(path, "train"))) == 1
    side.write_bytes(b"changes")
    with pytest.raises(StoreError, match=rf"a\.sqlite: expected .* found a\.sqlite{suffix}"):
        list(tff_sqlite.clients(path, "train"))


@pytest.mark.parametrize("read", [samples.roles_json, samples.users_json, samples.pen_npz, leaf_json.clients])
def test_a_pipe_is_no_import(tmp_path, read):
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(StoreError, match=r"a\.json: expected"):
        list(read(tmp_path / "a.json"))


def test_a_pipe_in_a_folder_is_not_left_out(tmp_path):
    writers.leaf_json(tmp_path / "a.json", {"a": {"x": [b"a" * 80], "y": [b"b"]}})
    os.mkfifo(tmp_path / "b.json")
    with pytest.raises(StoreError, match=r"b\.json: expected"):
        list(leaf_json.clients(tmp_path))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (np.array([1, 2**32 + 7]), r"x of example 1 must fit int32, .* got 4294967303"),
        (np.array([-(2**31) - 1, 1]), "x of example 0 must fit int32"),
        (np.array([1.0, 1e300]), "x of example 1 must fit float32"),
        (from_rows([np.array([1, 2]), np.array([2**40])], np.int64), "value 2 of x must fit int32"),
    ],
)
@pytest.mark.parametrize("place", ["device", "host"])
def test_a_number_that_32_bits_cannot_hold_is_refused(values, says, place):
    store = in_memory([("a", {"x": values})])
    method = local_update(lambda params, batch: jnp.zeros(()), [1]) if place == "host" else None
    with pytest.raises(ValueError, match=says):
        resident(store) if method is None else plan_sampling(store, method, 1, 1)


def test_a_number_that_32_bits_can_hold_is_kept():
    values = np.array([2**31 - 1, -(2**31)])
    np.testing.assert_array_equal(resident(in_memory([("a", {"x": values})])).features["x"], values)


PIXELS, LABEL = np.zeros((2, 64), np.float32), np.array([0, 9], np.int32)


@pytest.mark.parametrize(
    "examples",
    [
        {"pixels": PIXELS},
        {"pixels": np.zeros((2, 8, 8), np.float32), "label": LABEL},
        {"pixels": [b"a", b"b"], "label": LABEL},
        {"pixels": PIXELS, "label": np.array([0.0, 1.5])},
        {"pixels": PIXELS, "label": [b"a", b"b"]},
        {"pixels": PIXELS, "label": np.array([0, 10])},
        {"pixels": PIXELS, "label": np.array([-1, 9])},
    ],
    ids=["no label", "a wrong shape", "text", "labels of floats", "labels of text", "label 10", "label -1"],
)
def test_digits_refuses_other_features(examples):
    with pytest.raises(StoreError, match=r"expected (pixels|label)") as error:
        digits(in_memory([("a", examples)]))
    assert "Ellipsis" not in str(error.value)


def test_digits_takes_a_store_of_its_features():
    assert digits(in_memory([("a", {"pixels": PIXELS, "label": LABEL})])).store.examples == 2


def test_verify_says_that_there_are_no_checksums(lur, tmp_path):
    write_store(tmp_path / "s", [("a", CLIENT)], {})
    file = tmp_path / "s" / "manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["sha256"], manifest["manifest_sha256"]
    file.write_text(json.dumps(manifest))
    status, out, err = lur("data", "info", tmp_path / "s", "--verify")
    assert (status, out) == (2, "")
    assert "expected checksums to verify, found none" in err
    assert open_store(tmp_path / "s").clients == 1


def test_escape_sequences_of_a_store_do_not_reach_the_terminal(lur, tmp_path):
    about = {"source": "\x1b[2J\x9bowned", "\x1b]0;title\x07": "\r"}
    write_store(tmp_path / "s", [("a", {"pixels": PIXELS, "label": LABEL})], about)
    options = ("--store", "s", "--rounds", 1, "--clients-per-round", 1)
    for command in (("data", "info", tmp_path / "s"), ("train", "digits", *options)):
        status, out, _ = lur(*command)
        assert status == 0
        assert r"\x1b[2J\x9bowned" in out
        assert out.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("task", "features", "says"),
    [
        (
            "cifar100",
            {"image": np.zeros((1, 8, 8, 3), np.uint8), "label": np.zeros(1, int)},
            "image uint8 (n, 32, 32, 3)",
        ),
        ("cifar100", {"image": np.zeros((1, 32, 32, 3), np.uint8)}, "label uint8|int32|int64 (n)"),
        ("femnist", {"pixels": np.zeros((1, 784), np.float32)}, "pixels float32|uint8 (n, 28, 28)"),
        ("femnist", {"pixels": [b"text"], "label": [b"text"]}, "pixels float32|uint8 (n, 28, 28)"),
        ("shakespeare", {"snippets": np.zeros(1)}, "the text snippets"),
        ("shakespeare", {"x": np.zeros((1, 2)), "y": np.zeros(1)}, "the text x"),
        ("stackoverflow_nwp", {"tokens": np.zeros(1)}, "the text tokens"),
        ("stackoverflow_tp", {"tokens": [b"a"]}, "the text t"),
        ("digits", {"pixels": np.zeros((1, 8, 8))}, "(n, 64)"),
    ],
)
def test_a_store_of_other_data_is_refused_before_training(tmp_path, monkeypatch, task, features, says):
    """The message names what the task needs and what the store has."""
    monkeypatch.setenv("LUR_CACHE", str(tmp_path))
    with pytest.raises(StoreError) as error:
        tasks.load(task, store=in_memory([("a", features)]))
    assert says in str(error.value)
    assert all(name in str(error.value) for name in features)
    assert "Ellipsis" not in str(error.value)
