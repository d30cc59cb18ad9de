"""Logs of JSON lines: one object per line, whole lines only, readable while they grow.

A log knows how many bytes it has and their SHA-256. A checkpoint records both (`Position`), and a run that is
continued cuts its logs back to them: no line is lost, repeated or left half.

A number that JSON has no word for is the text "NaN", "Infinity" or "-Infinity", which Python's `float` and
JavaScript's `Number` read; `number` reads either form. A float has the fewest digits that give it back in its
own precision.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lur.runs.errors import Damaged


class Position(NamedTuple):
    """The first bytes of a log: how many, and their SHA-256."""

    bytes: int
    sha256: str


START = Position(0, hashlib.sha256().hexdigest())


class Log:
    """A log that grows. An append is whole or, if the disk refuses, not there."""

    def __init__(self, path: Path, position: Position = START):
        self.path = path
        self.hash = hash_of(path, position)
        self.bytes = position.bytes
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.ftruncate(self.descriptor, self.bytes)
        os.lseek(self.descriptor, self.bytes, os.SEEK_SET)

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Write lines, so that a reader sees them."""
        content = b"".join(line(one) for one in lines)
        left = memoryview(content)
        try:
            while left:
                left = left[os.write(self.descriptor, left) :]
        except OSError as error:
            os.ftruncate(self.descriptor, self.bytes)
            os.lseek(self.descriptor, self.bytes, os.SEEK_SET)
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        self.hash.update(content)
        self.bytes += len(content)

    def sync(self) -> Position:
        """Wait until all lines are on the disk, and say where the log stands."""
        os.fsync(self.descriptor)
        return Position(self.bytes, self.hash.hexdigest())

    def close(self) -> None:
        """Close the file; lines that were appended stay."""
        os.close(self.descriptor)


def hash_of(path: Path, position: Position) -> Any:
    """The running hash of a log's first bytes. Refuses a log that no longer has them."""
    hash = hashlib.sha256()
    left = position.bytes
    if left:
        try:
            with path.open("rb") as file:
                while left and (part := file.read(min(left, 2**20))):
                    hash.update(part)
                    left -= len(part)
        except FileNotFoundError:
            pass  # said below, as any other lack of bytes
    if left:
        raise Damaged(f"{path}: expected at least {position.bytes:,} bytes, found {position.bytes - left:,}")
    if hash.hexdigest() != position.sha256:
        raise Damaged(f"{path}: expected the first {position.bytes:,} bytes as they were written, found others")
    return hash


def line(entry: Mapping[str, Any]) -> bytes:
    """An object as a line of JSON."""
    return (json.dumps({name: plain(value) for name, value in entry.items()}, allow_nan=False) + "\n").encode()


def plain(value: Any) -> Any:
    """A value as JSON can say it, arrays as lists; see the module for floats."""
    if isinstance(value, np.ndarray):
        return [plain(one) for one in value] if value.ndim else plain(value[()])
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        exact = float(str(value))  # str has the fewest digits in the value's own precision
        return exact if math.isfinite(exact) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(exact, "NaN")
    return value


def number(value: Any) -> float:
    """A number of a log, finite or not."""
    return float(value)


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log, be it finished, growing or cut off: a half last line is left out, no file is no lines."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for k, content in enumerate(file, start=1):
            if not content.endswith(b"\n"):
                return
            try:
                entry = json.loads(content)
            except (ValueError, RecursionError):
                entry = None
            if not isinstance(entry, dict):
                raise Damaged(f"{path}, line {k}: expected a JSON object, found {content[:80]!r}")
            yield entry
