"""Where lur keeps what it can make again: compiled programs, and the stores it generates or prepares."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return ``$LUR_CACHE``, else ``$XDG_CACHE_HOME/lur``, else ``~/.cache/lur``.

    The folder can be deleted at any time: its content is made again when it is needed.
    """
    if folder := os.environ.get("LUR_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lur"
