"""Stores from columns: one row per example, and a column that says whose it is.

This is the layout of data frames, of Parquet files and of most datasets outside of federated learning.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from lur.data.ragged import Ragged, from_rows
from lur.data.splits import take
from lur.data.store import Store
from lur.data.store_error import StoreError
from lur.data.writer import in_memory


def from_columns(features: Mapping[str, Any], client: Any, about: Mapping[str, Any] | None = None) -> Store:
    """Return a store in memory from arrays with one row per example.

    Args:
      features: the features by name: arrays with a leading axis of examples, or lists of text (str or bytes).
      client: the id of each example's client, a number or text. Clients are sorted by id, numbers by their size; each
        keeps the order of its examples.
      about: the provenance of the data.
    """
    if not isinstance(features, Mapping) or not features:
        raise StoreError(f"features must be a dict of columns by name, got {type(features).__name__}")
    ids, rows = rows_of_clients(client)
    columns = {name: column_of(name, values) for name, values in features.items()}
    count = sum(len(own) for own in rows)
    for name, column in columns.items():
        length = column.size if isinstance(column, Ragged) else len(column)
        if length != count:
            raise StoreError(f"features must have one row per entry of client, {count:,}, got {length:,} of {name}")
    return in_memory(
        (
            (id, {name: take(column, own) for name, column in columns.items()})
            for id, own in zip(ids, rows, strict=True)
        ),
        about,
    )


def from_frame(frame: Any, client: str, about: Mapping[str, Any] | None = None) -> Store:
    """Return a store in memory from a pandas data frame, or from anything with named columns.

    Args:
      frame: one row per example.
      client: the name of the column with the client's id. The other columns are the features: numbers, text, or
        arrays of one shape.
      about: the provenance of the data.
    """
    names = [str(name) for name in frame.columns]
    if client not in names:
        raise StoreError(f"client must be a column of the frame, one of {', '.join(names)}, got {client!r}")
    features = {name: np.asarray(frame[name]) for name in names if name != client}
    if not features:
        raise StoreError(f"frame must have a column besides {client!r}, got none")
    return from_columns(features, np.asarray(frame[client]), about)


def rows_of_clients(client: Any) -> tuple[list[str], list[Int[np.ndarray, "n"]]]:
    """Return the sorted ids of the clients and the rows of each, increasing."""
    column = np.asarray(client)
    if column.ndim != 1 or not len(column) or column.dtype.kind not in "iuSUO":
        raise StoreError(
            f"client must be a column of integers or text, one per example, got {column.dtype} of shape {column.shape}"
        )
    if column.dtype.kind in "SO":
        column = np.array([text_of(value) for value in column.tolist()])
    values, client_of_row = np.unique(column, return_inverse=True)
    order = np.argsort(client_of_row, kind="stable")
    counts = np.bincount(client_of_row, minlength=len(values))
    return [str(value) for value in values.tolist()], np.split(order, np.cumsum(counts)[:-1])


def column_of(name: str, values: Any) -> np.ndarray | Ragged:
    """Return a column as an array or, if it is text, as a Ragged."""
    array = values if isinstance(values, np.ndarray) else None if is_text(values) else np.asarray(values)
    if array is not None and array.dtype.kind not in "SUO":
        return array
    rows = list(values) if array is None else array.tolist()
    if is_text(rows):
        return from_rows([row.encode() if isinstance(row, str) else row for row in rows])
    parts = [np.asarray(row) for row in rows]
    if any(part.dtype.kind in "SUO" or part.shape != parts[0].shape or part.dtype != parts[0].dtype for part in parts):
        raise StoreError(
            f"the feature {name}: expected numbers, text, or arrays of one shape and dtype, found "
            f"{', '.join(sorted({f'{type(row).__name__}' for row in rows}))}"
        )
    return np.stack(parts)


def is_text(rows: Any) -> bool:
    """Return whether these are rows of text."""
    return isinstance(rows, Sequence) and len(rows) > 0 and all(isinstance(row, str | bytes) for row in rows)


def text_of(value: Any) -> str:
    """Return a client's id, text or an integer, as text."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise StoreError(f"client must be a column of integers or text, got {value!r} in it")
    return str(value)
