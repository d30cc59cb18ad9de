"""Clients without examples, as the published writers make them: left out, counted, and said."""

import gzip
import json
import sqlite3
import zlib
from contextlib import closing

import h5py
import numpy as np
import pytest

from lur.data.importing import Options, import_store
from lur.data.store import StoreError
from tests.lur.data.readers import writers
from tests.lur.data.readers.clients import random_features

NUMBERS = {"count": np.array([1, -2], np.int32), "word": [b"one", b"two"]}
NO_NUMBERS = {"count": np.zeros(0, np.int32), "word": []}


def hdf5(path, empty):
    writers.hdf5(path, {"a": NUMBERS, **{id: NO_NUMBERS for id in empty[:1]}, "z": NUMBERS})
    with h5py.File(path, "a") as file:
        for id in empty[1:]:
            file.create_group(f"examples/{id}")  # not even a feature
    return path


def tff_sqlite(path, empty):
    return writers.tff_sqlite(path, {"train": {"a": NUMBERS, **{id: NO_NUMBERS for id in empty}, "z": NUMBERS}})


def fedjax(path, empty):
    return writers.fedjax_sqlite(path, {b"a": NUMBERS, **{id.encode(): NO_NUMBERS for id in empty}, b"z": NUMBERS})


def leaf(path, empty):
    role = random_features("leaf", 2, np.random.default_rng(0))
    return writers.leaf_json(path, {"a": role, **{id: {"x": [], "y": []} for id in empty}, "z": role})


def roles(path, empty):
    path.write_text(json.dumps({"train": {"a": ["x", "y"], **{id: [] for id in empty}, "z": ["x", "y"]}}))
    return path


def users(path, empty):
    rows = [{"tokens": "a", "title": "b", "tags": "c"}] * 2
    path.write_bytes(gzip.compress(json.dumps({"a": rows, **{id: [] for id in empty}, "z": rows}).encode()))
    return path


FORMATS = {
    "tff-hdf5": hdf5,
    "tff-sqlite": tff_sqlite,
    "fedjax": fedjax,
    "leaf": leaf,
    "roles-json": roles,
    "users-json": users,
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("empty", [("m", "n"), ("0", "~"), ("Z", "ä")], ids=["between", "around", "other"])
def test_clients_without_examples_are_left_out_and_counted(tmp_path, format, empty):
    reported = []
    path = FORMATS[format](tmp_path / "data", empty)
    store = import_store(format, path, tmp_path / "s", report=lambda done, total: reported.append((done, total)))
    expected = import_store(format, FORMATS[format](tmp_path / "full", ()), tmp_path / "expected")
    assert [store.id(i) for i in range(store.clients)] == ["a", "z"]
    assert store.about["empty_clients"] == 2
    assert "empty_clients" not in expected.about
    assert store.about["dataset"] == expected.about["dataset"]
    assert [done for done, _ in reported] == [1, 2, 3, 4]
    assert {total for _, total in reported} <= {4, None}
    for name in (file.name for file in expected.path.glob("*.bin")):
        assert (store.path / name).read_bytes() == (expected.path / name).read_bytes()


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_without_any_example_is_refused(tmp_path, format):
    path = FORMATS[format](tmp_path / "data", ("m", "n"))
    if format in ("tff-sqlite", "fedjax"):
        with closing(sqlite3.connect(path)) as connection, connection:
            for table in ("examples", "client_metadata") if format == "tff-sqlite" else ("federated_data",):
                connection.execute(f"DELETE FROM {table} WHERE client_id IN ('a', 'z', x'61', x'7a')")
    elif format == "tff-hdf5":
        with h5py.File(path, "a") as file:
            del file["examples/a"], file["examples/z"]
    elif format == "leaf":
        writers.leaf_json(path, {id: {"x": [], "y": []} for id in ("m", "n")})
    else:
        empty = {"m": [], "n": []}
        path.write_text(json.dumps({"train": empty} if format == "roles-json" else empty))
    with pytest.raises(StoreError, match=r"data: expected at least one client with examples, found 2 without"):
        import_store(format, path, tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_the_command_says_what_it_left_out(lur, tmp_path):
    path = tff_sqlite(tmp_path / "a.sqlite", ("m",))
    status, out, _ = lur("data", "import", "tff-sqlite", path, tmp_path / "s")
    assert (status, out) == (0, f"{tmp_path / 's'}: 2 clients, 4 examples; 1 without examples left out\n")
    assert "empty_clients 1" in lur("data", "info", tmp_path / "s")[1]
    _, out, _ = lur("data", "import", "tff-sqlite", path, tmp_path / "t", "--json")
    assert json.loads(out)["empty_clients"] == 1


@pytest.mark.parametrize("size", [1, -1, None, "x"])
def test_a_client_whose_examples_are_missing_is_not_empty(tmp_path, size):
    path = tff_sqlite(tmp_path / "a.sqlite", ("m",))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            "CREATE TABLE other AS SELECT * FROM client_metadata; DROP TABLE client_metadata;"
            "ALTER TABLE other RENAME TO client_metadata"
        )
        connection.execute("UPDATE client_metadata SET num_examples = ? WHERE client_id = 'm'", (size,))
    with pytest.raises(StoreError, match=r"client 'm': expected .* examples, as in client_metadata, found none"):
        import_store("tff-sqlite", path, tmp_path / "s", Options())
    row = (b"m", zlib.compress(writers.fedjax_data(NO_NUMBERS)), 1)
    path = writers.fedjax_rows(tmp_path / "f.sqlite", [row])
    with pytest.raises(StoreError, match="client 'm': expected 1 examples, as in num_examples, found 0"):
        import_store("fedjax", path, tmp_path / "s")
