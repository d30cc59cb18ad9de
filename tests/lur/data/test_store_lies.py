"""Stores that lie, by the hundred: refused in a sentence, or the same run as the store that is described honestly.

A lie is an edit of the files or the manifest of a store without checksums, as a stranger's store may be, so nothing but
the layout can give it away; or of a store with checksums, where only what changes no number may be opened. Where a
store with an edit is opened, its numbers are compared with those in its files, read here by hand, without lur.
"""

import json
import shutil
from collections import Counter
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lur
from lur.data.ragged import Ragged, from_rows
from lur.data.store import StoreError, open_store
from lur.data.writer import write_store

SIZES = (2, 1, 3)
DTYPES = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool")
NUMBERS = (0, 1, 2, 3, 5, 6, 7, -1, -7, 2**31, 2**32 + 1, 2**47, 2**63 - 1, -(2**63), 2**70)
VALUES = (*NUMBERS, 0.5, True, None, "3", [], {}, "x", float("nan"))


def honest_store(path):
    """A store with a dense, a ragged and a text feature; each client has another number of examples."""
    rng = np.random.default_rng(0)
    return write_store(
        path,
        (
            (
                f"client {i}",
                {
                    "x": rng.normal(size=(n, 2)).astype(np.float32),
                    "label": rng.integers(0, 3, n).astype(np.int32),
                    "bag": from_rows([rng.integers(0, 9, rng.integers(0, 4)) for _ in range(n)], np.int32),
                    "text": [rng.bytes(int(rng.integers(0, 5))) for _ in range(n)],
                },
            )
            for i, n in enumerate(SIZES)
        ),
        {"source": "here"},
    )


def files_by_hand(folder):
    """The clients of a store, read from its files as its manifest describes them."""
    manifest = json.loads((folder / "manifest.json").read_bytes())

    def array(name, dtype):
        return np.frombuffer((folder / name).read_bytes(), np.dtype(dtype).newbyteorder("<"))

    def rows(name, dtype):
        values, offsets = array(f"{name}.bin", dtype), array(f"{name}.offsets.bin", "int64").tolist()
        return [values[start:stop] for start, stop in pairwise(offsets)]

    ids = [row.tobytes().decode() for row in rows("ids", "uint8")]
    offsets = array("offsets.bin", "int64").tolist()
    assert len(ids) == manifest["clients"] == len(offsets) - 1 == len(set(ids))
    features = {
        name: rows(name, entry["dtype"])
        if entry["kind"] == "ragged"
        else array(f"{name}.bin", entry["dtype"]).reshape(manifest["examples"], *entry["shape"])
        for name, entry in manifest["features"].items()
    }
    assert all(len(feature) == manifest["examples"] == offsets[-1] for feature in features.values())
    return [
        (id, {name: list(feature[start:stop]) for name, feature in features.items()})
        for id, start, stop in zip(ids, offsets[:-1], offsets[1:], strict=True)
    ]


def assert_same_numbers(store, expected):
    """The opened store has exactly the clients that the files hold."""
    assert store.clients == len(expected)
    for (id, examples), (wanted_id, wanted) in zip(store.items(), expected, strict=True):
        assert id == wanted_id
        assert sorted(examples) == sorted(wanted)
        for name, feature in examples.items():
            found = [feature.row(i) for i in range(feature.size)] if isinstance(feature, Ragged) else list(feature)
            assert len(found) == len(wanted[name])
            for one, other in zip(found, wanted[name], strict=True):
                np.testing.assert_array_equal(one, other, strict=True)


def number(rng):
    return NUMBERS[rng.integers(len(NUMBERS))]


def value(rng):
    return VALUES[rng.integers(len(VALUES))]


def lie_about_offsets(folder, manifest, rng):
    """Some entries of a file of offsets, or all of them in another order, or fewer or more of them."""
    file = folder / rng.choice(["offsets.bin", "ids.offsets.bin", "bag.offsets.bin", "text.offsets.bin"])
    offsets = np.frombuffer(file.read_bytes(), "<i8").copy()
    match rng.integers(5):
        case 0:
            offsets[rng.integers(len(offsets))] = np.int64(max(min(number(rng), 2**63 - 1), -(2**63)))
        case 1:
            offsets[rng.integers(len(offsets))] += rng.integers(-2, 3)
        case 2:
            rng.shuffle(offsets)
        case 3:
            offsets = offsets[: rng.integers(len(offsets) + 1)]
        case 4:
            offsets = np.append(offsets, offsets[-1])
    file.write_bytes(offsets.astype("<i8").tobytes())


def lie_about_counts(folder, manifest, rng):
    """Numbers of clients, examples, bytes and values, and widths."""
    if rng.random() < 0.4:
        manifest[rng.choice(["clients", "examples", "id_bytes"])] = value(rng)
    else:
        manifest["features"][rng.choice(["bag", "text"])][rng.choice(["width", "values"])] = value(rng)


def lie_about_types(folder, manifest, rng):
    """Kinds, dtypes and shapes."""
    entry = manifest["features"][rng.choice(["x", "label", "bag", "text"])]
    match rng.integers(4):
        case 0:
            entry["dtype"] = str(rng.choice([*DTYPES, "object", "complex64", ">f4", "S4", "datetime64[s]", "f4"]))
        case 1:
            entry["kind"] = rng.choice(["dense", "ragged", "sparse"])
        case 2:
            entry["shape"] = [[], [2], [1, 2], [2, 1], [4], [-1], [2**40], [0], [value(rng)], "2"][rng.integers(10)]
        case 3:
            entry.pop(str(rng.choice([*entry])))


def lie_about_names(folder, manifest, rng):
    """Names of features and of files, ids, and whole members of the manifest."""
    match rng.integers(5):
        case 0:
            name = str(rng.choice(["../x", "/etc/passwd", "offsets", "ids", "", "x.bin", "x\0", "y", "bag", "é"]))
            manifest["features"][name] = manifest["features"].pop(str(rng.choice(["x", "text"])))
        case 1:
            content = bytearray((folder / "ids.bin").read_bytes())
            content[rng.integers(len(content))] = int(rng.choice([0xFF, 0, ord("0"), ord("1"), ord("2"), 10]))
            (folder / "ids.bin").write_bytes(content)
        case 2:
            manifest.pop(str(rng.choice([*manifest])))
        case 3:
            manifest[str(rng.choice(["format", "version", "features", "about"]))] = value(rng)
        case 4:
            manifest["features"] = {name: manifest["features"][name] for name in rng.permutation([*["x", "label"]])}


def lie_in_bytes(folder, manifest, rng):
    """Bytes of any file of data flipped, cut, or appended."""
    file = folder / rng.choice(["x.bin", "label.bin", "bag.bin", "text.bin", "ids.bin", "offsets.bin"])
    content = bytearray(file.read_bytes())
    match rng.integers(3):
        case 0:
            content[rng.integers(len(content))] ^= 1 << rng.integers(8)
        case 1:
            content = content[: rng.integers(len(content))]
        case 2:
            content += rng.bytes(int(rng.integers(1, 9)))
    file.write_bytes(content)


LIES = (lie_about_offsets, lie_about_counts, lie_about_types, lie_about_names, lie_in_bytes)


def loss(w, batch):
    """Depends on every number of a batch, and on where each row begins."""
    bag = (batch["bag"] * jnp.arange(1, 1 + batch["bag"].shape[-1])).sum(-1) + batch["bag_length"]
    text = (batch["text"].astype(jnp.int32) * jnp.arange(1, 1 + batch["text"].shape[-1])).sum(-1) + batch["text_length"]
    target = (batch["label"] + bag + text).astype(jnp.float32) / 100
    return ((batch["x"].astype(jnp.float32) @ w - target) ** 2).mean()


def rounds(store, data):
    method = lur.local_update(loss, [1.0, 1.0])
    options = {"rounds": 3, "clients_per_round": 2, "batch_size": 2, "data": data}
    state, infos = lur.run(method, method.init(np.ones(2, np.float32), 0.01, 0.5), store, **options)
    return jax.tree.map(np.asarray, (state.params, infos.client_losses))


def attack(tmp_path, count, seed, sealed):
    """Open `count` stores with a lie each; returns how many were refused, and the opened ones that trained."""
    honest = honest_store(tmp_path / "honest")
    rng, counts = np.random.default_rng(seed), Counter()
    for i in range(count):
        lie = LIES[i % len(LIES)]
        folder = tmp_path / "lie"
        shutil.copytree(honest.path, folder)
        manifest = json.loads((folder / "manifest.json").read_text())
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        if not sealed:
            manifest.pop("sha256")
            manifest.pop("manifest_sha256")
        stranger = json.dumps(manifest)
        lie(folder, manifest, rng)
        is_lie = json.dumps(manifest) != stranger or any(
            path.read_bytes() != before[path.name] for path in folder.glob("*.bin")
        )
        (folder / "manifest.json").write_text(json.dumps(manifest))
        store, refusal = None, ""
        try:
            store = open_store(folder)
        except StoreError as error:
            refusal = str(error)
        if store is None:
            assert str(folder) in refusal
            assert "expected" in refusal
            counts["refused"] += 1
        else:
            assert_same_numbers(store, files_by_hand(honest.path if sealed else folder))
            counts["opened, with the numbers of its files" if is_lie else "opened, not changed by the lie"] += 1
            if is_lie and list(store.features) == list(honest.features):
                trained = in_the_same_run(store, folder)
                counts["of these trained as on the host, or refused by both"] += trained
        shutil.rmtree(folder)
    return counts


def in_the_same_run(store, folder):
    """An opened store gives the same run on the device, on the host and from a copy in memory, or an error in all."""
    copy = lur.data.in_memory(files_as_clients(folder, store))
    results = []
    for one, data in ((store, None), (store, "host"), (copy, None)):
        try:
            results.append(rounds(one, data))
        except (ValueError, TypeError) as error:
            results.append(type(error))
    first, *others = results
    for other in others:
        if isinstance(first, type) or isinstance(other, type):
            assert first == other, results
        else:
            jax.tree.map(np.testing.assert_array_equal, first, other)
    return 1


def files_as_clients(folder, store):
    """The clients read by hand, as features in memory."""
    for id, features in files_by_hand(folder):
        yield (
            id,
            {
                name: from_rows(rows, store.features[name].values.dtype)
                if isinstance(store.features[name], Ragged)
                else np.stack(rows)
                for name, rows in features.items()
            },
        )


def test_lies_about_a_store(tmp_path, monkeypatch):
    monkeypatch.setenv("LUR_CACHE", str(tmp_path / "cache"))
    counts = attack(tmp_path, 60, 0, sealed=False)
    assert counts["refused"] >= 20
    assert counts["opened, with the numbers of its files"] >= 3


@pytest.mark.full
@pytest.mark.parametrize(("sealed", "count"), [(False, 1500), (True, 500)])
def test_a_thousand_lies_about_a_store(tmp_path, monkeypatch, sealed, count):
    monkeypatch.setenv("LUR_CACHE", str(tmp_path / "cache"))
    counts = attack(tmp_path, count, 1, sealed)
    print(f"{count} lies about a store {'with' if sealed else 'without'} checksums: {dict(counts)}")
    assert counts["refused"] >= count // 3
