"""TensorFlow Federated's HDF5 files: ``/examples/<client id>/<feature>``, the first axis being the example.

libhdf5 does not survive every damaged file, so it runs in a process of its own, `hdf5_child`, which sends one client
after the other and may crash or stall without harm. What it sends is checked here like any file.
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
from lur.data.readers.features import LIMIT, checked, file_at, place, uniform
from lur.data.store import DTYPES, Feature, StoreError
from lur.data.writer import Examples

CHILD = Path(__file__).with_name("hdf5_child.py")
TIMEOUT = 120.0
HEADER = 2**20

Item = TypeVar("Item")


def clients(path: Path, *, limit: int = LIMIT, timeout: float = TIMEOUT) -> Iterator[tuple[str, Examples]]:
    """The clients sorted by id, each of at most `limit` bytes and read within `timeout` seconds."""
    with child(path, limit, "clients") as (process, stream):
        yield from watched(process, timeout, uniform(path, received(path, stream, limit)))


def count(path: Path, *, timeout: float = TIMEOUT) -> int | None:
    """The number of clients."""
    with child(path, LIMIT, "count") as (process, stream):
        return next(watched(process, timeout, (announced(path, stream) for _ in range(1))))


@contextmanager
def child(path: Path, limit: int, task: str) -> Iterator[tuple["subprocess.Popen[bytes]", BinaryIO]]:
    """The process that reads the file; it is gone at the end, however that comes."""
    file_at(path, "an HDF5 file")
    if importlib.util.find_spec("h5py") is None:
        raise missing_extra("h5py", "reading HDF5")
    process = subprocess.Popen(
        [sys.executable, "-P", str(CHILD), str(path.resolve()), str(limit), task],
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


def watched(process: "subprocess.Popen[bytes]", timeout: float, items: Iterator[Item]) -> Iterator[Item]:
    """The items unchanged; the process is killed if it lets one wait longer than the timeout, which ends its stream."""
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


def announced(path: Path, stream: BinaryIO) -> int:
    """The number of clients, which comes first."""
    found = header(str(path), stream).get("clients")
    if not isinstance(found, int) or found < 0:
        raise StoreError(f"{path}: expected a number of clients, found {found!r}")
    return found


def received(path: Path, stream: BinaryIO, limit: int) -> Iterator[tuple[str, dict[str, Feature]]]:
    """The clients that the child sends, all that it announced."""
    for _ in range(announced(path, stream)):
        id = header(str(path), stream).get("next")
        if not isinstance(id, str):
            raise StoreError(f"{path}: expected a client, found {id!r}")
        where = place(path, id)
        yield id, checked(where, features(where, stream, limit))
    if "end" not in header(str(path), stream):
        raise StoreError(f"{path}: expected the end after the last client")


def header(where: str, stream: BinaryIO) -> dict[str, Any]:
    """The next header. An error of the child is raised here."""
    size = int.from_bytes(content(where, stream, 8), "little")
    if size > HEADER:
        raise StoreError(f"{where}: expected a header of at most {HEADER} bytes, found {size}")
    try:
        found = json.loads(content(where, stream, size).tobytes())
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{where}: expected a header, {error}") from error
    if not isinstance(found, dict) or "error" in found:
        raise StoreError(f"{where}: {found['error'] if isinstance(found, dict) else 'expected a header'}")
    return found


def features(where: str, stream: BinaryIO, limit: int) -> dict[str, Feature]:
    """The arrays of one client, each announced by its name, kind, dtype and shape."""
    arrays: dict[str, Feature] = {}
    entries = header(where, stream).get("features")
    for entry in entries if isinstance(entries, list) else [None]:
        match entry:
            case [str(name), "dense", str(dtype), [_, *_] as shape] if dtype in DTYPES:
                kind = np.dtype(dtype).newbyteorder("<")
                size = extent(where, shape, kind.itemsize, limit)
                arrays[name] = content(where, stream, size).view(kind).reshape(shape).astype(dtype, copy=False)
            case [str(name), "text", "int64", [rows, values]]:
                size = extent(where, [rows], 8, limit) + extent(where, [values], 1, limit)
                arrays[name] = text(f"{where}, {name}", content(where, stream, size), rows)
            case [str(name), "dense", str(dtype), _]:
                raise StoreError(f"{where}, {name}: expected a dtype among {', '.join(DTYPES)}, found {dtype}")
            case _:
                raise StoreError(f"{where}: expected an array, found {str(entry)[:80]}")
    return arrays


def text(where: str, flat: np.ndarray, rows: int) -> Ragged:
    """Rows of text, from where each begins and then their content."""
    offsets, values = flat[: 8 * rows].view("<i8").astype(np.int64, copy=False), flat[8 * rows :]
    if not rows or offsets[0] != 0 or offsets[-1] != len(values) or (np.diff(offsets) < 0).any():
        raise StoreError(f"{where}: expected offsets that rise from 0 to {len(values)}")
    return Ragged(values, offsets)


def extent(where: str, shape: Sequence[Any], itemsize: int, limit: int) -> int:
    """The bytes of an array, at most the limit (text offsets come on top of what the child counts: twice)."""
    if len(shape) > 8 or not all(type(axis) is int and axis >= 0 for axis in shape):
        raise StoreError(f"{where}: expected a shape, found {str(shape)[:80]}")
    size = itemsize * prod(shape)
    if size > 2 * limit or prod(axis or 1 for axis in shape) >= 2**48:
        raise StoreError(f"{where}: expected at most {limit} bytes, found {size}")
    return size


def content(where: str, stream: BinaryIO, size: int) -> np.ndarray:
    """The next `size` bytes; if they do not come, the child is dead."""
    found = np.empty(size, np.uint8)
    rest = memoryview(found)  # pyright: ignore[reportArgumentType]
    while len(rest):
        got = stream.readinto(rest)  # pyright: ignore[reportAttributeAccessIssue]
        if not got:
            raise StoreError(f"{where}: expected sound HDF5, found that the HDF5 library crashed or stalled on it")
        rest = rest[got:]
    return found
