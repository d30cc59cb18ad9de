"""Files that are whole or not there, and on the disk when a function returns."""

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


def check(path: Path) -> dict[str, Any]:
    """A file's size and SHA-256; it is on the disk when this returns."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": digest}


def write_file(path: Path, content: str) -> None:
    """A small file, whole or not at all, on the disk when this returns."""
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Names made or changed in the folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
