"""The readers: what is written comes back, through the store; what should not be there is refused by name."""

import bz2
import gzip
import io
import json
import lzma
import os
import resource
import sqlite3
import stat
import tarfile
import tempfile
import tracemalloc
import zipfile
import zlib
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import h5py
import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lur.data.ragged import Ragged
from lur.data.readers import archive, counts, example_proto, fedjax_sqlite, leaf_json, tff_hdf5, tff_sqlite
from lur.data.store import StoreError
from lur.data.writer import write_store
from tests.lur.data import writers

TEXTS = ("creation_date", "tags", "title", "tokens", "type")


def features(kind: str, n: int, rng: np.random.Generator) -> dict[str, np.ndarray | list[bytes]]:
    """n random examples of a dataset."""

    def text() -> list[bytes]:
        return [rng.integers(1, 256, rng.integers(0, 30), np.uint8).tobytes() for _ in range(n)]

    match kind:
        case "emnist":
            return {"pixels": rng.random((n, 28, 28), np.float32), "label": rng.integers(0, 62, n, np.int32)}
        case "cifar100":
            labels = {"label": rng.integers(0, 100, n), "coarse_label": rng.integers(0, 20, n)}
            return {"image": rng.integers(0, 256, (n, 32, 32, 3), np.uint8), **labels}
        case "shakespeare":
            return {"snippets": text()}
        case "stackoverflow":
            return {name: text() for name in TEXTS} | {"score": rng.integers(-(2**62), 2**62, n)}
        case "leaf":
            letters = np.array([*"abc é\n"])
            return {
                "x": ["".join(rng.choice(letters, 80)).encode() for _ in range(n)],
                "y": [str(rng.choice(letters)).encode() for _ in range(n)],
            }
        case _:
            return {"b": text(), "a": rng.integers(-5, 5, (n, 3)), "c": rng.random((n, 2), np.float32)}


def clients_of(*kinds: str, ids: st.SearchStrategy[str]):
    """A few clients of one of the datasets."""

    def build(kind: str, ids: list[str], seed: int) -> dict[str, dict]:
        rng = np.random.default_rng(seed)
        return {id: features(kind, int(rng.integers(1, 5)), rng) for id in ids}

    return st.builds(
        build, st.sampled_from(kinds), st.lists(ids, min_size=1, max_size=4, unique=True), st.integers(0, 2**32)
    )


@pytest.fixture(autouse=True, scope="module")
def no_fsync():
    """Many small stores: waiting for the disk is not what is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
HDF5_IDS = IDS.filter(lambda id: "/" not in id and "\0" not in id and id.strip("."))
KINDS = ("emnist", "cifar100", "shakespeare", "stackoverflow", "other")
few, several = settings(max_examples=10, deadline=None), settings(max_examples=25, deadline=None)


@contextmanager
def folder():
    """A temporary folder, one per example of hypothesis."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def assert_imported(store_path: Path, read, expected: dict[str, dict]) -> None:
    """The clients through the store are those expected, in order, labels as int32."""
    store = write_store(store_path, read, {})
    assert [store.id(i) for i in range(store.clients)] == list(expected)
    for (_, found), wanted in zip(store.items(), expected.values(), strict=True):
        assert list(found) == sorted(wanted)
        for name, value in wanted.items():
            array = found[name]
            if isinstance(value, list):
                assert isinstance(array, Ragged)
                assert list(array.texts()) == value
            else:
                assert isinstance(array, np.ndarray)
                assert array.dtype == (np.int32 if name in ("label", "coarse_label") else value.dtype)
                np.testing.assert_array_equal(array, value)


def in_order(clients: dict[str, dict]) -> dict[str, dict]:
    """Clients sorted by id."""
    return {id: clients[id] for id in sorted(clients)}


@few
@given(clients_of(*KINDS, ids=HDF5_IDS), st.sampled_from(["bytes", "str", "chunked", "latest"]))
def test_hdf5_round_trip(clients, form):
    with folder() as tmp:
        options = {"chunks": True, "compression": "gzip"} if form == "chunked" else {}
        libver = "latest" if form == "latest" else "earliest"
        text = form if form == "str" else "bytes"
        path = writers.hdf5(tmp / "a.h5", clients, text=text, libver=libver, **options)
        assert tff_hdf5.count(path) == len(clients)
        assert_imported(tmp / "store", tff_hdf5.clients(path), in_order(clients))


@several
@given(clients_of(*KINDS, ids=IDS), st.sampled_from(["sqlite", "sqlite.xz", "sqlite.lzma"]), st.booleans())
def test_tff_sqlite_round_trip(clients, suffix, packed):
    with folder() as tmp:
        path = writers.tff_sqlite(tmp / f"a.{suffix}", {"test": {"z": {"v": [b""]}}, "train": clients}, packed=packed)
        assert tff_sqlite.splits(path) == ["test", "train"]
        assert tff_sqlite.count(path, "train") == (len(clients) if suffix == "sqlite" else None)
        assert_imported(tmp / "store", tff_sqlite.clients(path, "train"), in_order(clients))


@several
@given(clients_of(*KINDS, ids=IDS))
def test_fedjax_round_trip(clients):
    with folder() as tmp:
        path = writers.fedjax_sqlite(tmp / "a.sqlite", {id.encode(): value for id, value in clients.items()})
        assert fedjax_sqlite.count(path) == len(clients)
        assert_imported(tmp / "store", fedjax_sqlite.clients(path), clients)


@several
@given(clients_of("emnist", "leaf", ids=IDS), st.integers(1, 3))
def test_leaf_round_trip(clients, files):
    with folder() as tmp:
        (tmp / "train").mkdir()
        names, expected = list(clients), {}
        for i in range(min(files, len(names))):
            part = {id: clients[id] for id in names[i :: min(files, len(names))]}
            expected |= part
            writers.leaf_json(tmp / "train" / f"all_data_{i}.json", part)
        assert leaf_json.count(tmp / "train") == len(clients)
        assert_imported(tmp / "store", leaf_json.clients(tmp / "train"), expected)


def test_hdf5_labels_and_strings_as_published(tmp_path):
    """Labels (n, 1) of int64, strings of fixed length, ids and features out of order."""
    rng = np.random.default_rng(0)
    clients = {id: features("cifar100", 3, rng) for id in ("9", "10")}
    stored = {
        id: {k: np.asarray(v)[:, None] if k != "image" else v for k, v in value.items()}
        for id, value in clients.items()
    }
    assert_imported(tmp_path / "a", tff_hdf5.clients(writers.hdf5(tmp_path / "a.h5", stored)), in_order(clients))
    text = {"r": {"snippets": [b"one", b"three"]}}
    path = writers.hdf5(tmp_path / "b.h5", text, text="fixed")
    assert_imported(tmp_path / "b", tff_hdf5.clients(path), text)


def test_fedjax_ids_that_are_not_text(tmp_path):
    path = writers.fedjax_sqlite(tmp_path / "a.sqlite", {b"\xff:f0001_01": {"v": np.zeros(1, np.int32)}})
    assert [id for id, _ in fedjax_sqlite.clients(path)] == ["\\xff:f0001_01"]
    same = {b"\xff": {"v": np.zeros(1, np.int32)}, b"\\xff": {"v": np.zeros(1, np.int32)}}
    with pytest.raises(StoreError, match="twice"):
        list(fedjax_sqlite.clients(writers.fedjax_sqlite(tmp_path / "b.sqlite", same)))


# --- tf.train.Example ---


def test_example_proto_agrees_with_protobuf():
    pb2 = pytest.importorskip("tensorflow_datasets.proto.tf_example_generated_pb2")
    rng = np.random.default_rng(0)
    for packed in (True, False):
        ours = {
            "floats": rng.random(7, np.float32),
            "ints": np.array([0, -1, 127, 128, 2**63 - 1, -(2**63)]),
            "text": b"\xff\0",
        }
        theirs = pb2.Example.FromString(writers.example(ours, packed=packed))
        assert list(theirs.features.feature["floats"].float_list.value) == ours["floats"].tolist()
        assert list(theirs.features.feature["ints"].int64_list.value) == ours["ints"].tolist()
        found = example_proto.decode(theirs.SerializeToString())
        np.testing.assert_array_equal(found["floats"], ours["floats"])
        np.testing.assert_array_equal(found["ints"], ours["ints"])
        assert found["text"] == [b"\xff\0"]


@several
@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.floats(width=32, allow_nan=False)), st.booleans())
def test_example_proto_numbers(ints, floats, packed):
    proto = writers.example({"i": np.array(ints, np.int64), "f": np.array(floats, np.float32)}, packed=packed)
    found = example_proto.decode(proto)
    assert np.asarray(found["i"]).tolist() == ints
    assert np.asarray(found["f"]).tolist() == floats
    assert [np.asarray(found[name]).dtype for name in "if"] == [np.int64, np.float32]


def test_example_proto_skips_what_it_does_not_know():
    """Unknown fields of every wire type, groups among them; a repeated key replaces, separate parts are merged."""
    unknown = b"\x50\x01" + b"\x51" + bytes(8) + writers.field(10, b"x") + b"\x55" + bytes(4) + b"\x53\x08\x01\x54"
    values = writers.field(1, b"\x01") + b"\x08\x02" + unknown
    entry = writers.field(1, b"k") + writers.field(2, writers.field(3, values) + unknown) + unknown
    old = writers.field(1, b"k") + writers.field(2, writers.field(1, b""))
    message = writers.field(1, writers.field(1, old) + unknown) + unknown + writers.field(1, writers.field(1, entry))
    assert np.asarray(example_proto.decode(message)["k"]).tolist() == [1, 2]


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x80" * 11,
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
        b"\x02\x00",
        b"\x0b",
        b"\x0c",
        b"\x0b\x14",
        b"\x0e",
        b"\x09abc",
        b"\x0dab",
        writers.field(1, writers.field(1, writers.field(1, b"\xff"))),
        writers.field(1, writers.field(1, writers.field(1, b"k"))),
        writers.field(1, writers.field(1, writers.field(2, writers.field(2, writers.field(1, b"abc"))))),
        writers.field(1, writers.field(1, writers.field(2, writers.field(3, writers.field(1, b"\x01\x80"))))),
        writers.field(1, writers.field(1, writers.field(2, writers.field(3, writers.field(1, b"\xff" * 10 + b"\1"))))),
        writers.field(1, writers.field(1, writers.field(2, writers.field(3, writers.field(1, b"\xff" * 9 + b"\2"))))),
    ],
)
def test_example_proto_malformed(data):
    with pytest.raises(example_proto.Malformed):
        example_proto.decode(data)


# --- files of the wrong kind ---


def every_file(tmp: Path) -> dict[str, Path]:
    """One file of each kind, an empty one, a folder, and nothing."""
    rng = np.random.default_rng(0)
    digits = {"w": features("emnist", 1, rng)}
    files = {
        "hdf5": writers.hdf5(tmp / "a.h5", digits),
        "tff": writers.tff_sqlite(tmp / "a.sqlite", {"train": digits}),
        "tff_xz": writers.tff_sqlite(tmp / "a.sqlite.xz", {"train": digits}),
        "fedjax": writers.fedjax_sqlite(tmp / "b.sqlite", {b"w": digits["w"]}),
        "leaf": writers.leaf_json(tmp / "a.json", digits),
        "empty": tmp / "empty",
        "folder": tmp / "folder",
        "nothing": tmp / "nothing",
    }
    files["empty"].touch()
    files["folder"].mkdir()
    return files


READERS = {
    "hdf5": tff_hdf5.clients,
    "tff": lambda path: tff_sqlite.clients(path, "train"),
    "fedjax": fedjax_sqlite.clients,
    "leaf": leaf_json.clients,
    "words": lambda path: counts.word_count(path, 10),
    "tags": lambda path: counts.tag_count(path, 10),
    "archive": lambda path: archive.extracted(path).__enter__(),
}


@pytest.mark.parametrize("reader", READERS)
def test_wrong_kind(tmp_path, reader):
    for kind, path in every_file(tmp_path).items():
        if kind == reader or (reader in ("tff", "archive") and kind == "tff_xz"):
            continue
        with pytest.raises(StoreError) as error:
            list(READERS[reader](path))
        assert str(path) in str(error.value)
        assert "expected" in str(error.value)


@pytest.mark.parametrize(("module", "suffix"), [(tff_hdf5, "h5"), (fedjax_sqlite, "sqlite"), (leaf_json, "json")])
def test_count_of_wrong_kind(tmp_path, module, suffix):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"not that")
    if module is leaf_json:
        assert module.count(path) is None
        return
    with pytest.raises(StoreError, match="expected") as error:
        module.count(path)
    assert str(path) in str(error.value)


# --- one client is wrong: the error names it ---

GOOD = features("emnist", 2, np.random.default_rng(0))
BAD = {
    "pixels of another shape": {**GOOD, "pixels": np.zeros((2, 27, 28), np.float32)},
    "pixels that are integers": {**GOOD, "pixels": np.zeros((2, 28, 28), np.int32)},
    "pixels that are not finite": {**GOOD, "pixels": np.full((2, 28, 28), np.nan, np.float32)},
    "labels too large": {**GOOD, "label": np.array([0, 62], np.int32)},
    "labels negative": {**GOOD, "label": np.array([0, -1], np.int32)},
    "labels that are floats": {**GOOD, "label": np.zeros(2, np.float32)},
    "labels that are text": {**GOOD, "label": [b"a", b"b"]},
    "other features": {"pixels": GOOD["pixels"], "labels": GOOD["label"]},
    "a bad name": {**GOOD, "la/bel": GOOD["label"]},
}
UNEQUAL = {
    "labels of two axes": {**GOOD, "label": np.zeros((2, 2), np.int32)},
    "unequal lengths": {**GOOD, "label": np.zeros(3, np.int32)},
    "no examples": {"pixels": np.zeros((0, 28, 28), np.float32), "label": np.zeros(0, np.int32)},
    "complex numbers": {**GOOD, "pixels": np.zeros((2, 28, 28), np.complex64)},
}


def refused(read, path: Path, client: str = "bad") -> str:
    """The error of a file whose client `client` is wrong."""
    with pytest.raises(StoreError) as error:
        write_store(path.with_name("store"), read(path), {})
    assert str(path) in str(error.value)
    assert f"client {client!r}" in str(error.value)
    assert "expected" in str(error.value)
    assert not path.with_name("store").exists()
    assert not list(path.parent.glob(".*"))
    return str(error.value)


@pytest.mark.parametrize("case", [*BAD, *UNEQUAL])
def test_hdf5_client_wrong(tmp_path, case):
    bad = {**BAD, **UNEQUAL}[case]
    refused(tff_hdf5.clients, writers.hdf5(tmp_path / "a.h5", {"a": GOOD, "bad": bad}))


@pytest.mark.parametrize("case", BAD)
def test_tff_sqlite_client_wrong(tmp_path, case):
    path = writers.tff_sqlite(tmp_path / "a.sqlite.xz", {"train": {"a": GOOD, "bad": BAD[case]}})
    message = refused(READERS["tff"], path)
    assert "lur-" not in message


@pytest.mark.parametrize("case", [*BAD, *UNEQUAL])
def test_fedjax_client_wrong(tmp_path, case):
    bad = {**BAD, **UNEQUAL}[case]
    refused(fedjax_sqlite.clients, writers.fedjax_sqlite(tmp_path / "a.sqlite", {b"a": GOOD, b"bad": bad}))


def test_tff_sqlite_image_range(tmp_path):
    image = {"image": np.full((1, 32, 32, 3), 256), "label": np.zeros(1, int), "coarse_label": np.zeros(1, int)}
    assert "0..255" in refused(READERS["tff"], writers.tff_sqlite(tmp_path / "a.sqlite", {"train": {"bad": image}}))


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
def test_tff_sqlite_tables_disagree(tmp_path, change, what):
    path = writers.tff_sqlite(tmp_path / "a.sqlite", {"train": {"a": GOOD, "bad": GOOD, "c": GOOD}})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)
    assert what in refused(READERS["tff"], path)


def test_tff_sqlite_unknown_split(tmp_path):
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
def test_tff_sqlite_must_have_tables(tmp_path, sql):
    path = writers.tff_sqlite(tmp_path / "a.sqlite", {"train": {"a": GOOD}})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(sql)
    with pytest.raises(StoreError, match="expected") as error:
        list(tff_sqlite.clients(path, "train"))
    assert str(path) in str(error.value)


def array(shape, dtype, data) -> msgpack.ExtType:
    """FedJAX's array, sound or not."""
    return writers.extension(1, (shape, dtype, data))


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 1),
        (b"\xc1", 1),
        (b"\x80", 0),
        (b"\xdf\xff\xff\xff\xff", 1),
        (writers.packed([1]), 1),
        (writers.packed({"v": 1}), 1),
        (writers.packed({1: array([1], "int8", b"a")}), 1),
        (writers.packed({"v": array([1], "int8", b"a")}) + b"\0", 1),
        (writers.packed({"v": array([1], "int8", b"a")}), 2),
        (writers.packed({"v": array([2], "int8", b"a")}), 2),
        (writers.packed({"v": array([-1], "int8", b"a")}), 1),
        (writers.packed({"v": array([], "int8", b"a")}), 1),
        (writers.packed({"v": array([1] * 9, "int8", b"a")}), 1),
        (writers.packed({"v": array([0, 2**63, 2**63], "int8", b"")}), 0),
        (writers.packed({"v": array([1], "object", b"a" * 8)}), 1),
        (writers.packed({"v": array([1], "V1", b"a")}), 1),
        (writers.packed({"v": array([1], "bool", b"\2")}), 1),
        (writers.packed({"v": array([1], "int8", "a")}), 1),
        (writers.packed({"v": msgpack.ExtType(2, b"")}), 1),
        (writers.packed({"v": writers.extension(4, ((2,), [b"a"]))}), 1),
        (writers.packed({"v": writers.extension(4, ((1,), ["a"]))}), 1),
        (writers.packed({"v": writers.extension(4, ((1, 2), [b"a"]))}), 1),
        (b"\x82" + 2 * writers.packed({"v": array([1], "int8", b"a")})[1:], 1),
        (b"\x81" * 100000, 1),
        (b"\x91" * 100000, 1),
    ],
)
def test_fedjax_data_wrong(tmp_path, data, count):
    path = writers.fedjax_rows(tmp_path / "a.sqlite", [(b"bad", zlib.compress(data), count)])
    refused(fedjax_sqlite.clients, path)


@pytest.mark.parametrize("data", [b"", b"no zlib", zlib.compress(b"\x80")[:-1], zlib.compress(b"\x80") + b"x", 5, "x"])
def test_fedjax_compression_wrong(tmp_path, data):
    refused(fedjax_sqlite.clients, writers.fedjax_rows(tmp_path / "a.sqlite", [(b"bad", data, 1)]))


PIXEL = [0.5] * 784
LEAF = {
    "nan": ("[NaN]", "finite"),
    "infinity": ("[-Infinity]", "finite"),
    "too large": (json.dumps([[1e39, *PIXEL[1:]]]), "finite"),
    "overflow": (json.dumps([PIXEL]).replace("0.5", "1e999", 1), "finite"),
    "huge integer": ("[" + "9" * 5000 + "]", "JSON"),
    "large integer": (json.dumps([[10**400, *PIXEL[1:]]]), "numbers"),
    "deep": ("[" * 100000, "JSON"),
    "deep and closed": ("[" * 900 + "]" * 900, "numbers"),
    "short": (json.dumps([PIXEL[1:]]), "784"),
    "unequal": (json.dumps([PIXEL, [0.5]]), "equally"),
    "text among numbers": (json.dumps([["0.5", *PIXEL[1:]]]), "numbers"),
    "short text": ('["abc"]', "80 characters"),
    "text and numbers": (json.dumps(["a" * 80, PIXEL]), "equally"),
    "surrogates": (json.dumps(["\ud800" * 80]), "Unicode"),
    "no list": ("{}", "lists"),
    "empty": ("[]", "lists"),
    "cut": ("[[0.5", "JSON"),
}


@pytest.mark.parametrize("case", LEAF)
def test_leaf_user_wrong(tmp_path, case):
    x, what = LEAF[case]
    y = '["a"]' if case in ("short text", "surrogates") else "[0, 1]" if case == "unequal" else "[0]"
    path = tmp_path / "a.json"
    path.write_text(f'{{"users": ["bad"], "num_samples": [1], "user_data": {{"bad": {{"x": {x}, "y": {y}}}}}}}')
    with pytest.raises(StoreError) as error:
        list(leaf_json.clients(path))
    assert str(path) in str(error.value)
    assert what in str(error.value) or "lists x and y" in str(error.value)
    assert "client 'bad'" in str(error.value)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"num_samples": [2]}, "expected 2 examples"),
        ({"num_samples": [True]}, "expected True examples"),
        ({"num_samples": [1, 1]}, "as many `num_samples`"),
        ({"num_samples": None}, "as many `num_samples`"),
        ({"users": ["b"]}, "its examples"),
        ({"users": [1]}, "list of names"),
        ({"users": ["a", "a"], "num_samples": [1, 1]}, "2 different users"),
        ({"users": [], "num_samples": []}, "0 different users"),
        ({"user_data": []}, "expected '{'"),
        ({"user_data": {"a": {"x": [PIXEL], "y": [62]}}}, "labels 0..61"),
        ({"user_data": {"a": {"x": [PIXEL], "y": [0.5]}}}, "integers"),
        ({"user_data": {"a": {"x": [PIXEL], "y": [None]}}}, "numbers"),
    ],
)
def test_leaf_file_wrong(tmp_path, change, what):
    path = tmp_path / "a.json"
    sound = {"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [PIXEL], "y": [0]}}}
    path.write_text(json.dumps(sound | change))
    with pytest.raises(StoreError, match="expected") as error:
        list(leaf_json.clients(path))
    assert str(path) in str(error.value)
    assert what in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"users": []} x', '{"users": [], "users": []}', '{"a" 1}', "{1: 2}"])
def test_leaf_not_leaf(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(StoreError, match=r"a\.json: expected"):
        list(leaf_json.clients(tmp_path))


def test_leaf_user_twice(tmp_path):
    """In two files, and in one."""
    one = {"bad": features("leaf", 1, np.random.default_rng(0))}
    for i in (0, 1):
        writers.leaf_json(tmp_path / f"all_data_{i}.json", one)
    with pytest.raises(StoreError, match=r"client 'bad': expected each client once"):
        list(leaf_json.clients(tmp_path))
    user = json.dumps({"x": ["a" * 80], "y": ["b"]})
    path = tmp_path / "b.json"
    path.write_text(f'{{"users": ["bad"], "num_samples": [1], "user_data": {{"bad": {user}, "bad": {user}}}}}')
    with pytest.raises(StoreError, match=r"client 'bad': expected each user once"):
        list(leaf_json.clients(path))


# --- HDF5 that points elsewhere, crashes, stalls ---


def test_hdf5_elsewhere(tmp_path):
    """Links, virtual datasets and external storage could make us read other files."""
    other = writers.hdf5(tmp_path / "other.h5", {"bad": GOOD})
    (tmp_path / "raw").write_bytes(bytes(8))

    def virtual(group: h5py.Group) -> None:
        layout = h5py.VirtualLayout((2, 28, 28), np.float32)
        layout[:] = h5py.VirtualSource(str(other), "examples/bad/pixels", (2, 28, 28))
        group.create_virtual_dataset("pixels", layout)

    cases = {
        "external link": lambda group: group.__setitem__(
            "pixels", h5py.ExternalLink(str(other), "examples/bad/pixels")
        ),
        "soft link": lambda group: group.__setitem__("pixels", h5py.SoftLink("/examples/a/pixels")),
        "virtual": virtual,
        "external": lambda group: group.create_dataset(
            "pixels", (2,), np.int32, external=[(str(tmp_path / "raw"), 0, 8)]
        ),
    }
    for name, make in cases.items():
        path = writers.hdf5(tmp_path / f"{name}.h5", {"a": GOOD, "bad": {"label": GOOD["label"]}})
        with h5py.File(path, "a") as file:
            make(file.require_group("examples/bad"))
        message = refused(tff_hdf5.clients, path)
        assert "link" in message or "elsewhere" in message, message
    path = tmp_path / "top.h5"
    with h5py.File(path, "w") as file:
        file["examples"] = h5py.ExternalLink(str(other), "examples")
    with pytest.raises(StoreError, match="expected no links"):
        list(tff_hdf5.clients(path))


@pytest.mark.parametrize(
    "dtype", [np.dtype([("a", "i4")]), h5py.vlen_dtype(np.int32), h5py.ref_dtype, np.dtype("V4"), np.dtype("f2,i1")]
)
def test_hdf5_other_types(tmp_path, dtype):
    path = writers.hdf5(tmp_path / "a.h5", {"bad": {}})
    with h5py.File(path, "a") as file:
        file.require_group("examples/bad").create_dataset("v", (2,), dtype)
    refused(tff_hdf5.clients, path)


@pytest.mark.parametrize("code", ["os.kill(os.getpid(), 11)", "time.sleep(60)", "pass", "sys.stdout.write('x' * 100)"])
def test_hdf5_child_fails(tmp_path, monkeypatch, code):
    """However the child ends, the import ends with a StoreError."""
    child = tmp_path / "child.py"
    child.write_text(f"import os, sys, time\n{code}\n")
    monkeypatch.setattr(tff_hdf5, "CHILD", child)
    path = writers.hdf5(tmp_path / "a.h5", {"a": GOOD})
    for read in (tff_hdf5.count, lambda path, timeout: list(tff_hdf5.clients(path, timeout=timeout))):
        with pytest.raises(StoreError, match="expected"):
            read(path, timeout=1)


def test_abandoned_imports_leave_nothing(tmp_path, monkeypatch):
    """A generator closed early takes its child process and its temporary files with it."""
    started = []

    class Recorded(tff_hdf5.subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            started.append(self)

    monkeypatch.setattr(tff_hdf5.subprocess, "Popen", Recorded)
    reading = tff_hdf5.clients(writers.hdf5(tmp_path / "a.h5", {id: GOOD for id in "abc"}))
    assert next(reading)[0] == "a"
    reading.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert started[0].returncode is not None
    path = writers.tff_sqlite(tmp_path / "a.sqlite.xz", {"train": {id: GOOD for id in "abc"}})
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    reading = tff_sqlite.clients(path, "train")
    assert next(reading)[0] == "a"
    assert list((tmp_path / "temporary").iterdir())
    reading.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert not list((tmp_path / "temporary").iterdir())


# --- bombs ---


@contextmanager
def little_memory(most: int = 2**25):
    """The block allocates at most so much at any time."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most, f"{peak} bytes"


def deflated_zeros(blocks: int) -> bytes:
    """A zlib stream of so many times 16 MiB of zeros, made without having them."""
    deflate = zlib.compressobj(9, wbits=-15)
    block = deflate.compress(bytes(2**24)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return b"\x78\x9c" + block * blocks + deflate.flush() + bytes(4)


@pytest.mark.parametrize("name", ["a.gz", "a.bz2", "a.xz", "a.lzma", "a.tar.gz", "a.tar", "a.zip"])
def test_archive_bomb(tmp_path, name):
    path, zeros = tmp_path / name, bytes(2**26)
    member = tarfile.TarInfo("zeros")
    member.size = len(zeros)
    match name:
        case "a.gz":
            path.write_bytes(gzip.compress(zeros, 1))
        case "a.bz2":
            path.write_bytes(bz2.compress(zeros, 1))
        case "a.xz":
            path.write_bytes(lzma.compress(zeros, preset=0))
        case "a.lzma":
            path.write_bytes(lzma.compress(zeros, lzma.FORMAT_ALONE, preset=0))
        case "a.zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
                out.writestr("zeros", zeros)
        case _:
            with tarfile.open(path, "w:gz" if name.endswith("gz") else "w") as out:
                out.addfile(member, io.BytesIO(zeros))
    del zeros
    with (
        little_memory(),
        pytest.raises(StoreError, match="at most 1000000 bytes"),
        archive.extracted(path, limit=10**6),
    ):
        pass


def test_tar_header_bomb(tmp_path):
    """A header whose text would fill the memory: tarfile reads it whole."""
    path = tmp_path / "a.tar.gz"
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, 2**27
    with gzip.GzipFile(path, "wb", 1) as out:
        out.write(header.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(8):
            out.write(bytes(2**24))
    with little_memory(), pytest.raises(StoreError, match="header"), archive.extracted(path):
        pass


def test_xz_of_too_much_memory(tmp_path):
    path = tmp_path / "a.xz"
    path.write_bytes(lzma.compress(b"x", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 2**29}]))
    with pytest.raises(StoreError, match="sound archive"), archive.extracted(path):
        pass


def test_sqlite_lzma_bomb(tmp_path):
    path = tmp_path / "a.sqlite.lzma"
    path.write_bytes(lzma.compress(bytes(2**26), preset=0))
    with little_memory(), pytest.raises(StoreError, match="at most"):
        list(tff_sqlite.clients(path, "train", unpacked_limit=10**6))


def test_no_space_left(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "SPARE", 2**60)
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"x"))
    with pytest.raises(StoreError, match="free bytes"), archive.extracted(path):
        pass


def test_fedjax_bomb(tmp_path):
    """Zeros without end, and texts of which each byte makes an object."""
    path = writers.fedjax_rows(tmp_path / "a.sqlite", [(b"bad", deflated_zeros(64), 1)])
    with little_memory(), pytest.raises(StoreError, match=r"client 'bad'.*at most"):
        list(fedjax_sqlite.clients(path, limit=2**23))
    many = writers.packed({"v": writers.extension(4, ((10**6,), [b""] * 10**6))})
    path = writers.fedjax_rows(tmp_path / "b.sqlite", [(b"bad", zlib.compress(many), 10**6)])
    with little_memory(), pytest.raises(StoreError, match=r"client 'bad'.*at most"):
        list(fedjax_sqlite.clients(path, limit=2**23))


def test_tff_sqlite_client_too_large(tmp_path):
    path = writers.tff_sqlite(tmp_path / "a.sqlite", {"train": {"bad": {"v": [b"x" * 1000] * 100}}})
    with pytest.raises(StoreError, match=r"client 'bad'.*at most 50000 bytes"):
        list(tff_sqlite.clients(path, "train", limit=50000))


def test_hdf5_bomb(tmp_path):
    """Large shapes that take no space, chunks that inflate to more than they say: a bounded child, and little here."""
    rss = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    zeros = {"bad": {"v": np.zeros(2**24, np.uint8)}}
    huge = {"shape": (2**40,), "dtype": np.uint8, "chunks": (2**10,), "compression": "gzip"}
    wide = {"shape": (1,), "maxshape": (None,), "dtype": np.uint8, "chunks": (2**31,), "compression": "gzip"}
    paths = [writers.hdf5(tmp_path / "a.h5", zeros, chunks=True, compression="gzip")]
    for name, options in (("b", huge), ("c", wide), ("d", huge | {"shape": (2**10,)})):
        paths.append(writers.hdf5(tmp_path / f"{name}.h5", {"bad": {}}))
        with h5py.File(paths[-1], "a") as file:
            dataset = file.require_group("examples/bad").create_dataset("v", **options)
            if name == "d":
                dataset.id.write_direct_chunk((0,), deflated_zeros(256))
    with little_memory():
        for path in paths:
            refused(lambda path: tff_hdf5.clients(path, limit=2**20), path)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < max(rss + 1, 1.2 * 2**20)


def test_hdf5_text_bomb(tmp_path):
    """Many rows that are one and the same long text in the file."""
    path = writers.hdf5(tmp_path / "a.h5", {"bad": {"v": [b"x" * 10**5] * 100}})
    refused(lambda path: tff_hdf5.clients(path, limit=10**6), path)


# --- archives ---


def test_archive_round_trip(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    content = os.urandom(2**20 + 1)
    for suffix in ("tar", "tar.gz", "tgz", "tar.bz2", "tar.xz", "zip"):
        path = tmp_path / f"a.b.{suffix}"
        if suffix == "zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
                out.writestr("folder/", b"")
                out.writestr("folder/a", content)
                out.writestr("b", b"")
        else:
            kind = {"tar": "", "tgz": "gz"}.get(suffix, suffix.rpartition(".")[2])
            with tarfile.open(path, cast(Any, f"w:{kind}")) as out:
                directory = tarfile.TarInfo("folder")
                directory.type = tarfile.DIRTYPE
                out.addfile(directory)
                for name, data in (("folder/a", content), ("b", b"")):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    out.addfile(member, io.BytesIO(data))
        with archive.extracted(path) as found:
            assert (found / "folder" / "a").read_bytes() == content
            assert (found / "b").read_bytes() == b""
        assert not list((tmp_path / "temporary").iterdir())


def test_single_files(tmp_path):
    """Also streams end to end, and an xz stream followed by padding."""
    content = os.urandom(2**18) + bytes(2**21)
    half = len(content) // 2
    for suffix, compress in ((".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)):
        path = tmp_path / f"a.word_count{suffix}"
        for data in (compress(content), compress(content[:half]) + compress(content[half:])):
            path.write_bytes(data + (bytes(8) if suffix == ".xz" else b""))
            with archive.extracted(path) as found:
                assert [file.name for file in found.iterdir()] == ["a.word_count"]
                assert (found / "a.word_count").read_bytes() == content
        for data in (compress(content)[:-1], compress(content) + b"garbage", b""):
            path.write_bytes(data)
            with pytest.raises(StoreError, match="expected"), archive.extracted(path):
                pass


def evil(name: str, **attributes) -> tarfile.TarInfo:
    """A member of a tar archive as it should not be."""
    member = tarfile.TarInfo(name)
    for key, value in attributes.items():
        setattr(member, key, value)
    return member


@pytest.mark.parametrize(
    "members",
    [
        [evil("/absolute")],
        [evil("../up")],
        [evil("a/../../up")],
        [evil("c:\\windows")],
        [evil("a\\..\\b")],
        [evil("line\nbreak")],
        [evil("link", type=tarfile.SYMTYPE, linkname="/etc/passwd")],
        [evil("a"), evil("link", type=tarfile.LNKTYPE, linkname="a")],
        [evil("device", type=tarfile.CHRTYPE)],
        [evil("pipe", type=tarfile.FIFOTYPE)],
        [evil("a"), evil("a")],
        [evil("a"), evil("./a")],
        [evil("a"), evil("a/b")],
        [evil("a/b"), evil("a")],
        [evil("n" * 300)],
        [],
    ],
)
def test_evil_tar(tmp_path, members):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as out:
        for member in members:
            out.addfile(member, io.BytesIO())
    with pytest.raises(StoreError, match="expected") as error, archive.extracted(path):
        pass
    assert str(path) in str(error.value)
    assert [file.name for file in tmp_path.iterdir()] == ["a.tar"]


@pytest.mark.parametrize("name", ["/absolute", "../up", "a/../../up", "link", "twice", "encrypted"])
def test_evil_zip(tmp_path, name):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as out:
        member = zipfile.ZipInfo(name)
        if name == "link":
            member.external_attr = (stat.S_IFLNK | 0o777) << 16
        out.writestr(member, b"/etc/passwd")
        if name == "twice":
            out.writestr("./twice", b"again")
    if name == "encrypted":
        data = bytearray(path.read_bytes())
        data[data.index(b"PK\1\2") + 8] |= 1
        path.write_bytes(data)
    with pytest.raises(StoreError, match="expected") as error, archive.extracted(path):
        pass
    assert str(path) in str(error.value)


# --- counts ---


def test_word_count(tmp_path):
    path = tmp_path / "stackoverflow.word_count"
    path.write_text("the 10\nb 30\nc\t20\n")
    assert counts.word_count(path, 2) == ["the", "b"]
    assert counts.word_count(path, 3) == ["the", "b", "c"]
    with pytest.raises(StoreError, match="expected 4 words, found 3"):
        counts.word_count(path, 4)


@pytest.mark.parametrize("line", ["", "word", "word x", "word -1", "a b 1", "the 10", "x" * 5000 + " 1", "\udcff 1"])
def test_word_count_wrong(tmp_path, line):
    path = tmp_path / "words"
    path.write_text(f"the 10\n{line}\nc 1\n", errors="surrogateescape")
    with pytest.raises(StoreError, match="words, line 2: expected"):
        counts.word_count(path, 3)


def test_tag_count(tmp_path):
    path = tmp_path / "stackoverflow.tag_count"
    path.write_text('{"a": 1, "b": 3, "c": 1, "d": 3, "e": 2}')
    assert counts.tag_count(path, 4) == ["b", "d", "e", "a"]
    with pytest.raises(StoreError, match="expected 6 tags, found 5"):
        counts.tag_count(path, 6)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        "[" * 10**5,
        '{"a": ' + "9" * 5000 + "}",
        '{"a": 1',
        '{"a": true}',
        '{"a": 1.5}',
        '{"a": -1}',
        '{"a": {}}',
        '{"a": NaN}',
        '{"a":1,"a":2}',
    ],
)
def test_tag_count_wrong(tmp_path, text):
    path = tmp_path / "tags"
    path.write_text(text)
    with pytest.raises(StoreError, match=r"tags.*expected"):
        counts.tag_count(path, 1)
