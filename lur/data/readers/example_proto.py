"""`tf.train.Example` without TensorFlow: the protobuf wire format of one message type, read strictly.

    Example  { 1: Features }
    Features { 1: repeated { 1: key, 2: Feature } }
    Feature  { one of 1: BytesList, 2: FloatList, 3: Int64List }, each with its values in field 1

Numbers may be packed or not. As in every protobuf reader, unknown fields are skipped, a repeated key replaces the
earlier one, and separate parts of a message are merged.
"""

from collections.abc import Iterator

import numpy as np

Value = list[bytes] | np.ndarray
"""The values of a feature: a list of bytes, float32 or int64."""

MAX_FEATURES = 1000
VARINT, FIXED64, BYTES, GROUP, END_GROUP, FIXED32 = range(6)
KIND_OF_FIELD = {1: "bytes", 2: "float", 3: "int64"}


class MalformedExampleError(ValueError):
    """Bytes that are not a `tf.train.Example`."""


def decode(data: bytes) -> dict[str, Value]:
    """Return the features of one serialized example."""
    features: dict[str, Value] = {}
    for number, wire, start, stop in fields(data, 0, len(data)):
        if (number, wire) != (1, BYTES):
            continue
        for number, wire, entry, entry_stop in fields(data, start, stop):
            if (number, wire) != (1, BYTES):
                continue
            name, value = map_entry(data, entry, entry_stop)
            features[name] = value
            if len(features) > MAX_FEATURES:
                raise MalformedExampleError(f"expected at most {MAX_FEATURES} features")
    return features


def map_entry(data: bytes, start: int, stop: int) -> tuple[str, Value]:
    """Return the name of a feature and its values."""
    key, spans = b"", []
    for number, wire, begin, end in fields(data, start, stop):
        if wire == BYTES and number == 1:
            key = data[begin:end]
        elif wire == BYTES and number == 2:
            spans.append((begin, end))
    try:
        name = key.decode()
    except UnicodeDecodeError as error:
        raise MalformedExampleError(f"expected a UTF-8 name of a feature, found {key[:80]!r}") from error
    return name, feature_values(data, name, spans)


def feature_values(data: bytes, name: str, spans: list[tuple[int, int]]) -> Value:
    """Return the values of one feature; if several kinds are set, the last one counts."""
    kind, lists = 0, []
    for start, stop in spans:
        for number, wire, begin, end in fields(data, start, stop):
            if wire == BYTES and number in KIND_OF_FIELD:
                lists = [*lists, (begin, end)] if number == kind else [(begin, end)]
                kind = number
    if kind == 0:
        raise MalformedExampleError(f"expected values of the feature {name!r}, found none")
    values = [part for start, stop in lists for part in list_values(data, kind, start, stop)]
    if kind == 1:
        return values
    dtype = np.dtype(np.float32 if kind == 2 else np.int64)
    if len(values) == 1:
        return values[0]
    return np.concatenate(values) if values else np.zeros(0, dtype)


def list_values(data: bytes, kind: int, start: int, stop: int) -> Iterator:
    """Yield the values of a BytesList one by one, those of a FloatList or Int64List as arrays, one per wire field."""
    for number, wire, begin, end in fields(data, start, stop):
        if number != 1:
            continue
        if kind == 1 and wire == BYTES:
            yield data[begin:end]
        elif kind == 2 and wire in (BYTES, FIXED32):
            if (end - begin) % 4:
                raise MalformedExampleError(f"expected packed floats of 4 bytes each, found {end - begin} bytes")
            yield np.frombuffer(data, "<f4", (end - begin) // 4, begin)
        elif kind == 3 and wire == BYTES:
            yield packed_varints(data, begin, end)
        elif kind == 3 and wire == VARINT:
            value, _ = varint(data, begin, end)
            yield np.array([value], np.uint64).view(np.int64)


def fields(data: bytes, position: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of the message ``data[position:stop]``: number, wire type, and start and stop of the content."""
    groups: list[int] = []
    while position < stop:
        tag, position = varint(data, position, stop)
        number, wire = tag >> 3, tag & 7
        if not 1 <= number < 2**29:
            raise MalformedExampleError(f"expected a field number 1..2^29-1, found {number}")
        start = position
        if wire == VARINT:
            _, position = varint(data, position, stop)
        elif wire == FIXED64:
            position += 8
        elif wire == FIXED32:
            position += 4
        elif wire == BYTES:
            length, start = varint(data, position, stop)
            position = start + length
        elif wire == GROUP and len(groups) < 100:
            groups.append(number)
        elif wire == END_GROUP and groups and groups[-1] == number:
            groups.pop()
            continue
        else:
            raise MalformedExampleError(f"expected a wire type 0..5, groups in pairs, found {wire}")
        if position > stop:
            raise MalformedExampleError(f"expected {position - stop} more bytes in the field {number}")
        if not groups:
            yield number, wire, start, position
    if groups:
        raise MalformedExampleError(f"expected the end of the group {groups[-1]}")


def varint(data: bytes, position: int, stop: int) -> tuple[int, int]:
    """Return an unsigned varint of at most 64 bits, and the position after it."""
    value = shift = 0
    while position < stop:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 2**64:
                raise MalformedExampleError("expected a varint of 64 bits, found a larger one")
            return value, position
        shift += 7
        if shift > 63:
            raise MalformedExampleError("expected a varint of at most 10 bytes, found a longer one")
    raise MalformedExampleError("expected the rest of a varint, found the end")


def packed_varints(data: bytes, start: int, stop: int) -> np.ndarray:
    """Return int64 values from varints laid end to end, without a loop: bytes are shifted, then joined by value."""
    content = np.frombuffer(data, np.uint8, stop - start, start)
    ends = np.flatnonzero(content < 0x80)
    if len(ends) == len(content):
        return content.astype(np.int64)
    if content[-1] >= 0x80:
        raise MalformedExampleError("expected the rest of a varint, found the end")
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > 10 or (content[ends[lengths == 10]] > 1).any():
        raise MalformedExampleError("expected varints of at most 64 bits, found a larger one")
    places = np.arange(len(content)) - np.repeat(starts, lengths)
    shifted = (content & 0x7F).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.bitwise_or.reduceat(shifted, starts).view(np.int64)
