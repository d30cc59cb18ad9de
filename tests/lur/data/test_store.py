"""The store: round trips in memory and on disk, invalid content, interrupted writing."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lur.data.ragged import Ragged, from_rows
from lur.data.store import StoreError, open_store
from lur.data.writer import StoreWriter, in_memory, write_store

TEXT = st.binary(max_size=6)


@st.composite
def clients(draw):
    """A few clients with a dense, a text and a ragged feature."""
    made = []
    for i in range(draw(st.integers(1, 4))):
        n = draw(st.integers(1, 5))
        x = np.array(draw(st.lists(st.integers(0, 255), min_size=2 * n, max_size=2 * n)), np.uint8).reshape(n, 2)
        rows = draw(st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=n, max_size=n))
        text = draw(st.lists(TEXT, min_size=n, max_size=n))
        made.append((f"c{i}é", {"x": x, "text": text, "bag": from_rows([np.array(r) for r in rows], np.int32)}))
    return made


def as_lists(feature):
    return [feature.row(i).tolist() for i in range(feature.size)] if isinstance(feature, Ragged) else feature.tolist()


def content(store):
    return [(id, {name: as_lists(feature) for name, feature in examples.items()}) for id, examples in store.items()]


def expected(made):
    def rows(feature):
        return [list(row) for row in feature] if isinstance(feature, list) else as_lists(feature)

    return [(id, {name: rows(feature) for name, feature in examples.items()}) for id, examples in made]


@given(clients())
@settings(deadline=None, max_examples=50)
def test_memory_and_disk_return_what_was_written(tmp_path_factory, made):
    folder = tmp_path_factory.mktemp("stores")
    disk, memory = write_store(folder / "s", made, {"a": 1}), in_memory(made, {"a": 1})
    assert content(disk) == content(memory) == expected(made)
    assert disk.widths == memory.widths
    assert disk.about == memory.about == {"a": 1}
    assert disk.examples == memory.examples == sum(len(e["x"]) for _, e in made)
    assert [p.name for p in folder.iterdir()] == ["s"]


def small(i=0, n=2):
    return f"c{i}", {"x": np.full((n, 3), i, np.float32), "t": [b"ab"] * n}


@pytest.mark.parametrize(
    ("clients", "says"),
    [
        ([], "at least one client"),
        ([small(0), small(0)], "'c0' twice"),
        ([("a", {})], "at least one feature"),
        ([("a", {"x": np.zeros((0, 2))})], ">= 1"),
        ([("a", {"x": np.zeros(2), "y": np.zeros(3)})], "equally many"),
        ([small(0), ("b", {"x": np.zeros((2, 4), np.float32), "t": [b"", b""]})], "client 'b': expected the features"),
        ([("a", {"../x": np.zeros(2)})], "letters, digits and _"),
        ([("a", {"offsets": np.zeros(2)})], "letters, digits and _"),
        ([("a", {"x": np.zeros(2, complex)})], "expected a dtype"),
        ([("a", {"x": np.array(["s", "t"])})], "expected a dtype"),
        ([("a", {"x": ["text"]})], "list of bytes"),
    ],
)
def test_invalid_clients_are_refused_and_nothing_is_left_behind(tmp_path, clients, says):
    with pytest.raises(StoreError, match=says):
        write_store(tmp_path / "s", clients, {})
    assert [*tmp_path.iterdir()] == []


def test_interrupted_writing_leaves_nothing_behind(tmp_path):
    def cut_off():
        yield small(0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_store(tmp_path / "s", cut_off(), {})
    assert [*tmp_path.iterdir()] == []


def test_an_existing_store_is_kept_unless_replaced(tmp_path):
    write_store(tmp_path / "s", [small(1)], {})
    with pytest.raises(StoreError, match="found an existing one"):
        StoreWriter(tmp_path / "s", {})
    assert open_store(tmp_path / "s").clients == 1
    assert write_store(tmp_path / "s", [small(1), small(2)], {}, replace=True).clients == 2


@pytest.mark.parametrize("file", ["x.bin", "offsets.bin", "t.offsets.bin", "ids.bin"])
@pytest.mark.parametrize("change", ["longer", "shorter", "missing"])
def test_wrong_sizes_name_the_file(tmp_path, file, change):
    write_store(tmp_path / "s", [small(0), small(1)], {})
    path = tmp_path / "s" / file
    if change == "missing":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data + b"\0" if change == "longer" else data[:-1])
    with pytest.raises(StoreError, match=file.replace(".", r"\.")):
        open_store(tmp_path / "s")


def mutate(manifest, path, value):
    *parents, last = path
    for key in parents:
        manifest = manifest[key]
    manifest[last] = value


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (["format"], "zip", "format"),
        (["version"], 99, "version"),
        (["clients"], -1, "clients"),
        (["clients"], 10**30, "clients"),
        (["examples"], True, "examples"),
        (["features"], [], "features"),
        (["features", "x", "dtype"], "object", "kind and dtype"),
        (["features", "x", "shape"], [2**40, 2**40], "expected"),
        (["features", "x", "shape"], "3", "shape"),
        (["features", "t", "values"], 1.5, "values"),
        (["features", "../../etc"], {"kind": "dense", "dtype": "uint8", "shape": []}, "feature name"),
    ],
)
def test_an_invalid_manifest_is_refused(tmp_path, path, value, says):
    write_store(tmp_path / "s", [small(0)], {})
    file = tmp_path / "s" / "manifest.json"
    manifest = json.loads(file.read_text())
    mutate(manifest, path, value)
    file.write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match=says):
        open_store(tmp_path / "s")


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, "\0"])
def test_a_manifest_that_is_not_a_json_object_is_refused(tmp_path, text):
    write_store(tmp_path / "s", [small(0)], {})
    (tmp_path / "s" / "manifest.json").write_text(text)
    with pytest.raises(StoreError, match=r"manifest\.json"):
        open_store(tmp_path / "s")


@pytest.mark.parametrize("offsets", [[0, 5, 1, 6], [0, 3, 3, 6]], ids=["falling", "a client without examples"])
def test_offsets_that_do_not_rise_are_refused(tmp_path, offsets):
    write_store(tmp_path / "s", [small(0), small(1), small(2)], {})
    np.array(offsets, "<i8").tofile(tmp_path / "s" / "offsets.bin")
    with pytest.raises(StoreError, match="rise from 0 to 6"):
        open_store(tmp_path / "s")


def test_a_folder_without_a_store_is_refused(tmp_path):
    with pytest.raises(StoreError, match="found nothing"):
        open_store(tmp_path / "none")
    with pytest.raises(StoreError, match=r"no manifest\.json"):
        open_store(tmp_path)
