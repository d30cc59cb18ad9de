"""FedJAX's SQLite files: one row per client, its features serialized with msgpack and compressed with zlib.

    federated_data (client_id BLOB, data BLOB, num_examples INTEGER)

The data are a map from feature names to extension values: type 1 is an array, (shape, dtype name, bytes in C order),
and type 4 an array of bytes, (shape, [bytes...]). Nothing else can be a feature, so only this part of msgpack is
decoded here, value by value: a general decoder would first build any object that the file describes.
"""

import struct
import zlib
from array import array
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np

from lur.data.ragged import Ragged
from lur.data.readers.features import (
    MAX_CLIENT_BYTES,
    ROW_BYTES,
    checked_features,
    client_location,
    with_equal_features,
)
from lur.data.readers.sqlite_file import check_table, read_only_connection
from lur.data.store import DTYPES, Feature, StoreError, feature_length
from lur.data.writer import Examples

COLUMNS = ("client_id", "data", "num_examples")
ARRAY, BYTES_ARRAY = 1, 4
MAX_FEATURES, MAX_AXES = 1000, 8


def clients(path: Path, *, limit: int = MAX_CLIENT_BYTES) -> Iterator[tuple[str, Examples]]:
    """Yield the clients in the order of the file, each of at most `limit` bytes when decompressed.

    A client without examples is yielded without features.
    """
    with read_only_connection(path, limit) as connection:
        check_table(connection, path, "federated_data", COLUMNS)
        rows = connection.execute("SELECT client_id, data, num_examples FROM federated_data ORDER BY rowid")
        yield from with_equal_features(path, (decode_client(path, row, limit) for row in rows))


def count(path: Path) -> int | None:
    """Return the number of clients."""
    with read_only_connection(path, MAX_CLIENT_BYTES) as connection:
        check_table(connection, path, "federated_data", COLUMNS)
        return connection.execute("SELECT COUNT(*) FROM federated_data").fetchone()[0]


def decode_client(path: Path, row: tuple[object, object, object], limit: int) -> tuple[str, dict[str, Feature]]:
    """Return the client id and the features of one row. Bytes of an id that are not UTF-8 become backslash escapes."""
    name, data, expected = row
    if not isinstance(name, bytes):
        raise StoreError(f"{path}: expected a client_id of bytes, found {name!r}")
    id = name.decode(errors="backslashreplace")
    location = client_location(path, id)
    if not isinstance(data, bytes):
        raise StoreError(f"{location}: expected data of bytes, found {type(data).__name__}")
    try:
        arrays = checked_features(location, decode(decompressed(data, limit), limit))
    except (MalformedMsgpackError, zlib.error) as error:
        raise StoreError(f"{location}: expected a msgpack map of arrays, {error}") from error
    found = feature_length(next(iter(arrays.values()))) if arrays else 0
    if found != expected:
        raise StoreError(f"{location}: expected {expected!r} examples, as in num_examples, found {found}")
    return id, arrays


class MalformedMsgpackError(ValueError):
    """Bytes that are not a msgpack map of arrays."""


def decompressed(data: bytes, limit: int) -> bytes:
    """Return the content of a zlib stream, of at most `limit` bytes. Nothing may follow the stream."""
    stream = zlib.decompressobj()
    content = stream.decompress(data, limit)
    if not stream.eof and stream.unconsumed_tail:
        raise MalformedMsgpackError(f"expected at most {limit} bytes when decompressed, found more")
    if not stream.eof or stream.unused_data:
        raise MalformedMsgpackError("expected one whole zlib stream")
    return content


class Cursor:
    """A position in msgpack data, and readers of the types that can occur there."""

    def __init__(self, data: memoryview):
        self.data, self.position = data, 0

    def take(self, size: int) -> memoryview:
        if size > len(self.data) - self.position:
            raise MalformedMsgpackError(f"expected {size} more bytes, found {len(self.data) - self.position}")
        self.position += size
        return self.data[self.position - size : self.position]

    def number(self, form: str) -> int:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def length(self, expected: str, fixed: range, sized: dict[int, str]) -> int:
        """Return the length of a value, from its first byte or from the 1, 2 or 4 bytes that follow."""
        head = self.number("B")
        if head in fixed:
            return head - fixed.start
        if head not in sized:
            raise MalformedMsgpackError(f"expected {expected}, found the type 0x{head:02x}")
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
            raise MalformedMsgpackError(f"expected UTF-8 text, found {content[:80]!r}") from error

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
            raise MalformedMsgpackError(f"expected an array, found the type 0x{head:02x}")
        return self.number("b"), self.take(size)

    def end(self) -> None:
        if self.position != len(self.data):
            raise MalformedMsgpackError(f"expected the end, found {len(self.data) - self.position} more bytes")


def decode(data: bytes, limit: int = MAX_CLIENT_BYTES) -> dict[str, Feature]:
    """Return the features of one client."""
    cursor = Cursor(memoryview(data))
    size = cursor.map()
    if size > MAX_FEATURES:
        raise MalformedMsgpackError(f"expected at most {MAX_FEATURES} features, found {size}")
    features: dict[str, Feature] = {}
    for _ in range(size):
        name = cursor.string()
        if name in features:
            raise MalformedMsgpackError(f"expected the feature {name!r} once, found it twice")
        kind, content = cursor.extension()
        if kind not in (ARRAY, BYTES_ARRAY):
            raise MalformedMsgpackError(
                f"expected an array of numbers or of bytes for {name!r}, found the extension {kind}"
            )
        features[name] = decode_numbers(name, content) if kind == ARRAY else decode_texts(name, content, limit)
    cursor.end()
    return features


def read_shape(name: str, cursor: Cursor, parts: int) -> tuple[int, ...]:
    """Return the shape, with which both kinds of array begin; such an array has `parts` parts."""
    if cursor.array() != parts:
        raise MalformedMsgpackError(f"expected {parts} parts of the array {name!r}")
    axes = cursor.array()
    if not 1 <= axes <= MAX_AXES:
        raise MalformedMsgpackError(f"expected 1 to {MAX_AXES} axes of {name!r}, found {axes}")
    return tuple(cursor.integer() for _ in range(axes))


def decode_numbers(name: str, content: memoryview) -> np.ndarray:
    """Return an array of numbers. Its size must agree with its shape."""
    cursor = Cursor(content)
    shape = read_shape(name, cursor, 3)
    dtype = cursor.string()
    if dtype not in DTYPES:
        raise MalformedMsgpackError(f"expected a dtype among {', '.join(DTYPES)} for {name!r}, found {dtype[:80]!r}")
    values = cursor.bytes()
    cursor.end()
    kind = np.dtype(dtype).newbyteorder("<")
    if prod(shape) * kind.itemsize != len(values) or prod(size or 1 for size in shape) >= 2**48:
        raise MalformedMsgpackError(f"expected the bytes of {dtype} {shape} for {name!r}, found {len(values)} bytes")
    if dtype == "bool" and any(values.tobytes().translate(None, b"\0\1")):
        raise MalformedMsgpackError(f"expected booleans for {name!r}, found other bytes")
    return np.frombuffer(values, kind).reshape(shape).astype(dtype, copy=False)


def decode_texts(name: str, content: memoryview, limit: int) -> Ragged:
    """Return an array of bytes as rows of text. Trailing axes must be of size 1."""
    cursor = Cursor(content)
    shape = read_shape(name, cursor, 2)
    rows = cursor.array()
    if any(size != 1 for size in shape[1:]) or shape[0] != rows:
        raise MalformedMsgpackError(
            f"expected a column of texts for {name!r}, found the shape {shape} and {rows} texts"
        )
    if rows * ROW_BYTES + len(content) > limit:
        raise MalformedMsgpackError(f"expected at most {limit} bytes of {name!r}, found {rows} texts")
    offsets, joined = array("q", [0]), bytearray()
    for _ in range(rows):
        joined += cursor.bytes()
        offsets.append(len(joined))
    cursor.end()
    return Ragged(np.frombuffer(bytes(joined), np.uint8), np.array(offsets, np.int64))
