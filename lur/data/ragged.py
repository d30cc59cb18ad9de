"""Rows of unequal length without padding: all values in one flat array, and the offset of each row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Shaped


@dataclass(frozen=True)
class Ragged:
    """Rows of unequal length: row i is ``values[offsets[i]:offsets[i + 1]]``. Text is a Ragged of uint8.

    Attributes:
      values: the values of all rows, end to end.
      offsets: where each row begins, and the end of the last one.
      longest: the length of the longest row where it is known, as for stores on disk; None to compute it.
    """

    values: Shaped[np.ndarray, "total"]
    offsets: Int[np.ndarray, "rows+1"]
    longest: int | None = None

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.offsets) - 1

    @property
    def width(self) -> int:
        """The length of the longest row."""
        return int(np.diff(self.offsets).max(initial=0)) if self.longest is None else self.longest

    def row(self, i: int) -> Shaped[np.ndarray, "length"]:
        """Return the values of row i."""
        return np.asarray(self.values[int(self.offsets[i]) : int(self.offsets[i + 1])])

    def text(self, i: int) -> bytes:
        """Return row i of a text feature."""
        return self.row(i).tobytes()

    def rows(self, start: int, stop: int) -> "Ragged":
        """Return rows start, ..., stop - 1 as a Ragged whose offsets begin at 0."""
        offsets = np.asarray(self.offsets[start : stop + 1])
        return Ragged(self.values[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0])

    def texts(self) -> Iterator[bytes]:
        """Yield all rows of a text feature."""
        content = np.asarray(self.values).tobytes()
        for start, stop in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            yield content[start:stop]


def first_fall(offsets: Int[np.ndarray, "rows+1"]) -> int | None:
    """Return the first row that ends before it begins, or None if there is none."""
    falls = offsets[1:] < offsets[:-1]
    return int(falls.argmax()) if falls.any() else None


def from_rows(rows: Sequence[bytes] | Sequence[np.ndarray], dtype: np.dtype | type = np.uint8) -> Ragged:
    """Return rows laid end to end.

    Args:
      rows: byte strings, or one-dimensional arrays.
      dtype: the dtype of the values; byte strings are always uint8.
    """
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    if len(rows) and isinstance(rows[0], bytes):
        return Ragged(np.frombuffer(b"".join(rows), np.uint8), offsets)  # pyright: ignore[reportArgumentType]
    flat = np.concatenate([np.asarray(row, dtype) for row in rows]) if len(rows) else np.zeros(0, dtype)
    return Ragged(flat, offsets)
