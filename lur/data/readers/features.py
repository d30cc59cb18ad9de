"""The features of the known datasets, and the checks that all readers share."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from lur.data.ragged import Ragged
from lur.data.store import DTYPES, NAME, Feature, StoreError, feature_length

MAX_CLIENT_BYTES = 2**30
"""The bytes that one client may occupy in memory: far above any real client, far below a decompression bomb."""

ROW_BYTES = 64
"""The bytes that a row of text counts in addition to its content, so that empty rows count too."""


class Spec(NamedTuple):
    """The specification of a feature of a known dataset.

    Attributes:
      kind: the kind of values.
      shape: the shape of one example.
      classes: the number of classes, for labels.
    """

    kind: Literal["float", "byte", "label", "integer", "text"]
    shape: tuple[int, ...] = ()
    classes: int = 0


TEXT = Spec("text")
SPECS: dict[str, dict[str, Spec]] = {
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


def dataset_with(names: Iterable[str]) -> str:
    """Return the dataset that has exactly these features, a key of `SPECS`, or "other"."""
    features = set(names)
    return next((dataset for dataset, specs in SPECS.items() if set(specs) == features), "other")


def client_location(path: Path, id: str) -> str:
    """Return the file and the client, for an error message."""
    return f"{path}, client {id!r}"


def checked_features(location: str, arrays: Mapping[str, Feature]) -> dict[str, Feature]:
    """Return one client's features, sorted by name and checked.

    Features of a known dataset get its dtypes and shapes: labels become int32, and trailing axes of size 1 are removed.
    Other features are returned as they are if a store can hold them. A client without examples has no features.

    Args:
      location: the file and the client, for error messages.
      arrays: the features by name.
    """
    if not arrays:
        raise StoreError(f"{location}: expected at least one feature, found none")
    for name in arrays:
        if not NAME.fullmatch(name) or name in ("offsets", "ids"):
            raise StoreError(f"{location}: expected a feature name of letters, digits and _, found {name!r}")
    specs = SPECS.get(dataset_with(arrays), {})
    features = {name: conformed(location, name, specs.get(name), arrays[name]) for name in sorted(arrays)}
    lengths = {name: feature_length(array) for name, array in features.items()}
    if len(set(lengths.values())) != 1:
        raise StoreError(f"{location}: expected equally many examples of each feature, found {lengths}")
    return {} if 0 in lengths.values() else features


def conformed(location: str, name: str, spec: Spec | None, array: Feature) -> Feature:
    """Return a feature converted to its specification; without one, as it is if a store can hold it."""
    values = array.values if isinstance(array, Ragged) else array
    if values.dtype.name not in DTYPES:
        raise StoreError(
            f"{location}, {name}: expected a dtype among {', '.join(DTYPES)} or text, found {values.dtype}"
        )
    if spec is None:
        return array
    if isinstance(array, Ragged) or spec.kind == "text":
        if spec.kind != "text" or not isinstance(array, Ragged) or values.dtype != np.uint8:
            raise StoreError(f"{location}, {name}: expected {describe_spec(spec)}, found {describe_feature(array)}")
        return array
    while array.ndim > 1 + len(spec.shape) and array.shape[-1] == 1:
        array = array[..., 0]
    if array.shape[1:] != spec.shape or array.dtype.kind not in {"float": "f", "byte": "u"}.get(spec.kind, "iu"):
        raise StoreError(f"{location}, {name}: expected {describe_spec(spec)}, found {describe_feature(array)}")
    if spec.kind == "byte" and array.dtype.itemsize != 1:
        raise StoreError(f"{location}, {name}: expected {describe_spec(spec)}, found {describe_feature(array)}")
    if spec.kind == "float":
        with np.errstate(over="ignore"):
            array = array.astype(np.float32, copy=False)
        if not np.isfinite(array).all():
            raise StoreError(f"{location}, {name}: expected finite numbers, found some that are not")
    elif spec.kind == "label":
        if len(array) and not 0 <= int(array.min()) <= int(array.max()) < spec.classes:
            raise StoreError(f"{location}, {name}: expected labels 0..{spec.classes - 1}, found {value_range(array)}")
        array = array.astype(np.int32, copy=False)
    elif spec.kind == "integer":
        if len(array) and int(array.max()) >= 2**63:
            raise StoreError(f"{location}, {name}: expected 64-bit integers, found {value_range(array)}")
        array = array.astype(np.int64, copy=False)
    return array


def describe_spec(spec: Spec) -> str:
    """Return a specification as text, for an error message."""
    dtypes = {"float": "float32", "byte": "uint8", "label": "integers", "integer": "integers", "text": "text"}
    return f"{dtypes[spec.kind]} {('n', *spec.shape)}".replace("'", "")


def describe_feature(array: Feature) -> str:
    """Return the dtype and shape of a feature, for an error message."""
    return f"{array.size} rows of text" if isinstance(array, Ragged) else f"{array.dtype} {array.shape}"


def value_range(array: np.ndarray) -> str:
    """Return the range of an array, for an error message."""
    return f"{array.min()}..{array.max()}"


def with_equal_features(
    path: Path, clients: Iterable[tuple[str, dict[str, Feature]]]
) -> Iterator[tuple[str, dict[str, Feature]]]:
    """Yield the clients unchanged, also those without examples, which have no features.

    Raises:
      StoreError: there is no client, a client occurs twice, or its features differ from those of the first client that
        has examples.
    """
    seen: set[str] = set()
    first: dict[str, str] = {}
    for id, arrays in clients:
        layouts = {name: feature_layout(array) for name, array in arrays.items()}
        first = first or layouts
        if layouts and layouts != first:
            raise StoreError(f"{client_location(path, id)}: expected the features {first}, as before, found {layouts}")
        if id in seen:
            raise StoreError(f"{client_location(path, id)}: expected each client once, found it twice")
        seen.add(id)
        yield id, arrays
    if not seen:
        raise StoreError(f"{path}: expected at least one client, found none")


def feature_layout(array: Feature) -> str:
    """Return the dtype and shape that all clients must share in a feature."""
    return f"ragged {array.values.dtype}" if isinstance(array, Ragged) else f"{array.dtype.name} {array.shape[1:]}"


def existing_file(path: Path, expected: str) -> Path:
    """Return the path if it is a regular file; otherwise raise a StoreError that says what was expected."""
    if not path.is_file():
        raise StoreError(f"{path}: expected {expected}, found {'no regular file' if path.exists() else 'nothing'}")
    return path
