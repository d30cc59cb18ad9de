"""A store is what its bytes are: its digest, its checksums, and what is prepared from it."""

import json
import os
from typing import Any

import numpy as np
import pytest

from lur.data import file_facts
from lur.data.ragged import Ragged, from_rows
from lur.data.store import StoreError, open_store
from lur.data.store_cache import digest
from lur.data.writer import in_memory, write_store
from lur.tasks.built_in import prepared_store


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LUR_CACHE", str(tmp_path / "cache"))


def written(path, value=1.0) -> Any:
    bag = from_rows([np.array([1, 2], np.int32), np.array([3], np.int32), np.zeros(0, np.int32)], np.int32)
    return write_store(
        path,
        [
            (f"c{i}", {"x": np.full((3, 2), value + i, np.float32), "bag": bag, "text": [b"a", b"bc", b""]})
            for i in (0, 1)
        ],
        {"source": "here"},
    )


def edit_manifest(store, change, *, sealed=True):
    """Change the manifest; unless `sealed`, without any checksum, as a stranger's store may be."""
    file = store.path / "manifest.json"
    manifest = json.loads(file.read_text())
    if not sealed:
        manifest.pop("sha256", None)
        manifest.pop("manifest_sha256", None)
    change(manifest)
    file.write_text(json.dumps(manifest))


def flip(path, at=0):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_overwritten_bytes_are_refused(tmp_path):
    store = written(tmp_path / "s")
    flip(store.path / "x.bin")
    with pytest.raises(StoreError, match=r"x\.bin: expected SHA-256"):
        open_store(store.path)


def test_the_digest_is_that_of_the_bytes(tmp_path):
    good, bad = written(tmp_path / "good"), written(tmp_path / "bad")
    assert digest(good) == digest(bad)
    flip(bad.path / "x.bin")
    assert digest(good) != digest(bad)


def test_the_digest_depends_on_the_dtype(tmp_path):
    good, bad = written(tmp_path / "good"), written(tmp_path / "bad")
    edit_manifest(bad, lambda manifest: manifest["features"]["x"].update(dtype="int32"), sealed=False)
    assert digest(open_store(bad.path)) != digest(good)


def test_a_damaged_store_does_not_poison_the_cache(tmp_path):
    good, bad = written(tmp_path / "good"), written(tmp_path / "bad")
    flip(bad.path / "x.bin", 3)

    def prepare(store):
        return ((id, {"x": examples["x"]}) for id, examples in store.items())

    prepared_store("a_task", bad, prepare)
    np.testing.assert_array_equal(prepared_store("a_task", good, prepare).features["x"], good.features["x"])


def test_a_cached_store_that_has_changed_is_refused(tmp_path):
    good = written(tmp_path / "good")
    prepared = prepared_store("a_task", good, lambda store: store.items())
    assert prepared.path is not None
    flip(prepared.path / "x.bin")
    with pytest.raises(StoreError, match="delete"):
        prepared_store("a_task", good, lambda store: store.items())


def test_the_digest_of_a_file_is_computed_once_per_change(tmp_path, monkeypatch):
    """The file's size, times, inode and device are the shortcut; restored times do not hide a change."""
    monkeypatch.setattr(file_facts, "SETTLED_SECONDS", -1.0)
    store = written(tmp_path / "s")
    file = store.path / "x.bin"
    before = digest(store)
    reads = []
    monkeypatch.setattr(file_facts.hashlib, "file_digest", lambda *arguments: reads.append(arguments))
    assert digest(store) == before
    assert not reads
    monkeypatch.undo()
    monkeypatch.setenv("LUR_CACHE", str(tmp_path / "cache"))
    times = file.stat()
    flip(file)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert digest(store) != before


def test_a_file_that_has_just_changed_is_not_kept(tmp_path):
    digest(written(tmp_path / "s"))
    assert not list((tmp_path / "cache").rglob("facts/*"))


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"value": "0", "check": "1"}', b"[" * 10_000])
def test_a_damaged_entry_of_the_cache_is_computed_again(tmp_path, monkeypatch, damage):
    monkeypatch.setattr(file_facts, "SETTLED_SECONDS", -1.0)
    store = written(tmp_path / "s")
    before = digest(store)
    entries = list((tmp_path / "cache" / "facts").iterdir())
    assert entries
    for entry in entries:
        entry.write_bytes(damage)
    assert digest(store) == before


def set_offsets(store, name, offsets):
    np.array(offsets, "<i8").tofile(store.path / f"{name}.offsets.bin")


@pytest.mark.parametrize("name", ["bag", "text"])
@pytest.mark.parametrize(
    "inner",
    [[2, 1, 3, 4, 4], [-1, 3, 3, 3, 3], [2, 99, 3, 4, 5], [2**62, -(2**63), -(2**62), 0, 1]],
    ids=["falling", "negative", "too large", "falling by overflow"],
)
def test_inner_offsets_that_fall_are_refused(tmp_path, name, inner):
    store = written(tmp_path / "s")
    set_offsets(store, name, [0, *inner, 6])
    edit_manifest(store, lambda manifest: None, sealed=False)
    with pytest.raises(StoreError, match=rf"{name}\.offsets\.bin: expected offsets that never fall"):
        open_store(store.path)


def test_offsets_of_clients_that_overflow_are_refused(tmp_path):
    examples = {"x": np.zeros(1)}
    store: Any = write_store(tmp_path / "s", [(str(i), examples) for i in range(4)], {})
    np.array([0, 2**62, -(2**63), -(2**62), 4], "<i8").tofile(store.path / "offsets.bin")
    edit_manifest(store, lambda manifest: None, sealed=False)
    with pytest.raises(StoreError, match="rise from 0 to 4"):
        open_store(store.path)


@pytest.mark.parametrize("width", [0, 1, 7, 2**40])
def test_a_lying_width_is_refused(tmp_path, width):
    store = written(tmp_path / "s")
    edit_manifest(store, lambda manifest: manifest["features"]["bag"].update(width=width), sealed=False)
    with pytest.raises(StoreError, match=f"expected the width of bag to be 2, its longest row, found {width}"):
        open_store(store.path)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["features"]["x"].update(dtype="int32"),
        lambda manifest: manifest["features"]["bag"].update(width=7),
        lambda manifest: manifest["about"].update(source="elsewhere"),
        lambda manifest: manifest["sha256"].pop("x.bin"),
        lambda manifest: manifest.pop("sha256"),
    ],
    ids=["dtype", "width", "provenance", "one checksum", "all checksums"],
)
def test_an_edited_manifest_is_refused(tmp_path, change):
    store = written(tmp_path / "s")
    edit_manifest(store, change)
    with pytest.raises(StoreError, match=r"manifest\.json"):
        open_store(store.path)


def test_checksums_of_some_files_only_are_refused(tmp_path):
    store = written(tmp_path / "s")

    def change(manifest):
        manifest["sha256"].pop("x.bin")
        manifest.pop("manifest_sha256", None)

    edit_manifest(store, change)
    with pytest.raises(StoreError, match=r"expected a checksum of every file, found none of x\.bin"):
        open_store(store.path)


@pytest.mark.parametrize(("ids", "says"), [(b"c0c0", "'c0' twice"), (b"c0c\xff", "UTF-8")])
def test_ids_that_are_repeated_or_no_text_are_refused(tmp_path, ids, says):
    store = written(tmp_path / "s")
    (store.path / "ids.bin").write_bytes(ids)
    edit_manifest(store, lambda manifest: None, sealed=False)
    with pytest.raises(StoreError, match=says):
        open_store(store.path)


def test_booleans_are_0_or_1(tmp_path):
    store: Any = write_store(tmp_path / "s", [("a", {"x": np.array([True, False])})], {})
    (store.path / "x.bin").write_bytes(b"\2\0")
    edit_manifest(store, lambda manifest: None, sealed=False)
    with pytest.raises(StoreError, match=r"x\.bin: expected booleans"):
        open_store(store.path)


@pytest.mark.parametrize("shape", [[2**47, 2**47, 0], [0] * 100, [1] * 100])
def test_shapes_that_no_array_can_have_are_refused(tmp_path, shape):
    store = written(tmp_path / "s")
    edit_manifest(store, lambda manifest: manifest["features"]["x"].update(shape=shape), sealed=False)
    with pytest.raises(StoreError, match="shape"):
        open_store(store.path)


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
@pytest.mark.parametrize("file", ["manifest.json", "x.bin", "ids.offsets.bin"])
def test_only_regular_files_are_opened(tmp_path, kind, file):
    store = written(tmp_path / "s")
    path = store.path / file
    path.rename(tmp_path / "elsewhere")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=file.replace(".", r"\.")):
        open_store(store.path)


BAD = Ragged(np.arange(3), np.array([0, 4, 2, 3]))


@pytest.mark.parametrize("write", ["disk", "memory"])
@pytest.mark.parametrize(
    ("clients", "says"),
    [
        ([("a", {"x": np.zeros(1)}), ("a", {"x": np.ones(1)})], "'a' twice"),
        ([("a", {"x": np.array([None, "b"], object)})], "dtype"),
        ([("a", {"x": np.zeros(1)}), ("b", {"x": np.zeros(1, int)})], "client 'b': expected the features"),
        ([("a", {"x": np.zeros((1, 2))}), ("b", {"x": np.zeros((1, 3))})], "client 'b': expected the features"),
        ([("a", {})], "at least one feature"),
        ([("a", {"x": BAD})], "the feature x: expected offsets that never fall"),
        ([("a", {"x": Ragged(np.arange(3), np.array([0, 2]))})], "the feature x: expected offsets from 0 to 3"),
        ([("a", {"x": np.zeros(())})], "the feature x: expected one row per example"),
    ],
)
def test_memory_and_disk_refuse_the_same_clients(tmp_path, write, clients, says):
    with pytest.raises(StoreError, match=says):
        write_store(tmp_path / "s", clients, {}) if write == "disk" else in_memory(clients)


def test_a_store_that_only_claims_to_be_prepared_is_prepared(tmp_path):
    stranger = write_store(tmp_path / "s", [("a", {"x": np.full(2, 300)})], {"prepared": "a_task"})

    def prepare(store):
        raise StoreError("expected labels, found 300")

    with pytest.raises(StoreError, match="found 300"):
        prepared_store("a_task", stranger, prepare)


def test_a_prepared_store_of_the_cache_is_taken_as_it_is(tmp_path):
    prepared: Any = prepared_store("a_task", written(tmp_path / "s"), lambda store: store.items())
    assert prepared_store("a_task", open_store(prepared.path), lambda store: []).path == prepared.path
