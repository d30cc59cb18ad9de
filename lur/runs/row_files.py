"""Rows on disk in the files of a checkpoint: those rows that were ever written, which pass through memory in blocks.

rows/array_00003.index    the indices of the written rows, increasing, as little-endian 64-bit integers
rows/array_00003.bytes    these rows in this order, as their bytes in memory
"""

import os
from collections.abc import Iterable
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from lur.parallel.disk_rows import DiskRows, disk_rows
from lur.regular_files import create_new, open_regular, read_regular
from lur.runs.errors import Damaged

INDEX = np.dtype("<i8")


def index_file(name: str) -> str:
    """Return the file of an array's indices, relative to its checkpoint."""
    return f"rows/{name}.index"


def rows_size(rows: DiskRows) -> int:
    """Return how many bytes `write_rows` writes."""
    return len(rows.written) * (rows.first.nbytes + INDEX.itemsize)


def write_rows(folder: Path, name: str, rows: DiskRows) -> None:
    """Write the rows that were ever written into new files in a folder, which is created if it does not exist."""
    folder.mkdir(exist_ok=True)
    index = rows.written
    _write(folder / f"{name}.index", [index.astype(INDEX).tobytes()])
    _write(folder / f"{name}.bytes", (rows[block].tobytes() for block in rows.blocks(index)))


def read_rows(folder: Path, name: str, first: Shaped[np.ndarray, "..."], like: Any) -> Any:
    """Return an array whose written rows are in a folder.

    Args:
      folder: where `write_rows` wrote them.
      name: the name of the array.
      first: the value of the other rows.
      like: an array of the same shape and dtype. Rows on disk are restored as such, in the same folder, and every
        other array in memory.

    Raises:
      Damaged: the files are not those of such an array.
    """
    N, index_path, path = like.shape[0], folder / f"{name}.index", folder / f"{name}.bytes"
    content = read_regular(index_path, N * INDEX.itemsize, error=Damaged)
    if len(content) % INDEX.itemsize:
        raise Damaged(f"{index_path}: expected 8 bytes per index, found {len(content)} bytes")
    index = np.frombuffer(content, INDEX).astype(np.int64)
    if len(index) and (index[0] < 0 or index[-1] >= N or (np.diff(index) <= 0).any()):
        raise Damaged(f"{index_path}: expected increasing indices from 0 to {N - 1}, found others")
    rows = disk_rows(first, N, like.file.folder if isinstance(like, DiskRows) else None)
    with _opened(path) as file:
        expected, found = len(index) * first.nbytes, os.fstat(file.fileno()).st_size
        if found != expected:
            raise Damaged(f"{path}: expected {expected:,} bytes, found {found:,}")
        for block in rows.blocks(index):
            values = np.frombuffer(file.read(len(block) * first.nbytes), first.dtype)
            rows = rows.with_rows(block, values.reshape(len(block), *first.shape))
    return rows if isinstance(like, DiskRows) else np.asarray(rows)


def _opened(path: Path) -> BufferedReader:
    """Open the file of an array's rows."""
    try:
        return open_regular(path, error=Damaged)
    except FileNotFoundError:
        raise Damaged(f"{path}: expected the rows of an array, found no such file") from None


def _write(path: Path, blocks: Iterable[bytes]) -> None:
    """Write blocks into a new file."""
    try:
        with create_new(path) as file:
            for block in blocks:
                remaining = memoryview(block)
                while remaining:
                    remaining = remaining[file.write(remaining) or 0 :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
