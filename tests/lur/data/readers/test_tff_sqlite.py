"""TensorFlow Federated's SQLite: round trips, faulty clients, tables that disagree, bombs."""

import lzma
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lur.data.readers import tff_sqlite
from lur.data.store import StoreError
from tests.lur.data.readers import writers
from tests.lur.data.readers.clients import (
    BAD,
    DATASETS,
    GOOD,
    IDS,
    assert_imported,
    bounded_memory,
    random_clients,
    refusal,
    several,
    sorted_by_id,
    temporary_folder,
)


def read_train(path: Path) -> Iterator:
    return tff_sqlite.clients(path, "train")


@several
@given(random_clients(*DATASETS, ids=IDS), st.sampled_from(["sqlite", "sqlite.xz", "sqlite.lzma"]), st.booleans())
def test_round_trip(clients, suffix, packed):
    with temporary_folder() as tmp:
        path = writers.tff_sqlite(tmp / f"a.{suffix}", {"test": {"z": {"v": [b""]}}, "train": clients}, packed=packed)
        assert tff_sqlite.splits(path) == ["test", "train"]
        assert tff_sqlite.count(path, "train") == (len(clients) if suffix == "sqlite" else None)
        assert_imported(tmp / "store", tff_sqlite.clients(path, "train"), sorted_by_id(clients))


@pytest.mark.parametrize("case", BAD)
def test_a_faulty_client_is_named(tmp_path, case):
    path = writers.tff_sqlite(tmp_path / "a.sqlite.xz", {"train": {"a": GOOD, "bad": BAD[case]}})
    message = refusal(read_train, path)
    assert "lur-" not in message


def test_pixels_beyond_a_byte_are_refused(tmp_path):
    image = {"image": np.full((1, 32, 32, 3), 256), "label": np.zeros(1, int), "coarse_label": np.zeros(1, int)}
    assert "0..255" in refusal(read_train, writers.tff_sqlite(tmp_path / "a.sqlite", {"train": {"bad": image}}))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("UPDATE client_metadata SET num_examples = 3 WHERE client_id = 'bad'", "expected 3 examples"),
        ("UPDATE client_metadata SET num_examples = 'x' WHERE client_id = 'bad'", "expected b'x' examples"),
        ("DELETE FROM client_metadata WHERE client_id = 'bad'", "client_metadata"),
        ("DELETE FROM examples WHERE client_id = 'bad'", "found none"),
        ("UPDATE examples SET serialized_example_proto = x'0a05' WHERE client_id = 'bad'", "tf.train.Example"),
        ("UPDATE examples SET serialized_example_proto = 5 WHERE client_id = 'bad'", "serialized proto, found int"),
        ("UPDATE examples SET serialized_example_proto = '' WHERE client_id = 'bad'", "at least one feature"),
    ],
)
def test_tables_that_disagree_are_refused(tmp_path, change, what):
    path = writers.tff_sqlite(tmp_path / "a.sqlite", {"train": {"a": GOOD, "bad": GOOD, "c": GOOD}})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)
    assert what in refusal(read_train, path)


def test_an_unknown_split_is_refused(tmp_path):
    path = writers.tff_sqlite(tmp_path / "a.sqlite", {"all_train": {"a": GOOD}, "all_test": {"a": GOOD}})
    with pytest.raises(StoreError, match="'train', found all_test, all_train"):
        list(tff_sqlite.clients(path, "train"))


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE examples; CREATE VIEW examples AS SELECT 'train' split_name, 'a' client_id, zeroblob(9) "
        "serialized_example_proto",
        "DROP TABLE examples; CREATE VIRTUAL TABLE examples USING fts5(split_name, client_id, "
        "serialized_example_proto)",
        "DROP TABLE examples; CREATE TABLE examples (split_name, client_id, serialized_example_proto AS (zeroblob(9)))",
        "DROP TABLE examples; CREATE TABLE examples (split_name, client_id)",
        "DROP TABLE examples",
    ],
)
def test_views_and_computed_columns_are_refused(tmp_path, sql):
    path = writers.tff_sqlite(tmp_path / "a.sqlite", {"train": {"a": GOOD}})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(sql)
    with pytest.raises(StoreError, match="expected") as error:
        list(tff_sqlite.clients(path, "train"))
    assert str(path) in str(error.value)


def test_an_abandoned_import_removes_its_temporary_files(tmp_path, monkeypatch):
    """A generator closed early removes the file that it unpacked."""
    path = writers.tff_sqlite(tmp_path / "a.sqlite.xz", {"train": {id: GOOD for id in "abc"}})
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    reading = tff_sqlite.clients(path, "train")
    assert next(reading)[0] == "a"
    assert list((tmp_path / "temporary").iterdir())
    reading.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert not list((tmp_path / "temporary").iterdir())


def test_a_compression_bomb_is_refused_in_bounded_memory(tmp_path):
    path = tmp_path / "a.sqlite.lzma"
    path.write_bytes(lzma.compress(bytes(2**26), preset=0))
    with bounded_memory(), pytest.raises(StoreError, match="at most"):
        list(tff_sqlite.clients(path, "train", unpacked_limit=10**6))


def test_a_client_that_is_too_large_is_refused(tmp_path):
    path = writers.tff_sqlite(tmp_path / "a.sqlite", {"train": {"bad": {"v": [b"x" * 1000] * 100}}})
    with pytest.raises(StoreError, match=r"client 'bad'.*at most 50000 bytes"):
        list(tff_sqlite.clients(path, "train", limit=50000))
