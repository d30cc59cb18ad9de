"""TensorFlow Federated's SQLite files (``*.sqlite.lzma``, or ``*.sqlite`` once unpacked).

    examples        (split_name, client_id, serialized_example_proto)   one row per example
    client_metadata (client_id, split_name, num_examples)

The examples are `tf.train.Example`; `lur.data.readers.example_proto` reads them. Both tables are read once, in the
order of the clients, and must agree.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import numpy as np

from lur.data.ragged import from_rows
from lur.data.readers import archive
from lur.data.readers.example_proto import Malformed, Value, decode
from lur.data.readers.features import KINDS, LIMIT, ROW_BYTES, checked, file_at, kind_of, place, span, uniform
from lur.data.readers.sqlite_file import check_table, opened
from lur.data.store import Feature, StoreError
from lur.data.writer import Examples

COMPRESSED = (".lzma", ".xz")
UNPACKED_LIMIT = 200 * 10**9
METADATA = "SELECT DISTINCT client_id, num_examples FROM client_metadata WHERE split_name = ? ORDER BY client_id"
EXAMPLES = "SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? ORDER BY client_id, rowid"
SPLITS = "SELECT DISTINCT split_name FROM client_metadata ORDER BY split_name"


def clients(
    path: Path, split: str, *, limit: int = LIMIT, unpacked_limit: int = UNPACKED_LIMIT
) -> Iterator[tuple[str, Examples]]:
    """The clients of one split (``train``, ``all_train``, ``heldout``...), sorted by id.

    A compressed file is unpacked to a temporary one first, of at most `unpacked_limit` bytes: to read several splits,
    open `unpacked` around them. One client may take at most `limit` bytes.
    """
    with database(path, limit, unpacked_limit) as connection:
        if split.encode() not in (found := splits_of(connection, path)):
            names = ", ".join(text(path, "split_name", name) for name in found)
            raise StoreError(f"{path}: expected the split {split!r}, found {names or 'no split'}")
        yield from uniform(path, read(path, connection, split, limit))


def count(path: Path, split: str) -> int | None:
    """The number of clients; None for a compressed file, which would have to be unpacked."""
    if path.suffix in COMPRESSED:
        return None
    with database(path, LIMIT, 0) as connection:
        query = "SELECT COUNT(DISTINCT client_id) FROM client_metadata WHERE split_name = ?"
        return connection.execute(query, (split,)).fetchone()[0]


def splits(path: Path, *, unpacked_limit: int = UNPACKED_LIMIT) -> list[str]:
    """The names of the splits in a file."""
    with database(path, LIMIT, unpacked_limit) as connection:
        return [text(path, "split_name", name) for name in splits_of(connection, path)]


@contextmanager
def unpacked(path: Path, limit: int = UNPACKED_LIMIT) -> Iterator[Path]:
    """The SQLite file itself: the path, or where it is unpacked to for as long as the context lasts."""
    if path.suffix not in COMPRESSED:
        yield file_at(path, "a SQLite file")
        return
    with archive.extracted(path, limit=limit) as folder:
        yield next(folder.iterdir())


@contextmanager
def database(path: Path, limit: int, unpacked_limit: int) -> Iterator[sqlite3.Connection]:
    """The file opened, its tables checked."""
    with unpacked(path, unpacked_limit) as file:
        try:
            with opened(file, limit) as connection:
                check_table(connection, file, "examples", ("split_name", "client_id", "serialized_example_proto"))
                check_table(connection, file, "client_metadata", ("client_id", "split_name", "num_examples"))
                yield connection
        except StoreError as error:
            raise StoreError(str(error).replace(str(file), str(path))) from error


def splits_of(connection: sqlite3.Connection, path: Path) -> list[bytes]:
    """The splits as SQLite has them."""
    found = [row[0] for row in connection.execute(SPLITS)]
    if not all(isinstance(name, bytes) for name in found):
        raise StoreError(f"{path}: expected names of splits, found {found!r}")
    return found


def text(path: Path, column: str, value: object) -> str:
    """A text value as str."""
    try:
        if isinstance(value, bytes):
            return value.decode()
    except UnicodeDecodeError:
        pass
    raise StoreError(f"{path}: expected UTF-8 text in the column {column}, found {str(value)[:80]}")


def read(
    path: Path, connection: sqlite3.Connection, split: str, limit: int
) -> Iterator[tuple[str, dict[str, Feature]]]:
    """The clients of both tables, side by side."""
    metadata = connection.execute(METADATA, (split,))
    rows = connection.execute(EXAMPLES, (split,))
    before = None
    for client, examples in groupby(rows, key=lambda row: row[0]):
        id = text(path, "client_id", client)
        where = place(path, id)
        if before is not None and id <= before:
            raise StoreError(f"{where}: expected clients in sorted order, found it after {before!r}")
        before = id
        expected = metadata.fetchone()
        if expected is not None and isinstance(expected[0], bytes) and expected[0] < client:
            raise absent(path, expected)
        if expected is None or expected[0] != client:
            raise StoreError(f"{where}: expected the clients of client_metadata, which does not list it")
        yield id, checked(where, decoded(where, (row[1] for row in examples), expected[1], limit))
    if (left := metadata.fetchone()) is not None:
        raise absent(path, left)


def absent(path: Path, row: tuple[object, object]) -> StoreError:
    """The error of a client that only the metadata has."""
    return StoreError(f"{place(path, text(path, 'client_id', row[0]))}: expected {row[1]!r} examples, found none")


def decoded(where: str, protos: Iterator[object], expected: object, limit: int) -> dict[str, Feature]:
    """One client's examples, as many as the metadata says."""
    rows: list[dict[str, Value]] = []
    size = 0
    for proto in protos:
        if not isinstance(proto, bytes):
            raise StoreError(f"{where}, example {len(rows)}: expected a serialized proto, found {type(proto).__name__}")
        size += len(proto) + ROW_BYTES
        if size > limit:
            raise StoreError(f"{where}: expected at most {limit} bytes of examples, found more")
        try:
            rows.append(decode(proto))
        except Malformed as error:
            raise StoreError(f"{where}, example {len(rows)}: expected a tf.train.Example, {error}") from error
    if len(rows) != expected:
        raise StoreError(f"{where}: expected {expected!r} examples, as in client_metadata, found {len(rows)}")
    return {name: column(where, name, rows) for name in rows[0]}


def column(where: str, name: str, rows: list[dict[str, Value]]) -> Feature:
    """One feature of all the examples."""
    if any(len(row) != len(rows[0]) or name not in row for row in rows):
        raise StoreError(f"{where}: expected the features {sorted(rows[0])} in every example")
    values = [row[name] for row in rows]
    if isinstance(values[0], list):
        texts = [value[0] for value in values if isinstance(value, list) and len(value) == 1]
        if len(texts) != len(rows):
            raise StoreError(f"{where}, {name}: expected one text in every example")
        return from_rows(texts)
    arrays = [value for value in values if isinstance(value, np.ndarray) and value.dtype == values[0].dtype]
    if len(arrays) != len(rows) or len({len(array) for array in arrays}) != 1:
        raise StoreError(f"{where}, {name}: expected equally many numbers of one kind in every example")
    array = np.stack(arrays)
    spec = KINDS.get(kind_of(rows[0]), {}).get(name)
    if spec is not None and spec.shape and array.shape[1] == np.prod(spec.shape):
        array = array.reshape(-1, *spec.shape)
    if spec is not None and spec.kind == "byte" and array.dtype == np.int64:
        if array.min(initial=0) < 0 or array.max(initial=0) > 255:
            raise StoreError(f"{where}, {name}: expected bytes 0..255, found {span(array)}")
        array = array.astype(np.uint8)
    return array[:, 0] if array.shape[1:] == (1,) else array
