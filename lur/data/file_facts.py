"""Facts about the content of files, such as a SHA-256, each computed once per file and change.

A fact is kept in the cache folder under the device, inode, size and times of change of its files. A file can change
twice within one tick of its clock, so a fact is kept only if its files last changed `SETTLED_SECONDS` before. Only the
cache folder is consulted: a store cannot bring facts about itself.
"""

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any

from lur import regular_files
from lur.cache_folder import cache_folder
from lur.data.store_error import StoreError

SETTLED_SECONDS = 2.0
RECIPE = 1
"""Increase this number whenever a fact is computed in another way."""


def open_regular(path: Path, *, follow: bool = False) -> BufferedReader:
    """Open a regular file to read it. A pipe, a device, a folder or, unless `follow`, a symbolic link is a StoreError.

    Nothing can make this call wait, not even a pipe that nobody writes to.
    """
    try:
        return regular_files.open_regular(path, follow=follow, error=StoreError)
    except FileNotFoundError:
        raise StoreError(f"{path}: expected a file, found nothing") from None
    except OSError as error:
        raise StoreError(f"{path}: expected a regular file, found {error.strerror}") from None


def fact(kind: str, paths: Sequence[Path], compute: Callable[[], Any]) -> Any:
    """Return ``compute()``, a JSON value that depends only on the content of the files, from the cache if it is there.

    Args:
      kind: what the fact says.
      paths: the files.
      compute: computes the fact; if it raises, nothing is kept.
    """
    before = [file_identity(path) for path in paths]
    key = hashlib.sha256(json.dumps([RECIPE, kind, before]).encode()).hexdigest()
    entry = cache_folder() / "facts" / key
    try:
        kept = json.loads(entry.read_bytes())
        if kept["check"] == checksum(key, kept["value"]):
            return kept["value"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        kept = None  # missing or damaged: computed again
    value = compute()
    changed = max(max(identity[-2:]) for identity in before) / 1e9
    if changed + SETTLED_SECONDS < time.time() and before == [file_identity(path) for path in paths]:
        with contextlib.suppress(OSError):  # without a writable cache folder the fact is computed every time
            write_entry(entry, {"value": value, "check": checksum(key, value)})
    return value


def file_identity(path: Path) -> list[int]:
    """Return device, inode, size, and the times of the last change of content and of status, in nanoseconds."""
    with open_regular(path) as file:
        found = os.fstat(file.fileno())
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def checksum(key: str, value: Any) -> str:
    """Return the checksum of an entry of the cache."""
    return hashlib.sha256(json.dumps([key, value]).encode()).hexdigest()


def write_entry(entry: Path, content: dict[str, Any]) -> None:
    """Write an entry of the cache; it exists only once it is complete."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=entry.parent, suffix=".partial")
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file)
    Path(name).replace(entry)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, read once per change."""

    def compute() -> str:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return fact("sha256", [path], compute)
