"""Rows on disk that are written as new versions: the states of a population that memory does not hold.

The rows lie in a file that is sparse and memory-mapped. A row that was never written takes no space. Writing makes a
new version of the rows, which shares all rows but the written ones with the version before it, so both stay valid and
nothing else is copied. The space of a row that no version has any more is used again.
"""

import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

GROWTH = 64
"""Rows by which the file grows at least; they take space when they are written."""


class RowFile:
    """Rows of one shape and dtype in a file without a name, which the system removes with the process.

    Attributes:
      rows: the file as an array of rows.
      versions: in how many versions each row of the file is.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, folder: Path | None = None):
        self.file = tempfile.TemporaryFile(prefix="lur-client-states-", dir=folder)  # noqa: SIM115
        weakref.finalize(self, self.file.close)
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.versions = np.zeros(0, np.int64)
        self._grow(GROWTH)

    def _grow(self, count: int) -> None:
        """Make room for `count` more rows."""
        total = len(self.versions) + count
        size = total * self.dtype.itemsize * int(np.prod(self.shape))
        os.truncate(self.file.fileno(), size)
        self.rows = np.memmap(self.file, self.dtype, "r", shape=(total, *self.shape))
        self.versions = np.pad(self.versions, (0, count))

    def write(self, rows: Shaped[np.ndarray, "count ..."]) -> Int[np.ndarray, "count"]:
        """Write rows where no version has any. Returns where they are."""
        free = np.flatnonzero(self.versions == 0)
        if len(free) < len(rows):
            self._grow(max(len(rows) - len(free), GROWTH, len(self.versions) // 2))
            free = np.flatnonzero(self.versions == 0)
        places = free[: len(rows)]
        for place, row in zip(places.tolist(), rows, strict=True):
            content, start = memoryview(row.tobytes()), place * row.nbytes
            while content:  # not through the map: a full disk is an OSError here and a killed process there
                count = os.pwrite(self.file.fileno(), content, start)
                content, start = content[count:], start + count
        return places

    def retain(self, places: Int[np.ndarray, "N"]) -> None:
        """Count the rows at these places, -1 for none, as part of a version."""
        self.versions[places[places >= 0]] += 1

    def release(self, places: Int[np.ndarray, "N"]) -> None:
        """Count a version that had the rows at these places as gone."""
        self.versions[places[places >= 0]] -= 1


class DiskRows:
    """An array of N rows on disk, which does not change: `with_rows` returns a new version of it.

    Attributes:
      first: the value of each row until it is written.
      file: where the written rows are.
      places: the place of each row in the file; -1 until it is written.
    """

    def __init__(self, first: np.ndarray, file: RowFile, places: Int[np.ndarray, "N"]):
        self.first, self.file, self.places = first, file, places
        self.shape, self.dtype = (len(places), *first.shape), first.dtype
        self.ndim, self.size = len(self.shape), len(places) * first.size
        self.nbytes = self.size * self.dtype.itemsize
        file.retain(places)
        weakref.finalize(self, file.release, places)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Any) -> np.ndarray:
        """Return the rows at these indices, in memory."""
        places = self.places[index]
        rows = np.empty((*places.shape, *self.first.shape), self.dtype)
        written = places >= 0
        rows[~written] = self.first
        rows[written] = self.file.rows[places[written]]
        return rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return all rows, in memory."""
        rows = self[np.arange(len(self))]
        return rows if dtype is None else rows.astype(dtype, copy=False)

    def with_rows(self, index: Int[np.ndarray, "count"], rows: Shaped[np.ndarray, "count ..."]) -> "DiskRows":
        """Return the version in which the rows at distinct indices are these."""
        places = self.places.copy()
        places[index] = self.file.write(np.asarray(rows, self.dtype))
        return DiskRows(self.first, self.file, places)


def disk_rows(first: np.ndarray, N: int, folder: Path | None = None) -> DiskRows:
    """Return N rows that all are `first`, in a file in a folder, by default the one for temporary files."""
    return DiskRows(first, RowFile(first.shape, first.dtype, folder), np.full(N, -1))
