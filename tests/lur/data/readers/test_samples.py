"""Readers of simple sample files: files written here, damaged files, and real files where they are available."""

import gzip
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from lur.data import prepare
from lur.data.readers import samples
from lur.data.store import StoreError
from lur.data.writer import in_memory

REAL = Path(__file__).resolve().parents[5] / "shared" / "data"

ROLES = {
    "train": {"HAMLET": ["To be,\nor not", "Words."], "MUTE": [], "OPHÉLIE": ["Là"]},
    "test": {"HAMLET": ["The rest is silence."]},
}
POST = {"tokens": "a b", "title": "t", "tags": "x|y", "creation_date": "2014", "type": "question", "score": -3}
USERS = {"u2": [{**POST, "post_id": 1}, {**POST, "tokens": "é"}], "none": [], "u1": [POST]}


def gzipped(folder, content, name="file.json.gz") -> Path:
    path = folder / name
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    path.write_bytes(gzip.compress(raw, mtime=0))
    return path


def drawn(folder, **arrays) -> Path:
    path = folder / "pen.npz"
    np.savez_compressed(path, **arrays)
    return path


def pen(n=4, **changes):
    ramp = np.arange(n * 784).reshape(n, 28, 28) % 256
    return {
        "pixels": ramp.astype(np.uint8),
        "label": np.arange(n, dtype=np.int32),
        "writer": np.array([7, 2, 7, 10][:n], np.int32),
    } | changes


def test_roles(tmp_path):
    path = gzipped(tmp_path, ROLES)
    assert list(samples.roles_json(path)) == [
        ("HAMLET", {"snippets": [b"To be,\nor not", b"Words."]}),
        ("MUTE", {}),
        ("OPHÉLIE", {"snippets": ["Là".encode()]}),
    ]
    assert list(samples.roles_json(str(path), "test")) == [("HAMLET", {"snippets": [b"The rest is silence."]})]


def test_json_need_not_be_gzipped(tmp_path):
    path = tmp_path / "roles.json"
    path.write_text(json.dumps(ROLES))
    assert [id for id, examples in samples.roles_json(path) if examples] == ["HAMLET", "OPHÉLIE"]


def test_users(tmp_path):
    users = dict(samples.users_json(gzipped(tmp_path, USERS)))
    assert [id for id, examples in users.items() if not examples] == ["none"]
    store = in_memory((id, examples) for id, examples in users.items() if examples)
    assert [store.id(i) for i in range(store.clients)] == ["u2", "u1"]
    assert sorted(store.features) == ["creation_date", "score", "tags", "title", "tokens", "type"]
    assert list(store.features["tokens"].texts()) == [b"a b", "é".encode(), b"a b"]
    assert store.features["score"].tolist() == [-3, -3, -3]
    assert store.features["score"].dtype == np.int64


def test_users_without_dates_and_scores(tmp_path):
    store = in_memory(samples.users_json(gzipped(tmp_path, {"m": [{"tokens": "a", "title": "t", "tags": "x"}]})))
    assert sorted(store.features) == ["tags", "title", "tokens"]


def test_pen(tmp_path):
    arrays = pen()
    store = in_memory(samples.pen_npz(drawn(tmp_path, **arrays)))
    assert [store.id(i) for i in range(store.clients)] == ["2", "7", "10"]
    assert store.offsets.tolist() == [0, 1, 3, 4]
    assert store.features["label"].tolist() == [1, 0, 2, 3]
    assert (store.features["pixels"].dtype, store.features["label"].dtype) == (np.float32, np.int32)
    np.testing.assert_array_equal(np.rint(store.features["pixels"] * 255), arrays["pixels"][[1, 0, 2, 3]])
    assert store.features["pixels"].max() == 1


def test_pen_with_two_columns_of_owners(tmp_path):
    path = drawn(tmp_path, **pen(alphabet=np.array([1, 1, 0, 1])))
    assert [id for id, _ in samples.pen_npz(path, owner=("alphabet", "writer"))] == ["0_7", "1_2", "1_7", "1_10"]


def test_pen_in_fortran_order_and_big_endian(tmp_path):
    arrays = pen()
    other = arrays | {"pixels": np.asfortranarray(arrays["pixels"]), "label": arrays["label"].astype(">i8")}
    first = in_memory(samples.pen_npz(drawn(tmp_path, **arrays)))
    second = in_memory(samples.pen_npz(drawn(tmp_path, **other)))
    for name in ("pixels", "label"):
        np.testing.assert_array_equal(first.features[name], second.features[name])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "expected JSON"),
        (b"[]", r"expected a JSON object, found \[\]"),
        (b"[" * 100_000, "expected JSON"),
        (b"\xff", "expected JSON"),
        (b'{"train": 1' + b"0" * 5000 + b"}", "expected JSON"),
        ({"test": {}}, "expected the split 'train' with its roles"),
        ({"train": []}, "expected the split 'train'"),
        ({"train": {"A": "text"}}, "client 'A': expected a list of speeches, found 'text'"),
        ({"train": {"A": [1]}}, "client 'A': expected text for a speech, found 1"),
        (b'{"train": {"A": ["\\ud800"]}}', "client 'A': expected valid Unicode"),
        (b'{"train": {"\\ud800": ["a"]}}', "expected valid Unicode for an id"),
        (b'{"train": {"A": ["a"], "A": ["b"]}}', "expected each key once, found 'A' again"),
    ],
)
def test_invalid_roles_are_refused(tmp_path, content, message):
    with pytest.raises(StoreError, match=f"file.json.gz.*{message}"):
        list(samples.roles_json(gzipped(tmp_path, content)))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("text", "expected a list of objects"),
        (POST | {"tokens": None}, "expected text for tokens, found None"),
        ({k: v for k, v in POST.items() if k != "tags"}, "expected text for tags, found None"),
        (POST | {"score": 0.5}, "expected an integer score, found 0.5"),
        (POST | {"score": True}, "expected an integer score, found True"),
        (POST | {"score": 2**63}, "expected an integer score"),
        ({k: v for k, v in POST.items() if k != "score"}, "expected an integer score, found None"),
    ],
)
def test_invalid_users_are_refused(tmp_path, row, message):
    with pytest.raises(StoreError, match=f"client 'u': {message}"):
        list(samples.users_json(gzipped(tmp_path, {"first": [POST], "u": [row]})))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pixels": np.zeros((4, 28, 27), np.uint8)}, r"expected pixels uint8 \(n, 28, 28\)"),
        ({"pixels": np.zeros((4, 28, 28), np.int32)}, "expected pixels uint8"),
        ({"pixels": np.zeros((0, 28, 28), np.uint8)}, "expected pixels uint8"),
        ({"label": np.zeros(3, np.int32)}, r"expected label of shape \(4,\), found \(3,\)"),
        ({"label": np.array([0, 0, 0, -1])}, "expected labels in 0"),
        ({"label": np.zeros(4, np.float32)}, "array label: expected integers, found float32"),
        ({"writer": np.array(["a", "b", "c", "d"])}, "array writer: expected integers"),
        ({"writer": np.array([None] * 4)}, "array writer: expected integers, found object"),
    ],
)
def test_invalid_drawings_are_refused(tmp_path, changes, message):
    with pytest.raises(StoreError, match=message):
        samples.pen_npz(drawn(tmp_path, **pen(**changes)))


def test_missing_files_and_arrays(tmp_path):
    for reader in (samples.roles_json, samples.users_json, samples.pen_npz):
        with pytest.raises(StoreError, match="found nothing"):
            reader(tmp_path / "none")
        with pytest.raises(StoreError, match=str(tmp_path)):
            reader(tmp_path)
    with pytest.raises(StoreError, match=r"expected the arrays pixels, label, drawer, found"):
        samples.pen_npz(drawn(tmp_path, **pen()), owner=("drawer",))
    with pytest.raises(ValueError, match="owner must be a list of names"):
        samples.pen_npz(drawn(tmp_path, **pen()), owner="writer")


def test_unpacked_sizes_are_bounded(tmp_path):
    bomb = gzipped(tmp_path, b" " * 10_000_000)
    assert bomb.stat().st_size < 20_000
    with pytest.raises(StoreError, match="expected at most 1000000 bytes, found more"):
        samples.roles_json(bomb, limit=1_000_000)
    path = drawn(tmp_path, **pen(pixels=np.zeros((4, 28, 28), np.uint8)))
    with pytest.raises(StoreError, match="expected at most 1000 bytes per array"):
        samples.pen_npz(path, limit=1000)


def test_a_header_with_a_false_size_allocates_nothing(tmp_path):
    path = tmp_path / "pen.npz"
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1099511627776, 28, 28), }"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("pixels", "label", "writer"):
            archive.writestr(f"{name}.npy", content)
    with pytest.raises(StoreError, match="expected 862017116176384 bytes"):
        samples.pen_npz(path)


# Damaged files raise StoreErrors only.


def damaged(rng, content: bytes) -> bytes:
    """Return the content with bytes changed, a piece cut out, or a piece repeated."""
    data = bytearray(content)
    start = int(rng.integers(len(data)))
    stop = min(len(data), start + int(rng.integers(1, 12)))
    kind = rng.integers(4)
    if kind == 0:
        del data[start:stop]
    elif kind == 1:
        data[start:start] = data[start:stop]
    elif kind == 2:
        del data[start:]
    else:
        for _ in range(int(rng.integers(1, 4))):
            data[int(rng.integers(len(data)))] = int(rng.integers(256))
    return bytes(data)


def consumed(clients) -> bool:
    """Return whether a damaged file can still be read."""
    try:
        for _ in clients():
            pass
    except StoreError:
        return False
    return True


@pytest.mark.parametrize(("reader", "content"), [(samples.roles_json, ROLES), (samples.users_json, USERS)])
def test_damaged_json_raises_store_errors_only(tmp_path, reader, content):
    rng = np.random.default_rng(0)
    uncompressed = json.dumps(content, ensure_ascii=False).encode()
    packed = gzip.compress(uncompressed, mtime=0)
    path = tmp_path / "file"
    outcomes = []
    for i in range(1000):
        path.write_bytes(damaged(rng, uncompressed if i % 4 else packed))
        outcomes.append(consumed(lambda: reader(path)))
    assert 0 < sum(outcomes) < 1000


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_npz_raises_store_errors_only(tmp_path, save):
    rng = np.random.default_rng(1)
    buffer = io.BytesIO()
    save(buffer, **pen(2))
    uncompressed = buffer.getvalue()
    path = tmp_path / "file.npz"
    outcomes = []
    for _ in range(500):
        path.write_bytes(damaged(rng, uncompressed))
        outcomes.append(consumed(lambda: samples.pen_npz(path)))
    assert sum(outcomes) < 500


def test_damaged_arrays_raise_store_errors_only(tmp_path):
    """Damage to the arrays before they are packed, so that the archive's checksums do not detect it."""
    rng = np.random.default_rng(2)
    arrays = pen(2)
    path = tmp_path / "file.npz"
    outcomes = []
    for _ in range(500):
        with zipfile.ZipFile(path, "w") as archive:
            for name, array in arrays.items():
                buffer = io.BytesIO()
                np.save(buffer, array)
                content = buffer.getvalue()
                if name == "label" or rng.integers(2):
                    content = damaged(rng, content[:128]) + content[128:]
                archive.writestr(f"{name}.npy", content)
        outcomes.append(consumed(lambda: samples.pen_npz(path)))
    assert 0 < sum(outcomes) < 500


# The real files


def real(name: str) -> Path:
    path = REAL / name
    if not path.exists():
        pytest.skip(f"the sample {name} (shared/data) is not here")
    return path


def test_real_roles():
    path = real("shakespeare_roles.json.gz")
    train, test = (in_memory(samples.roles_json(path, split)) for split in ("train", "test"))
    assert (train.clients, train.examples, test.clients, test.examples) == (908, 22_002, 908, 3_428)
    rows = in_memory(prepare.shakespeare(train))
    assert rows.features["tokens"].shape == (49_063, 81)
    assert not (rows.features["tokens"] == 87).any()
    assert prepare.characters(rows.client(0)["tokens"]) == b"".join(train.client(0)["snippets"].texts())


def test_real_pen():
    store = in_memory(samples.pen_npz(real("uji_pen_v1_28x28.npz")))
    assert np.diff(store.offsets).tolist() == [124] * 11
    assert np.bincount(store.features["label"]).tolist() == [22] * 62
    corners = store.features["pixels"][:, [0, 0, -1, -1], [0, -1, 0, -1]]
    assert np.median(corners) == 1
    assert in_memory(prepare.emnist(store)).examples == 1364


def test_real_drawers():
    store = in_memory(samples.pen_npz(real("omniglot_small_28x28.npz"), owner=("alphabet", "drawer")))
    assert (store.clients, store.examples, store.features["label"].max()) == (160, 4_840, 241)


def test_real_users():
    store = in_memory(samples.users_json(real("stackexchange_users.json.gz")))
    words, tags = prepare.count_words(store), prepare.count_tags(store)
    assert (store.clients, store.examples, len(tags), len(words)) == (1_471, 46_302, 513, 31_836)
    vocabulary = [word for word, _ in words[:10_000]]
    rows = in_memory(prepare.next_word(store, vocabulary, max_examples=None)).features["tokens"]
    assert rows.shape == (46_302, 21)
    assert rows.max() == 10_003
    bags = in_memory(prepare.tags(store, vocabulary, [tag for tag, _ in tags[:500]], max_examples=None))
    sums = np.add.reduceat(np.append(bags.features["weights"].values, 0), bags.features["words"].offsets[:-1])
    full = np.diff(bags.features["words"].offsets) > 0
    np.testing.assert_allclose(sums[full], 1, rtol=1e-5)


def test_real_packages():
    store = in_memory(samples.users_json(real("debtags_users.json.gz")))
    assert (store.clients, store.examples, len(prepare.count_tags(store))) == (1_716, 29_824, 597)
