"""TensorFlow Federated's HDF5: round trips, faulty clients, files that point elsewhere, crashes and bombs."""

import resource

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lur.data.readers import tff_hdf5
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
    few,
    random_clients,
    random_features,
    refusal,
    sorted_by_id,
    temporary_folder,
)

HDF5_IDS = IDS.filter(lambda id: "/" not in id and "\0" not in id and id.strip("."))


@few
@given(random_clients(*DATASETS, ids=HDF5_IDS), st.sampled_from(["bytes", "str", "chunked", "latest"]))
def test_round_trip(clients, form):
    with temporary_folder() as tmp:
        options = {"chunks": True, "compression": "gzip"} if form == "chunked" else {}
        libver = "latest" if form == "latest" else "earliest"
        text = form if form == "str" else "bytes"
        path = writers.hdf5(tmp / "a.h5", clients, text=text, libver=libver, **options)
        assert tff_hdf5.count(path) == len(clients)
        assert_imported(tmp / "store", tff_hdf5.clients(path), sorted_by_id(clients))


def test_labels_and_strings_as_published(tmp_path):
    """Labels (n, 1) of int64, strings of fixed length, unsorted ids and features."""
    rng = np.random.default_rng(0)
    clients = {id: random_features("cifar100", 3, rng) for id in ("9", "10")}
    stored = {
        id: {k: np.asarray(v)[:, None] if k != "image" else v for k, v in value.items()}
        for id, value in clients.items()
    }
    assert_imported(tmp_path / "a", tff_hdf5.clients(writers.hdf5(tmp_path / "a.h5", stored)), sorted_by_id(clients))
    text = {"r": {"snippets": [b"one", b"three"]}}
    path = writers.hdf5(tmp_path / "b.h5", text, text="fixed")
    assert_imported(tmp_path / "b", tff_hdf5.clients(path), text)


@pytest.mark.parametrize("case", [*BAD, *UNEQUAL])
def test_a_faulty_client_is_named(tmp_path, case):
    bad = {**BAD, **UNEQUAL}[case]
    refusal(tff_hdf5.clients, writers.hdf5(tmp_path / "a.h5", {"a": GOOD, "bad": bad}))


def test_data_in_other_files_are_refused(tmp_path):
    """Links, virtual datasets and external storage point to other files."""
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
        message = refusal(tff_hdf5.clients, path)
        assert "link" in message or "elsewhere" in message, message
    path = tmp_path / "top.h5"
    with h5py.File(path, "w") as file:
        file["examples"] = h5py.ExternalLink(str(other), "examples")
    with pytest.raises(StoreError, match="expected no links"):
        list(tff_hdf5.clients(path))


@pytest.mark.parametrize(
    "dtype", [np.dtype([("a", "i4")]), h5py.vlen_dtype(np.int32), h5py.ref_dtype, np.dtype("V4"), np.dtype("f2,i1")]
)
def test_other_types_are_refused(tmp_path, dtype):
    path = writers.hdf5(tmp_path / "a.h5", {"bad": {}})
    with h5py.File(path, "a") as file:
        file.require_group("examples/bad").create_dataset("v", (2,), dtype)
    refusal(tff_hdf5.clients, path)


@pytest.mark.parametrize("code", ["os.kill(os.getpid(), 11)", "time.sleep(60)", "pass", "sys.stdout.write('x' * 100)"])
def test_a_failing_child_process_is_a_store_error(tmp_path, monkeypatch, code):
    """A crash, a timeout, an early end and a malformed header each raise a StoreError."""
    child = tmp_path / "child.py"
    child.write_text(f"import os, sys, time\n{code}\n")
    monkeypatch.setattr(tff_hdf5, "CHILD_PROGRAM", child)
    path = writers.hdf5(tmp_path / "a.h5", {"a": GOOD})
    for read in (tff_hdf5.count, lambda path, timeout: list(tff_hdf5.clients(path, timeout=timeout))):
        with pytest.raises(StoreError, match="expected"):
            read(path, timeout=1)


def test_an_abandoned_import_ends_its_child_process(tmp_path, monkeypatch):
    """A generator closed early ends the child process."""
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


def test_bombs_are_refused_in_bounded_memory(tmp_path):
    """Large shapes that take no space and chunks that inflate beyond their size need bounded memory."""
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
    with bounded_memory():
        for path in paths:
            refusal(lambda path: tff_hdf5.clients(path, limit=2**20), path)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < max(rss + 1, 1.2 * 2**20)


def test_a_text_bomb_is_refused(tmp_path):
    """Many rows that share one long text in the file."""
    path = writers.hdf5(tmp_path / "a.h5", {"bad": {"v": [b"x" * 10**5] * 100}})
    refusal(lambda path: tff_hdf5.clients(path, limit=10**6), path)
