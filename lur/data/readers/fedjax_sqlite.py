"""FedJAX's SQLite files: one row per client, its features serialized with msgpack and compressed with zlib.

    federated_data (client_id BLOB, data BLOB, num_examples INTEGER)

The data are a map from feature names to extension values: type 1 is an array, (shape, dtype name, bytes in C order),
and type 4 an array of bytes, (shape, [bytes...]). Nothing else can be a feature, so that only this much of msgpack is
read here, value by value: a general decoder would first build whatever objects the file asks for.
"""

import struct
import zlib
from array import array
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np

from lur.data.ragged import Ragged
from lur.data.readers.features import LIMIT, ROW_BYTES, checked, place, uniform
from lur.data.readers.sqlite_file import check_table, opened
from lur.data.store import DTYPES, Feature, StoreError, feature_length
from lur.data.writer import Examples

COLUMNS = ("client_id", "data", "num_examples")
ARRAY, BYTES_ARRAY = 1, 4
MOST_FEATURES, MOST_AXES = 1000, 8


def clients(path: Path, *, limit: int = LIMIT) -> Iterator[tuple[str, Examples]]:
    """The clients in the order of the file, each of at most `limit` bytes once decompressed."""
    with opened(path, limit) as connection:
        check_table(connection, path, "federated_data", COLUMNS)
        rows = connection.execute("SELECT client_id, data, num_examples FROM federated_data ORDER BY rowid")
        yield from uniform(path, (client(path, row, limit) for row in rows))


def count(path: Path) -> int | None:
    """The number of clients."""
    with opened(path, LIMIT) as connection:
        check_table(connection, path, "federated_data", COLUMNS)
        return connection.execute("SELECT COUNT(*) FROM federated_data").fetchone()[0]


def client(path: Path, row: tuple[object, object, object], limit: int) -> tuple[str, dict[str, Feature]]:
    """One row. An id is bytes: UTF-8 becomes text, and bytes that are not UTF-8 are written as backslash escapes."""
    name, data, expected = row
    if not isinstance(name, bytes):
        raise StoreError(f"{path}: expected a client_id of bytes, found {name!r}")
    id = name.decode(errors="backslashreplace")
    where = place(path, id)
    if not isinstance(data, bytes):
        raise StoreError(f"{where}: expected data of bytes, found {type(data).__name__}")
    try:
        arrays = checked(where, decode(inflated(data, limit), limit))
    except (Malformed, zlib.error) as error:
        raise StoreError(f"{where}: expected a msgpack map of arrays, {error}") from error
    found = feature_length(next(iter(arrays.values())))
    if found != expected:
        raise StoreError(f"{where}: expected {expected!r} examples, as in num_examples, found {found}")
    return id, arrays


class Malformed(ValueError):
    """Bytes that are not a map of arrays."""


def inflated(data: bytes, limit: int) -> bytes:
    """The content of a zlib stream, of at most `limit` bytes, and of nothing after it."""
    stream = zlib.decompressobj()
    content = stream.decompress(data, limit)
    if not stream.eof and stream.unconsumed_tail:
        raise Malformed(f"expected at most {limit} bytes when decompressed, found more")
    if not stream.eof or stream.unused_data:
        raise Malformed("expected one whole zlib stream")
    return content


class Cursor:
    """A place in msgpack data, and the readers of the few types that can come there."""

    def __init__(self, data: memoryview):
        self.data, self.at = data, 0

    def take(self, size: int) -> memoryview:
        if size > len(self.data) - self.at:
            raise Malformed(f"expected {size} more bytes, found {len(self.data) - self.at}")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, form: str) -> int:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def length(self, what: str, fixed: range, sized: dict[int, str]) -> int:
        """The length of a value, from its first byte: in the byte itself, or in the 1, 2 or 4 that follow."""
        head = self.number("B")
        if head in fixed:
            return head - fixed.start
        if head not in sized:
            raise Malformed(f"expected {what}, found the type 0x{head:02x}")
        return self.number(sized[head])

    def map(self) -> int:
        return self.length("a map", range(0x80, 0x90), {0xDE: ">H", 0xDF: ">I"})

    def array(self) -> int:
        return self.length("an array", range(0x90, 0xA0), {0xDC: ">H", 0xDD: ">I"})

    def string(self) -> str:
        content = bytes(self.take(self.length("text", range(0xA0, 0xC0), {0xD9: "B", 0xDA: ">H", 0xDB: ">I"})))
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"expected UTF-8 text, found {content[:80]!r}") from error

    def bytes(self) -> memoryview:
        return self.take(self.length("bytes", range(0), {0xC4: "B", 0xC5: ">H", 0xC6: ">I"}))

    def integer(self) -> int:
        return self.length("a size", range(0, 0x80), {0xCC: "B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"})

    def extension(self) -> tuple[int, memoryview]:
        head = self.number("B")
        if 0xD4 <= head <= 0xD8:
            size = 1 << (head - 0xD4)
        elif 0xC7 <= head <= 0xC9:
            size = self.number({0xC7: "B", 0xC8: ">H", 0xC9: ">I"}[head])
        else:
            raise Malformed(f"expected an array, found the type 0x{head:02x}")
        return self.number("b"), self.take(size)

    def end(self) -> None:
        if self.at != len(self.data):
            raise Malformed(f"expected the end, found {len(self.data) - self.at} more bytes")


def decode(data: bytes, limit: int = LIMIT) -> dict[str, Feature]:
    """The features of one client."""
    cursor = Cursor(memoryview(data))
    size = cursor.map()
    if size > MOST_FEATURES:
        raise Malformed(f"expected at most {MOST_FEATURES} features, found {size}")
    features: dict[str, Feature] = {}
    for _ in range(size):
        name = cursor.string()
        if name in features:
            raise Malformed(f"expected the feature {name!r} once, found it twice")
        kind, content = cursor.extension()
        if kind not in (ARRAY, BYTES_ARRAY):
            raise Malformed(f"expected an array of numbers or of bytes for {name!r}, found the extension {kind}")
        features[name] = dense(name, content) if kind == ARRAY else texts(name, content, limit)
    cursor.end()
    return features


def shape_of(name: str, cursor: Cursor, parts: int) -> tuple[int, ...]:
    """The shape that opens both kinds of array, which have `parts` parts."""
    if cursor.array() != parts:
        raise Malformed(f"expected {parts} parts of the array {name!r}")
    axes = cursor.array()
    if not 1 <= axes <= MOST_AXES:
        raise Malformed(f"expected 1 to {MOST_AXES} axes of {name!r}, found {axes}")
    return tuple(cursor.integer() for _ in range(axes))


def dense(name: str, content: memoryview) -> np.ndarray:
    """An array of numbers, as large as its shape says."""
    cursor = Cursor(content)
    shape = shape_of(name, cursor, 3)
    dtype = cursor.string()
    if dtype not in DTYPES:
        raise Malformed(f"expected a dtype among {', '.join(DTYPES)} for {name!r}, found {dtype[:80]!r}")
    values = cursor.bytes()
    cursor.end()
    kind = np.dtype(dtype).newbyteorder("<")
    if prod(shape) * kind.itemsize != len(values) or prod(size or 1 for size in shape) >= 2**48:
        raise Malformed(f"expected the bytes of {dtype} {shape} for {name!r}, found {len(values)} bytes")
    if dtype == "bool" and any(values.tobytes().translate(None, b"\0\1")):
        raise Malformed(f"expected booleans for {name!r}, found other bytes")
    return np.frombuffer(values, kind).reshape(shape).astype(dtype, copy=False)


def texts(name: str, content: memoryview, limit: int) -> Ragged:
    """An array of bytes: rows of text, whose trailing axes, if any, are of size 1."""
    cursor = Cursor(content)
    shape = shape_of(name, cursor, 2)
    rows = cursor.array()
    if any(size != 1 for size in shape[1:]) or shape[0] != rows:
        raise Malformed(f"expected a column of texts for {name!r}, found the shape {shape} and {rows} texts")
    if rows * ROW_BYTES + len(content) > limit:
        raise Malformed(f"expected at most {limit} bytes of {name!r}, found {rows} texts")
    offsets, joined = array("q", [0]), bytearray()
    for _ in range(rows):
        joined += cursor.bytes()
        offsets.append(len(joined))
    cursor.end()
    return Ragged(np.frombuffer(bytes(joined), np.uint8), np.array(offsets, np.int64))
