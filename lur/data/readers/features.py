"""What the features of the known datasets must be, and the checks that every reader shares."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from lur.data.ragged import Ragged
from lur.data.store import DTYPES, NAME, Feature, StoreError, feature_length

LIMIT = 2**30
"""The bytes that one client may take in memory: far above any real client, far below a decompression bomb."""

ROW_BYTES = 64
"""What a row of text is charged against the limit beside its content, so that empty rows are not free."""


class Spec(NamedTuple):
    """A feature of a known dataset: `shape` is that of one example, `classes` the number of labels."""

    kind: Literal["float", "byte", "label", "integer", "text"]
    shape: tuple[int, ...] = ()
    classes: int = 0


TEXT = Spec("text")
KINDS: dict[str, dict[str, Spec]] = {
    "emnist": {"label": Spec("label", classes=62), "pixels": Spec("float", (28, 28))},
    "cifar100": {
        "coarse_label": Spec("label", classes=20),
        "image": Spec("byte", (32, 32, 3)),
        "label": Spec("label", classes=100),
    },
    "shakespeare": {"snippets": TEXT},
    "stackoverflow": {
        "creation_date": TEXT,
        "score": Spec("integer"),
        "tags": TEXT,
        "title": TEXT,
        "tokens": TEXT,
        "type": TEXT,
    },
}


def kind_of(names: Iterable[str]) -> str:
    """The dataset whose features these are: a key of `KINDS`, or "other"."""
    found = set(names)
    return next((kind for kind, specs in KINDS.items() if set(specs) == found), "other")


def place(path: Path, id: str) -> str:
    """How an error names a client."""
    return f"{path}, client {id!r}"


def checked(where: str, arrays: Mapping[str, Feature]) -> dict[str, Feature]:
    """One client's features in sorted order, those of a known dataset in the dtype and shape they must have.

    Labels become int32, and trailing axes of size 1 go. Features of no known dataset pass as they are, if a
    store can hold them.
    """
    if not arrays:
        raise StoreError(f"{where}: expected at least one feature, found none")
    for name in arrays:
        if not NAME.fullmatch(name) or name in ("offsets", "ids"):
            raise StoreError(f"{where}: expected a feature name of letters, digits and _, found {name!r}")
    specs = KINDS.get(kind_of(arrays), {})
    found = {name: conformed(where, name, specs.get(name), arrays[name]) for name in sorted(arrays)}
    lengths = {name: feature_length(array) for name, array in found.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        raise StoreError(f"{where}: expected equally many examples (>= 1) of each feature, found {lengths}")
    return found


def conformed(where: str, name: str, spec: Spec | None, array: Feature) -> Feature:
    """A feature as its spec wants it; without a spec, as a store can hold it."""
    values = array.values if isinstance(array, Ragged) else array
    if values.dtype.name not in DTYPES:
        raise StoreError(f"{where}, {name}: expected a dtype among {', '.join(DTYPES)} or text, found {values.dtype}")
    if spec is None:
        return array
    if isinstance(array, Ragged) or spec.kind == "text":
        if spec.kind != "text" or not isinstance(array, Ragged) or values.dtype != np.uint8:
            raise StoreError(f"{where}, {name}: expected {wanted(spec)}, found {described(array)}")
        return array
    while array.ndim > 1 + len(spec.shape) and array.shape[-1] == 1:
        array = array[..., 0]
    if array.shape[1:] != spec.shape or array.dtype.kind not in {"float": "f", "byte": "u"}.get(spec.kind, "iu"):
        raise StoreError(f"{where}, {name}: expected {wanted(spec)}, found {described(array)}")
    if spec.kind == "byte" and array.dtype.itemsize != 1:
        raise StoreError(f"{where}, {name}: expected {wanted(spec)}, found {described(array)}")
    if spec.kind == "float":
        with np.errstate(over="ignore"):
            array = array.astype(np.float32, copy=False)
        if not np.isfinite(array).all():
            raise StoreError(f"{where}, {name}: expected finite numbers, found some that are not")
    elif spec.kind == "label":
        if len(array) and not 0 <= int(array.min()) <= int(array.max()) < spec.classes:
            raise StoreError(f"{where}, {name}: expected labels 0..{spec.classes - 1}, found {span(array)}")
        array = array.astype(np.int32, copy=False)
    elif spec.kind == "integer":
        if len(array) and int(array.max()) >= 2**63:
            raise StoreError(f"{where}, {name}: expected 64-bit integers, found {span(array)}")
        array = array.astype(np.int64, copy=False)
    return array


def wanted(spec: Spec) -> str:
    """A spec, for an error."""
    dtypes = {"float": "float32", "byte": "uint8", "label": "integers", "integer": "integers", "text": "text"}
    return f"{dtypes[spec.kind]} {('n', *spec.shape)}".replace("'", "")


def described(array: Feature) -> str:
    """A feature, for an error."""
    return f"{array.size} rows of text" if isinstance(array, Ragged) else f"{array.dtype} {array.shape}"


def span(array: np.ndarray) -> str:
    """The range of an array, for an error."""
    return f"{array.min()}..{array.max()}"


def uniform(path: Path, clients: Iterable[tuple[str, dict[str, Feature]]]) -> Iterator[tuple[str, dict[str, Feature]]]:
    """The clients unchanged; an error if one comes twice, or has other features than the first, or if none comes."""
    seen: set[str] = set()
    first: dict[str, str] = {}
    for id, arrays in clients:
        found = {name: layout(array) for name, array in arrays.items()}
        first = first or found
        if found != first:
            raise StoreError(f"{place(path, id)}: expected the features {first}, as before, found {found}")
        if id in seen:
            raise StoreError(f"{place(path, id)}: expected each client once, found it twice")
        seen.add(id)
        yield id, arrays
    if not seen:
        raise StoreError(f"{path}: expected at least one client, found none")


def layout(array: Feature) -> str:
    """What all clients' arrays of one feature share."""
    return f"ragged {array.values.dtype}" if isinstance(array, Ragged) else f"{array.dtype.name} {array.shape[1:]}"


def file_at(path: Path, expected: str) -> Path:
    """The path, if a regular file is there."""
    if not path.is_file():
        raise StoreError(f"{path}: expected {expected}, found {'something else' if path.exists() else 'nothing'}")
    return path
