"""Files that are whole or not there, and on the disk when a function returns."""

import errno
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

from lur.runs.errors import Damaged


def remove(path: Path) -> None:
    """Remove a folder so that it never looks whole while it goes."""
    if not path.exists():
        return
    if path.suffix != ".partial":
        going = path.with_name(f"{path.name}.going.partial")
        shutil.rmtree(going, ignore_errors=True)
        path = path.rename(going)
    shutil.rmtree(path)


def files_of(folder: Path) -> list[str]:
    """The files below a folder, by relative path. Links are not followed."""
    found = []
    for parent, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(parent, name)
            if path.is_symlink():
                raise Damaged(f"{path}: expected a file or a folder, found a link")
            if not path.is_dir():
                found.append(path.relative_to(folder).as_posix())
    return sorted(found)


def require_room(folder: Path, size: int) -> None:
    """Refuse to start what the disk has no room for: orbax, whose writes run side by side, fails less politely."""
    if not hasattr(os, "posix_fallocate"):
        return
    path = folder / "room"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):  # others mean that this disk cannot tell
            raise OSError(error.errno, error.strerror, str(folder)) from error
    finally:
        os.close(descriptor)
        path.unlink()


def check(path: Path) -> dict[str, Any]:
    """A file's size and SHA-256; it is on the disk when this returns."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": digest}


def write_file(path: Path, content: str) -> None:
    """A small file, whole or not at all, on the disk when this returns."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb", buffering=0) as file:
            left = memoryview(content.encode())
            while left:
                left = left[file.write(left) or 0 :]
            os.fsync(file.fileno())
        partial.rename(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Names made or changed in the folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
