"""Regular files in folders that anybody may have written: no symbolic link is followed, and no pipe is waited for.

Each function takes the error to raise where the path is something other than a regular file. A missing file is a
FileNotFoundError.
"""

import os
import stat
from io import BufferedReader, FileIO
from pathlib import Path

KINDS = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def kind_of(path: Path, *, follow: bool = False) -> str | None:
    """Return what a path is, such as "a file" or "a symbolic link"; None if there is nothing."""
    try:
        mode = os.stat(path, follow_symlinks=follow).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return next((name for is_kind, name in KINDS if is_kind(mode)), "a device")


def open_regular(path: Path, *, follow: bool = False, error: type[Exception] = ValueError) -> BufferedReader:
    """Open a regular file to read it. `follow` allows a symbolic link, for paths that the user names."""
    return os.fdopen(_open(path, os.O_RDONLY, follow, error), "rb")


def read_regular(path: Path, limit: int, *, follow: bool = False, error: type[Exception] = ValueError) -> bytes:
    """Return the content of a regular file of at most `limit` bytes."""
    with open_regular(path, follow=follow, error=error) as file:
        content = file.read(limit + 1)
        if len(content) > limit:
            size = os.fstat(file.fileno()).st_size
            raise error(f"{path}: expected at most {limit:,} bytes, found {max(size, limit + 1):,}")
    return content


def open_in_place(path: Path, *, error: type[Exception] = ValueError) -> int:
    """Open a regular file to change it where it is, created if it does not exist. Returns the descriptor.

    A file with a second name elsewhere (a hard link) is refused: its other name would change too.
    """
    descriptor = _open(path, os.O_RDWR | os.O_CREAT, False, error)
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        raise error(f"{path}: expected a file with one name, found a hard link; copy the folder without hard links")
    return descriptor


def create_new(path: Path) -> FileIO:
    """Open a new file to write it; one that exists is a FileExistsError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o666), "wb", buffering=0)  # pyright: ignore[reportReturnType]


def _open(path: Path, flags: int, follow: bool, error: type[Exception]) -> int:
    """Open a regular file with these flags, and return the descriptor."""
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileNotFoundError:
        raise
    except OSError:
        if (found := kind_of(path, follow=follow)) not in (None, "a file"):
            raise error(f"{path}: expected a regular file, found {found}") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise error(f"{path}: expected a regular file, found {kind_of(path, follow=follow)}")
    return descriptor
