"""What a raw store must hold before it can be prepared, and what to say when it does not."""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np

from lur.data.ragged import Ragged
from lur.data.store import Feature, Store, StoreError

Clients = Iterator[tuple[str, dict[str, Feature]]]


def texts(examples: Mapping[str, Feature], name: str, limit: int | None) -> Ragged:
    """A client's first `limit` texts."""
    column = cast(Ragged, examples[name])
    return column if limit is None else column.rows(0, min(limit, column.size))


def place(store: Store) -> str:
    """Where a store is, for a message."""
    return str(store.path or "the store in memory")


def check_text(store: Store, name: str) -> None:
    """The store must have this text."""
    column = store.features.get(name)
    if not isinstance(column, Ragged) or column.values.dtype != np.uint8:
        raise StoreError(f"{place(store)}: expected the text {name}, found {described(store)}")


def check_dense(store: Store, name: str, shape: tuple[int, ...], dtypes: Sequence[str]) -> None:
    """The store must have this array."""
    column = store.features.get(name)
    if isinstance(column, Ragged) or column is None or column.shape[1:] != shape or column.dtype.name not in dtypes:
        raise StoreError(
            f"{place(store)}: expected {name} {'|'.join(dtypes)} {(..., *shape)}, found {described(store)}"
        )


def described(store: Store) -> str:
    """The features that there are, for a message."""
    found = [
        f"{name} ragged {column.values.dtype}"
        if isinstance(column, Ragged)
        else f"{name} {column.dtype} {column.shape}"
        for name, column in store.features.items()
    ]
    return ", ".join(found) or "no feature"


def check_positive(name: str, value: int) -> None:
    """A length must be a whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")


def check_limit(max_examples: int | None) -> None:
    """A limit is a whole number from 1, or None for all."""
    if max_examples is not None:
        check_positive("max_examples", max_examples)
