"""Checks that a raw store holds the features that its preparation needs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np

from lur.data.ragged import Ragged
from lur.data.store import Feature, Store, StoreError

Clients = Iterator[tuple[str, dict[str, Feature]]]
"""Clients one at a time, each as (client id, examples)."""


def first_texts(examples: Mapping[str, Feature], name: str, limit: int | None) -> Ragged:
    """Return the first `limit` rows of a client's text feature, or all of them if the limit is None."""
    column = cast(Ragged, examples[name])
    return column if limit is None else column.rows(0, min(limit, column.size))


def store_location(store: Store) -> str:
    """Return where a store is, for an error message."""
    return str(store.path or "the store in memory")


def check_text(store: Store, name: str) -> None:
    """Raise a StoreError unless the store has the text feature `name`."""
    column = store.features.get(name)
    if not isinstance(column, Ragged) or column.values.dtype != np.uint8:
        raise StoreError(f"{store_location(store)}: expected the text {name}, found {feature_list(store)}")


def check_dense(store: Store, name: str, shape: tuple[int, ...], dtypes: Sequence[str]) -> None:
    """Raise a StoreError unless the store has the dense feature `name`, its examples of this shape and dtype."""
    column = store.features.get(name)
    if isinstance(column, Ragged) or column is None or column.shape[1:] != shape or column.dtype.name not in dtypes:
        expected = f"{name} {'|'.join(dtypes)} ({', '.join(map(str, ('n', *shape)))})"
        raise StoreError(f"{store_location(store)}: expected {expected}, found {feature_list(store)}")


def check_labels(store: Store, name: str, classes: int) -> None:
    """Raise a StoreError unless the store has integer labels `name` in 0, ..., classes - 1."""
    check_dense(store, name, (), ("uint8", "uint16", "uint32", "int8", "int16", "int32", "int64"))
    labels = cast(np.ndarray, store.features[name])
    if labels.min(initial=0) < 0 or labels.max(initial=0) >= classes:
        raise StoreError(
            f"{store_location(store)}: expected {name} in 0..{classes - 1}, found {labels.min()}..{labels.max()}"
        )


def feature_list(store: Store) -> str:
    """Return the features of a store with their dtypes and shapes, for an error message."""
    entries = [
        f"{name} ragged {column.values.dtype}"
        if isinstance(column, Ragged)
        else f"{name} {column.dtype} {column.shape}"
        for name, column in store.features.items()
    ]
    return ", ".join(entries) or "no feature"


def check_positive(name: str, value: int) -> None:
    """Raise a ValueError unless the argument `name` is an integer >= 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be an integer >= 1, got {value!r}")


def check_limit(max_examples: int | None) -> None:
    """Raise a ValueError unless `max_examples` is an integer >= 1, or None for no limit."""
    if max_examples is not None:
        check_positive("max_examples", max_examples)
