"""Atomic file operations: a file is complete or absent, and on the disk when the function returns."""

import errno
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

from lur.runs.errors import Damaged


def remove_folder(path: Path) -> None:
    """Remove a folder, if it exists. It is renamed first, so that a half-removed folder never looks complete."""
    if not path.exists():
        return
    if path.suffix != ".partial":
        renamed = path.with_name(f"{path.name}.going.partial")
        shutil.rmtree(renamed, ignore_errors=True)
        path = path.rename(renamed)
    shutil.rmtree(path)


def list_files(folder: Path) -> list[str]:
    """The relative paths of all files below a folder. Symbolic links are refused."""
    files = []
    for parent, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(parent, name)
            if path.is_symlink():
                raise Damaged(f"{path}: expected a file or a folder, found a symbolic link")
            if not path.is_dir():
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


def checksum(path: Path) -> dict[str, Any]:
    """The size and SHA-256 of a file, which is on the disk when this returns."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": digest}


def write_file(path: Path, content: str) -> None:
    """Write a small text file atomically; it is on the disk when this returns."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb", buffering=0) as file:
            remaining = memoryview(content.encode())
            while remaining:
                remaining = remaining[file.write(remaining) or 0 :]
            os.fsync(file.fileno())
        partial.rename(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Wait until new and changed names in the folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
