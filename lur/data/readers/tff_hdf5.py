"""TensorFlow Federated's HDF5 files: ``/examples/<client id>/<feature>``, whose first axis is the example.

libhdf5 crashes on some damaged files, so it runs in a separate process, `hdf5_child`, which sends one client at a time
and may crash or stall without harm. What it sends is checked here like any untrusted file.
"""

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import numpy as np

from lur._extras import missing_extra
from lur.data.ragged import Ragged
from lur.data.readers.features import (
    MAX_CLIENT_BYTES,
    checked_features,
    client_location,
    existing_file,
    with_equal_features,
)
from lur.data.store import DTYPES, Feature, StoreError
from lur.data.writer import Examples

CHILD_PROGRAM = Path(__file__).with_name("hdf5_child.py")
TIMEOUT_SECONDS = 120.0
MAX_HEADER_BYTES = 2**20

Item = TypeVar("Item")


def clients(
    path: Path, *, limit: int = MAX_CLIENT_BYTES, timeout: float = TIMEOUT_SECONDS
) -> Iterator[tuple[str, Examples]]:
    """Yield the clients sorted by id, each of at most `limit` bytes and read within `timeout` seconds.

    A client without examples is yielded without features.
    """
    with child_process(path, limit, "clients") as (process, stream):
        yield from kill_on_timeout(process, timeout, with_equal_features(path, read_clients(path, stream, limit)))


def count(path: Path, *, timeout: float = TIMEOUT_SECONDS) -> int | None:
    """Return the number of clients."""
    with child_process(path, MAX_CLIENT_BYTES, "count") as (process, stream):
        return next(kill_on_timeout(process, timeout, (read_client_count(path, stream) for _ in range(1))))


@contextmanager
def child_process(path: Path, limit: int, task: str) -> Iterator[tuple["subprocess.Popen[bytes]", BinaryIO]]:
    """Yield the process that reads the file and its output; the process is killed at the end."""
    existing_file(path, "an HDF5 file")
    if importlib.util.find_spec("h5py") is None:
        raise missing_extra("h5py", "reading HDF5")
    process = subprocess.Popen(
        [sys.executable, "-P", str(CHILD_PROGRAM), str(path.resolve()), str(limit), task],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HDF5_PLUGIN_PRELOAD": "::", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    with process:
        try:
            yield process, cast(BinaryIO, process.stdout)
        finally:
            process.kill()


def kill_on_timeout(process: "subprocess.Popen[bytes]", timeout: float, items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items unchanged. If one takes longer than the timeout, the process is killed, which ends its output."""
    while True:
        alarm = threading.Timer(timeout, process.kill)
        alarm.daemon = True
        alarm.start()
        try:
            item = next(items)
        except StopIteration:
            return
        finally:
            alarm.cancel()
        yield item


def read_client_count(path: Path, stream: BinaryIO) -> int:
    """Read the number of clients, which the child sends first."""
    count = read_header(str(path), stream).get("clients")
    if not isinstance(count, int) or count < 0:
        raise StoreError(f"{path}: expected a number of clients, found {count!r}")
    return count


def read_clients(path: Path, stream: BinaryIO, limit: int) -> Iterator[tuple[str, dict[str, Feature]]]:
    """Yield the clients that the child sends, as many as it has announced."""
    for _ in range(read_client_count(path, stream)):
        id = read_header(str(path), stream).get("next")
        if not isinstance(id, str):
            raise StoreError(f"{path}: expected a client, found {id!r}")
        location = client_location(path, id)
        arrays = read_features(location, stream, limit)
        yield id, checked_features(location, arrays) if arrays else {}
    if "end" not in read_header(str(path), stream):
        raise StoreError(f"{path}: expected the end after the last client")


def read_header(location: str, stream: BinaryIO) -> dict[str, Any]:
    """Read the next header. An error that the child reports is raised as a StoreError."""
    size = int.from_bytes(read_exactly(location, stream, 8), "little")
    if size > MAX_HEADER_BYTES:
        raise StoreError(f"{location}: expected a header of at most {MAX_HEADER_BYTES} bytes, found {size}")
    try:
        header = json.loads(read_exactly(location, stream, size).tobytes())
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{location}: expected a header, {error}") from error
    if not isinstance(header, dict) or "error" in header:
        raise StoreError(f"{location}: {header['error'] if isinstance(header, dict) else 'expected a header'}")
    return header


def read_features(location: str, stream: BinaryIO, limit: int) -> dict[str, Feature]:
    """Read the arrays of one client. A header announces the name, kind, dtype and shape of each."""
    arrays: dict[str, Feature] = {}
    entries = read_header(location, stream).get("features")
    for entry in entries if isinstance(entries, list) else [None]:
        match entry:
            case [str(name), "dense", str(dtype), [_, *_] as shape] if dtype in DTYPES:
                kind = np.dtype(dtype).newbyteorder("<")
                size = array_bytes(location, shape, kind.itemsize, limit)
                arrays[name] = read_exactly(location, stream, size).view(kind).reshape(shape).astype(dtype, copy=False)
            case [str(name), "text", "int64", [rows, values]]:
                size = array_bytes(location, [rows], 8, limit) + array_bytes(location, [values], 1, limit)
                arrays[name] = decode_text(f"{location}, {name}", read_exactly(location, stream, size), rows)
            case [str(name), "dense", str(dtype), _]:
                raise StoreError(f"{location}, {name}: expected a dtype among {', '.join(DTYPES)}, found {dtype}")
            case _:
                raise StoreError(f"{location}: expected an array, found {str(entry)[:80]}")
    return arrays


def decode_text(location: str, flat: np.ndarray, rows: int) -> Ragged:
    """Return rows of text from their offsets, followed by their content."""
    offsets, values = flat[: 8 * rows].view("<i8").astype(np.int64, copy=False), flat[8 * rows :]
    if not rows or offsets[0] != 0 or offsets[-1] != len(values) or (np.diff(offsets) < 0).any():
        raise StoreError(f"{location}: expected offsets that rise from 0 to {len(values)}")
    return Ragged(values, offsets)


def array_bytes(location: str, shape: Sequence[Any], itemsize: int, limit: int) -> int:
    """Return the bytes of an array, at most twice the limit: the child does not count the offsets of text."""
    if len(shape) > 8 or not all(type(axis) is int and axis >= 0 for axis in shape):
        raise StoreError(f"{location}: expected a shape, found {str(shape)[:80]}")
    size = itemsize * prod(shape)
    if size > 2 * limit or prod(axis or 1 for axis in shape) >= 2**48:
        raise StoreError(f"{location}: expected at most {limit} bytes, found {size}")
    return size


def read_exactly(location: str, stream: BinaryIO, size: int) -> np.ndarray:
    """Read the next `size` bytes, or raise a StoreError if the child ends before."""
    data = np.empty(size, np.uint8)
    rest = memoryview(data)  # pyright: ignore[reportArgumentType]
    while len(rest):
        count = stream.readinto(rest)  # pyright: ignore[reportAttributeAccessIssue]
        if not count:
            raise StoreError(f"{location}: expected valid HDF5, but the HDF5 library crashed or stalled")
        rest = rest[count:]
    return data
