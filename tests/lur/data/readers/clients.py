"""Random and faulty clients, and the assertions that the readers' tests share."""

import tempfile
import tracemalloc
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from lur.data.ragged import Ragged
from lur.data.store import StoreError
from lur.data.writer import write_store

TEXTS = ("creation_date", "tags", "title", "tokens", "type")
DATASETS = ("emnist", "cifar100", "shakespeare", "stackoverflow", "other")
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
few, several = settings(max_examples=10, deadline=None), settings(max_examples=25, deadline=None)


def random_features(kind: str, n: int, rng: np.random.Generator) -> dict[str, np.ndarray | list[bytes]]:
    """Return n random examples of a dataset."""

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


def random_clients(*kinds: str, ids: st.SearchStrategy[str]):
    """Return a strategy of a few clients of one of the datasets."""

    def build(kind: str, ids: list[str], seed: int) -> dict[str, dict]:
        rng = np.random.default_rng(seed)
        return {id: random_features(kind, int(rng.integers(1, 5)), rng) for id in ids}

    return st.builds(
        build, st.sampled_from(kinds), st.lists(ids, min_size=1, max_size=4, unique=True), st.integers(0, 2**32)
    )


GOOD = random_features("emnist", 2, np.random.default_rng(0))
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
    "labels without examples": {**GOOD, "label": np.zeros(0, np.int32)},
    "complex numbers": {**GOOD, "pixels": np.zeros((2, 28, 28), np.complex64)},
}


@contextmanager
def temporary_folder():
    """Yield a temporary folder, a new one for each example of hypothesis."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def assert_imported(store_path: Path, read, expected: dict[str, dict]) -> None:
    """The imported store has the expected clients in order, with labels as int32."""
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


def sorted_by_id(clients: dict[str, dict]) -> dict[str, dict]:
    """Return the clients sorted by id."""
    return {id: clients[id] for id in sorted(clients)}


def refusal(read, path: Path, client: str = "bad") -> str:
    """Assert that reading the file raises a StoreError that names the client, and return its message."""
    with pytest.raises(StoreError) as error:
        write_store(path.with_name("store"), read(path), {})
    assert str(path) in str(error.value)
    assert f"client {client!r}" in str(error.value)
    assert "expected" in str(error.value)
    assert not path.with_name("store").exists()
    assert not list(path.parent.glob(".*"))
    return str(error.value)


@contextmanager
def bounded_memory(limit: int = 2**25):
    """Assert that the block never allocates more than `limit` bytes."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit, f"{peak} bytes"


def deflated_zeros(blocks: int) -> bytes:
    """Return a zlib stream of `blocks` times 16 MiB of zeros, without allocating them."""
    deflate = zlib.compressobj(9, wbits=-15)
    block = deflate.compress(bytes(2**24)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return b"\x78\x9c" + block * blocks + deflate.flush() + bytes(4)
