"""TensorFlow Federated's SQLite files (``*.sqlite.lzma``, or ``*.sqlite`` once unpacked).

    examples        (split_name, client_id, serialized_example_proto)   one row per example
    client_metadata (client_id, split_name, num_examples)

The examples are `tf.train.Example`, which `lur.data.readers.example_proto` decodes. Both tables are read in one pass,
in the order of the clients, and must agree.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import numpy as np

from lur.data.ragged import from_rows
from lur.data.readers import archive
from lur.data.readers.example_proto import MalformedExampleError, Value, decode
from lur.data.readers.features import (
    MAX_CLIENT_BYTES,
    ROW_BYTES,
    SPECS,
    checked_features,
    client_location,
    dataset_with,
    existing_file,
    value_range,
    with_equal_features,
)
from lur.data.readers.sqlite_file import check_table, read_only_connection
from lur.data.store import Feature, StoreError
from lur.data.writer import Examples

COMPRESSED = (".lzma", ".xz")
MAX_UNPACKED_BYTES = 200 * 10**9
METADATA = "SELECT DISTINCT client_id, num_examples FROM client_metadata WHERE split_name = ? ORDER BY client_id"
EXAMPLES = "SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? ORDER BY client_id, rowid"
SPLITS = "SELECT DISTINCT split_name FROM client_metadata ORDER BY split_name"


def clients(
    path: Path, split: str, *, limit: int = MAX_CLIENT_BYTES, unpacked_limit: int = MAX_UNPACKED_BYTES
) -> Iterator[tuple[str, Examples]]:
    """Yield the clients of one split, sorted by id. A client without examples is yielded without features.

    Args:
      path: the file. A compressed file is unpacked to a temporary file first; to read several splits of it, unpack it
        once with `unpacked`.
      split: the name of the split, such as ``train``, ``all_train`` or ``heldout``.
      limit: the largest number of bytes of a client.
      unpacked_limit: the largest number of bytes of the unpacked file.
    """
    with database(path, limit, unpacked_limit) as connection:
        if split.encode() not in (available := split_names(connection, path)):
            names = ", ".join(decode_text(path, "split_name", name) for name in available)
            raise StoreError(f"{path}: expected the split {split!r}, found {names or 'no split'}")
        yield from with_equal_features(path, read_clients(path, connection, split, limit))


def count(path: Path, split: str) -> int | None:
    """Return the number of clients, or None for a compressed file, which would have to be unpacked."""
    if path.suffix in COMPRESSED:
        return None
    with database(path, MAX_CLIENT_BYTES, 0) as connection:
        query = "SELECT COUNT(DISTINCT client_id) FROM client_metadata WHERE split_name = ?"
        return connection.execute(query, (split,)).fetchone()[0]


def splits(path: Path, *, unpacked_limit: int = MAX_UNPACKED_BYTES) -> list[str]:
    """Return the names of the splits in a file."""
    with database(path, MAX_CLIENT_BYTES, unpacked_limit) as connection:
        return [decode_text(path, "split_name", name) for name in split_names(connection, path)]


@contextmanager
def unpacked(path: Path, limit: int = MAX_UNPACKED_BYTES) -> Iterator[Path]:
    """Yield the path of the SQLite file, unpacked to a temporary file if it is compressed."""
    if path.suffix not in COMPRESSED:
        yield existing_file(path, "a SQLite file")
        return
    with archive.extracted(path, limit=limit) as folder:
        yield next(folder.iterdir())


@contextmanager
def database(path: Path, limit: int, unpacked_limit: int) -> Iterator[sqlite3.Connection]:
    """Yield a connection to the file, whose tables are checked."""
    with unpacked(path, unpacked_limit) as file:
        try:
            with read_only_connection(file, limit) as connection:
                check_table(connection, file, "examples", ("split_name", "client_id", "serialized_example_proto"))
                check_table(connection, file, "client_metadata", ("client_id", "split_name", "num_examples"))
                yield connection
        except StoreError as error:
            raise StoreError(str(error).replace(str(file), str(path))) from error


def split_names(connection: sqlite3.Connection, path: Path) -> list[bytes]:
    """Return the names of the splits as SQLite stores them."""
    names = [row[0] for row in connection.execute(SPLITS)]
    if not all(isinstance(name, bytes) for name in names):
        raise StoreError(f"{path}: expected names of splits, found {names!r}")
    return names


def decode_text(path: Path, column: str, value: object) -> str:
    """Return a text value as str."""
    try:
        if isinstance(value, bytes):
            return value.decode()
    except UnicodeDecodeError:
        pass
    raise StoreError(f"{path}: expected UTF-8 text in the column {column}, found {str(value)[:80]}")


def read_clients(
    path: Path, connection: sqlite3.Connection, split: str, limit: int
) -> Iterator[tuple[str, dict[str, Feature]]]:
    """Yield the clients, reading both tables in parallel. A client without examples has no features."""
    metadata = connection.execute(METADATA, (split,))
    examples = groupby(connection.execute(EXAMPLES, (split,)), key=lambda row: row[0])
    present, previous = next(examples, None), None
    for client, expected in metadata:
        id = decode_text(path, "client_id", client)
        location = client_location(path, id)
        if previous is not None and id <= previous:
            raise StoreError(f"{location}: expected clients in sorted order, found it after {previous!r}")
        previous = id
        if present is not None and decode_text(path, "client_id", present[0]) < id:
            raise unlisted_client(path, present[0])
        if present is not None and present[0] == client:
            protos = (row[1] for row in present[1])
            yield id, checked_features(location, decode_examples(location, protos, expected, limit))
            present = next(examples, None)
        elif expected == 0:
            yield id, {}
        else:
            raise StoreError(f"{location}: expected {expected!r} examples, as in client_metadata, found none")
    if present is not None:
        raise unlisted_client(path, present[0])


def unlisted_client(path: Path, client: object) -> StoreError:
    """Return the error of a client that has examples and is not in the metadata."""
    location = client_location(path, decode_text(path, "client_id", client))
    return StoreError(f"{location}: expected the clients of client_metadata, which does not list it")


def decode_examples(location: str, protos: Iterator[object], expected: object, limit: int) -> dict[str, Feature]:
    """Return the features of one client, whose number of examples must be that of the metadata."""
    rows: list[dict[str, Value]] = []
    size = 0
    for proto in protos:
        if not isinstance(proto, bytes):
            raise StoreError(
                f"{location}, example {len(rows)}: expected a serialized proto, found {type(proto).__name__}"
            )
        size += len(proto) + ROW_BYTES
        if size > limit:
            raise StoreError(f"{location}: expected at most {limit} bytes of examples, found more")
        try:
            rows.append(decode(proto))
        except MalformedExampleError as error:
            raise StoreError(f"{location}, example {len(rows)}: expected a tf.train.Example, {error}") from error
    if len(rows) != expected:
        raise StoreError(f"{location}: expected {expected!r} examples, as in client_metadata, found {len(rows)}")
    return {name: feature_column(location, name, rows) for name in rows[0]}


def feature_column(location: str, name: str, rows: list[dict[str, Value]]) -> Feature:
    """Return one feature of all examples."""
    if any(len(row) != len(rows[0]) or name not in row for row in rows):
        raise StoreError(f"{location}: expected the features {sorted(rows[0])} in every example")
    values = [row[name] for row in rows]
    if isinstance(values[0], list):
        texts = [value[0] for value in values if isinstance(value, list) and len(value) == 1]
        if len(texts) != len(rows):
            raise StoreError(f"{location}, {name}: expected one text in every example")
        return from_rows(texts)
    arrays = [value for value in values if isinstance(value, np.ndarray) and value.dtype == values[0].dtype]
    if len(arrays) != len(rows) or len({len(array) for array in arrays}) != 1:
        raise StoreError(f"{location}, {name}: expected the same number of values, of one kind, in every example")
    array = np.stack(arrays)
    spec = SPECS.get(dataset_with(rows[0]), {}).get(name)
    if spec is not None and spec.shape and array.shape[1] == np.prod(spec.shape):
        array = array.reshape(-1, *spec.shape)
    if spec is not None and spec.kind == "byte" and array.dtype == np.int64:
        if array.min(initial=0) < 0 or array.max(initial=0) > 255:
            raise StoreError(f"{location}, {name}: expected bytes 0..255, found {value_range(array)}")
        array = array.astype(np.uint8)
    return array[:, 0] if array.shape[1:] == (1,) else array
