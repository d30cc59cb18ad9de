"""Files that exist whole or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: str) -> None:
    """Writes a file through a temporary one, so that nobody sees half of it."""
    handle, temporary = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o666 & ~_current_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _current_umask() -> int:
    """The process's umask, which can only be read by setting it."""
    umask = os.umask(0)
    os.umask(umask)
    return umask
