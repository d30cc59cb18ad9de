"""The folder of compiled programs and of generated or prepared stores."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return ``$LUR_CACHE``, else ``$XDG_CACHE_HOME/lur``, else ``~/.cache/lur``.

    The folder can be deleted at any time: lur recreates its content when it needs it.
    """
    if folder := os.environ.get("LUR_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lur"
