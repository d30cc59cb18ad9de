"""What lur can make again and keeps between runs: compiled programs and the stores it generates or prepares."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$LUR_CACHE``, else ``$XDG_CACHE_HOME/lur``, else ``~/.cache/lur``. Deleting it costs time only."""
    if moved := os.environ.get("LUR_CACHE"):
        return Path(moved)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lur"


def keep_compiled() -> None:
    """Keep compiled programs between runs, in the cache folder or where JAX's own settings say."""
    import jax

    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
