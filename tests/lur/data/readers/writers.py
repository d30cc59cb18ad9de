"""Writers of the formats that `lur.data.readers` reads, for its tests."""

import json
import lzma
import sqlite3
import zlib
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import cast

import h5py
import msgpack
import numpy as np

Client = Mapping[str, np.ndarray | list[bytes]]
Clients = Mapping[str, Client]


def hdf5(path: Path, clients: Clients, *, text: str = "bytes", libver: str = "earliest", **options) -> Path:
    """TFF's HDF5; `text` is how strings are stored: vlen "bytes", vlen "str", or "fixed"."""
    with h5py.File(path, "w", libver=libver) as file:
        examples = file.create_group("examples")
        for id, features in clients.items():
            group = examples.create_group(id)
            for name, values in features.items():
                if not isinstance(values, list):
                    group.create_dataset(name, data=values, **options)
                elif text == "fixed":
                    group.create_dataset(name, data=np.array(values), **options)
                else:
                    encoding = "ascii" if text == "bytes" else "utf-8"
                    dtype = h5py.string_dtype(encoding)
                    group.create_dataset(name, (len(values),), dtype, **options)[:] = values
    return path


def varint(value: int) -> bytes:
    """An int64 as protobuf writes it."""
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(features: Mapping[str, np.ndarray | bytes], *, packed: bool = True) -> bytes:
    """A tf.train.Example: bytes become a bytes_list, floats a float_list, integers an int64_list."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, bytes):
            kind, content = 1, field(1, value)
        elif np.asarray(value).dtype.kind == "f":
            floats = np.asarray(value, "<f4").reshape(-1)
            kind = 2
            content = field(1, floats.tobytes()) if packed else b"".join(b"\x0d" + f.tobytes() for f in floats)
        else:
            numbers = [varint(int(number)) for number in np.asarray(value).reshape(-1)]
            kind, content = 3, field(1, b"".join(numbers)) if packed else b"".join(b"\x08" + n for n in numbers)
        entries += field(1, field(1, name.encode()) + field(2, field(kind, content)))
    return field(1, entries)


TFF_SCHEMA = """
CREATE TABLE examples (
  split_name TEXT NOT NULL, client_id TEXT NOT NULL, serialized_example_proto BLOB NOT NULL);
CREATE INDEX idx_examples_client_id ON examples (client_id);
CREATE INDEX idx_examples_client_id_split ON examples (split_name, client_id);
CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name TEXT NOT NULL, num_examples INTEGER NOT NULL);
CREATE INDEX idx_metadata_client_id ON client_metadata (client_id);
"""


def tff_sqlite(path: Path, splits: Mapping[str, Clients], *, packed: bool = True, schema: str = TFF_SCHEMA) -> Path:
    """TFF's SQLite; with a name that ends in .xz or .lzma, compressed in that format."""
    uncompressed = path.with_suffix(".uncompressed") if path.suffix in (".xz", ".lzma") else path
    with closing(sqlite3.connect(uncompressed)) as connection, connection:
        connection.executescript("PRAGMA page_size=512; PRAGMA synchronous=OFF")
        connection.executescript(schema)
        for split, clients in splits.items():
            for id, features in clients.items():
                size = len(next(iter(features.values())))
                connection.execute("INSERT INTO client_metadata VALUES (?, ?, ?)", (id, split, size))
                for i in range(size):
                    proto = example({name: values[i] for name, values in features.items()}, packed=packed)
                    connection.execute("INSERT INTO examples VALUES (?, ?, ?)", (split, id, proto))
    if uncompressed != path:
        form = lzma.FORMAT_XZ if path.suffix == ".xz" else lzma.FORMAT_ALONE
        path.write_bytes(lzma.compress(uncompressed.read_bytes(), form))
        uncompressed.unlink()
    return path


def packed(value: object) -> bytes:
    """Any value as msgpack."""
    return cast(bytes, msgpack.packb(value))


def extension(code: int, value: object) -> msgpack.ExtType:
    """A msgpack extension of a packed value."""
    return msgpack.ExtType(code, packed(value))


def fedjax_data(features: Client) -> bytes:
    """A client's features as msgpack."""

    def serialized(values: np.ndarray | list[bytes]) -> msgpack.ExtType:
        if isinstance(values, list):
            return extension(4, ((len(values),), values))
        return extension(1, (values.shape, values.dtype.name, values.tobytes("C")))

    return packed({name: serialized(values) for name, values in features.items()})


FEDJAX_SCHEMA = (
    "CREATE TABLE federated_data "
    "(client_id BLOB NOT NULL PRIMARY KEY, data BLOB NOT NULL, num_examples INTEGER NOT NULL);"
)


def fedjax_sqlite(path: Path, clients: Mapping[bytes, Client]) -> Path:
    """FedJAX's SQLite."""
    rows = [
        (id, zlib.compress(fedjax_data(features)), len(next(iter(features.values()))))
        for id, features in clients.items()
    ]
    return fedjax_rows(path, rows)


def fedjax_rows(path: Path, rows: list[tuple]) -> Path:
    """FedJAX's table with any rows."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript("PRAGMA page_size=512; PRAGMA synchronous=OFF")
        connection.executescript(FEDJAX_SCHEMA)
        connection.executemany("INSERT INTO federated_data VALUES (?, ?, ?)", rows)
    return path


def leaf_json(path: Path, clients: Clients) -> Path:
    """LEAF's JSON of FEMNIST (pixels, label) or Shakespeare (x, y)."""

    def user(features: Client) -> dict:
        if "pixels" in features:
            pixels, label = np.asarray(features["pixels"]), np.asarray(features["label"])
            return {"x": pixels.reshape(len(pixels), -1).tolist(), "y": label.tolist()}
        return {name: [text.decode() for text in features[name]] for name in ("x", "y")}

    data = {id: user(features) for id, features in clients.items()}
    sizes = [len(value["y"]) for value in data.values()]
    path.write_text(json.dumps({"users": list(data), "num_samples": sizes, "user_data": data}))
    return path
