"""FedJAX's SQLite: round trips, faulty clients, malformed msgpack, bombs."""

import zlib

import msgpack
import numpy as np
import pytest
from hypothesis import given

from lur.data.readers import fedjax_sqlite
from lur.data.store import StoreError
from tests.lur.data.readers import writers
from tests.lur.data.readers.clients import (
    BAD,
    DATASETS,
    GOOD,
    IDS,
    UNEQUAL,
    assert_imported,
    bounded_memory,
    deflated_zeros,
    random_clients,
    refusal,
    several,
    temporary_folder,
)


@several
@given(random_clients(*DATASETS, ids=IDS))
def test_round_trip(clients):
    with temporary_folder() as tmp:
        path = writers.fedjax_sqlite(tmp / "a.sqlite", {id.encode(): value for id, value in clients.items()})
        assert fedjax_sqlite.count(path) == len(clients)
        assert_imported(tmp / "store", fedjax_sqlite.clients(path), clients)


def test_ids_that_are_not_utf8_are_escaped(tmp_path):
    path = writers.fedjax_sqlite(tmp_path / "a.sqlite", {b"\xff:f0001_01": {"v": np.zeros(1, np.int32)}})
    assert [id for id, _ in fedjax_sqlite.clients(path)] == ["\\xff:f0001_01"]
    same = {b"\xff": {"v": np.zeros(1, np.int32)}, b"\\xff": {"v": np.zeros(1, np.int32)}}
    with pytest.raises(StoreError, match="twice"):
        list(fedjax_sqlite.clients(writers.fedjax_sqlite(tmp_path / "b.sqlite", same)))


@pytest.mark.parametrize("case", [*BAD, *UNEQUAL])
def test_a_faulty_client_is_named(tmp_path, case):
    bad = {**BAD, **UNEQUAL}[case]
    refusal(fedjax_sqlite.clients, writers.fedjax_sqlite(tmp_path / "a.sqlite", {b"a": GOOD, b"bad": bad}))


def array(shape, dtype, data) -> msgpack.ExtType:
    """Return an array in FedJAX's encoding, valid or not."""
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
def test_malformed_msgpack_is_refused(tmp_path, data, count):
    path = writers.fedjax_rows(tmp_path / "a.sqlite", [(b"bad", zlib.compress(data), count)])
    refusal(fedjax_sqlite.clients, path)


@pytest.mark.parametrize("data", [b"", b"no zlib", zlib.compress(b"\x80")[:-1], zlib.compress(b"\x80") + b"x", 5, "x"])
def test_malformed_compression_is_refused(tmp_path, data):
    refusal(fedjax_sqlite.clients, writers.fedjax_rows(tmp_path / "a.sqlite", [(b"bad", data, 1)]))


def test_bombs_are_refused_in_bounded_memory(tmp_path):
    """Gigabytes of zeros, and a text object for each byte."""
    path = writers.fedjax_rows(tmp_path / "a.sqlite", [(b"bad", deflated_zeros(64), 1)])
    with bounded_memory(), pytest.raises(StoreError, match=r"client 'bad'.*at most"):
        list(fedjax_sqlite.clients(path, limit=2**23))
    many = writers.packed({"v": writers.extension(4, ((10**6,), [b""] * 10**6))})
    path = writers.fedjax_rows(tmp_path / "b.sqlite", [(b"bad", zlib.compress(many), 10**6)])
    with bounded_memory(), pytest.raises(StoreError, match=r"client 'bad'.*at most"):
        list(fedjax_sqlite.clients(path, limit=2**23))
