"""Durable files: small files that are complete or absent, and logs of JSON lines that grow.

Only regular files are read or changed: a symbolic link, a pipe or a device in the place of one is an error
(`lur.regular_files`).

A log has one object per line, complete lines only, and is readable while it grows. It knows how many bytes it has and
their SHA-256. A checkpoint records both (`Position`), and a run that resumes cuts its logs back to them: no line is
lost, repeated or left incomplete.

A number that is not finite is the text "NaN", "Infinity" or "-Infinity", which Python's `float` and JavaScript's
`Number` can read. A float has the fewest digits that represent it exactly in its own precision.
"""

import errno
import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lur.regular_files import create_new, kind_of, open_in_place, open_regular
from lur.runs.errors import Damaged, RunError

MAX_LINE_BYTES = 2**26
SPARE_DESCRIPTORS = 16
"""Files that orbax may have open at once, and some more."""


class Position(NamedTuple):
    """A position in a log, with a digest of what comes before it.

    Attributes:
      bytes: number of bytes before the position.
      sha256: their SHA-256.
    """

    bytes: int
    sha256: str


START = Position(0, hashlib.sha256().hexdigest())


class Log:
    """A log that is appended to. If the disk refuses an append, nothing of it remains.

    Attributes:
      path: the file.
      bytes: its size.
      hash: the running SHA-256 of its content.
    """

    def __init__(self, path: Path, position: Position = START):
        self.path = path
        self.hash = hash_prefix(path, position) if position.bytes else hashlib.sha256()
        self.bytes = position.bytes
        self.descriptor = open_in_place(path, error=RunError)
        os.ftruncate(self.descriptor, self.bytes)
        os.lseek(self.descriptor, self.bytes, os.SEEK_SET)

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append lines; readers see them at once."""
        content = b"".join(encode_line(entry) for entry in lines)
        remaining = memoryview(content)
        try:
            while remaining:
                remaining = remaining[os.write(self.descriptor, remaining) :]
        except OSError as error:
            os.ftruncate(self.descriptor, self.bytes)
            os.lseek(self.descriptor, self.bytes, os.SEEK_SET)
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        self.hash.update(content)
        self.bytes += len(content)

    def sync(self) -> Position:
        """Wait until all lines are on the disk, and return the position of the end."""
        os.fsync(self.descriptor)
        return Position(self.bytes, self.hash.hexdigest())

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


def hash_prefix(path: Path, position: Position) -> Any:
    """The running SHA-256 of a log up to a position. Raises `Damaged` if the log has other bytes there."""
    hash = hashlib.sha256()
    missing = position.bytes
    if missing and kind_of(path) is not None:
        with open_regular(path, error=Damaged) as file:
            while missing and (part := file.read(min(missing, 2**20))):
                hash.update(part)
                missing -= len(part)
    if missing:
        raise Damaged(f"{path}: expected at least {position.bytes:,} bytes, found {position.bytes - missing:,}")
    if hash.hexdigest() != position.sha256:
        raise Damaged(f"{path}: expected the first {position.bytes:,} bytes as they were written, found others")
    return hash


def encode_line(entry: Mapping[str, Any]) -> bytes:
    """An object as a line of JSON."""
    return (json.dumps(to_json(entry), allow_nan=False) + "\n").encode()


def to_json(value: Any) -> Any:
    """A value in JSON's types: arrays become lists, floats are written as the module says."""
    if isinstance(value, np.ndarray):
        return [to_json(entry) for entry in value] if value.ndim else to_json(value[()])
    if isinstance(value, list | tuple):
        return [to_json(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(name): to_json(entry) for name, entry in value.items()}
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        exact = float(str(value))  # str gives the fewest digits in the value's own precision
        return exact if math.isfinite(exact) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(exact, "NaN")
    return value


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log, which may still grow. An incomplete last line is ignored; a missing file has no lines."""
    try:
        file = open_regular(path, error=Damaged)
    except FileNotFoundError:
        return
    with file:
        for k, content in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), start=1):
            if len(content) == MAX_LINE_BYTES:
                raise Damaged(f"{path}, line {k}: expected a line of less than {MAX_LINE_BYTES:,} bytes, found more")
            if not content.endswith(b"\n"):
                return
            try:
                entry = json.loads(content)
            except (ValueError, RecursionError):
                entry = None
            if not isinstance(entry, dict):
                raise Damaged(f"{path}, line {k}: expected a JSON object, found {content[:80]!r}")
            yield entry


def remove_folder(path: Path) -> None:
    """Remove a folder, or whatever has its name. It is renamed first, so that half of a folder never looks complete."""
    kind = kind_of(path)
    if kind is None:
        return
    if kind != "a folder":
        path.unlink()
        return
    if path.suffix != ".partial":
        renamed = path.with_name(f"{path.name}.going.partial")
        remove_folder(renamed)
        path = path.rename(renamed)
    shutil.rmtree(path)


def list_files(folder: Path) -> list[str]:
    """The relative paths of all files below a folder. Symbolic links, pipes and devices are refused."""
    files = []
    for parent, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(parent, name)
            kind = kind_of(path)
            if kind not in ("a file", "a folder"):
                raise Damaged(f"{path}: expected a file or a folder, found {kind}")
            if kind == "a file":
                files.append(path.relative_to(folder).as_posix())
    return sorted(files)


def require_disk_space(folder: Path, size: int) -> None:
    """Raise an OSError if the disk has not `size` bytes left.

    The concurrent writes of orbax would fail with less clear errors.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    path = folder / "room"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):  # other errors: this file system cannot reserve space
            raise OSError(error.errno, error.strerror, str(folder)) from error
    finally:
        os.close(descriptor)
        path.unlink()


def require_descriptors(folder: Path) -> None:
    """Raise an OSError unless this process may open `SPARE_DESCRIPTORS` more files.

    The event loop that orbax makes would fail with less clear errors.
    """
    opened = []
    try:
        for _ in range(SPARE_DESCRIPTORS):
            opened.append(os.open(folder, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        needed = f"{SPARE_DESCRIPTORS} more files are needed for a checkpoint; raise the limit, see `ulimit -n`"
        raise OSError(error.errno, f"{error.strerror} ({needed})", str(folder)) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)


def checksum(path: Path) -> dict[str, Any]:
    """The size and SHA-256 of a file, which is on the disk when this returns."""
    with open_regular(path, error=Damaged) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": digest}


def write_file(path: Path, content: str | bytes) -> None:
    """Write a small file atomically, in place of whatever had its name; it is on the disk when this returns."""
    partial = path.with_name(f"{path.name}.partial")
    encoded = content.encode() if isinstance(content, str) else content
    try:
        remove_folder(partial)
        with create_new(partial) as file:
            remaining = memoryview(encoded)
            while remaining:
                remaining = remaining[file.write(remaining) or 0 :]
            os.fsync(file.fileno())
        partial.rename(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    sync_folder(path.parent)


def json_digest(content: Mapping[str, Any]) -> str:
    """The SHA-256 of an object of JSON, whatever the order of its names."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def sync_folder(path: Path) -> None:
    """Wait until new and changed names in the folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
