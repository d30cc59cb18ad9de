"""Arrays in files by orbax: a flat mapping of names to arrays, written and read by this process alone.

Uses the documented part of orbax 0.x: `Checkpointer`, `StandardCheckpointHandler`, `args` and `options`. Its release
1.0 replaces these names, so pyproject.toml bounds the version.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lur._extras import optional_imports


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays into a new folder.

    Args:
      path: the folder, which must not exist.
      arrays: by name. Arrays without elements are left out, because orbax refuses them.

    Raises:
      OSError: the disk refused.
    """
    with optional_imports("lur.runs"):
        import orbax.checkpoint as ocp

    nonempty = {name: np.asarray(value) for name, value in arrays.items() if np.size(value)}
    try:
        with loggers_disabled("absl", "asyncio"), local_checkpointer() as checkpointer:
            checkpointer.save(path.absolute(), args=ocp.args.StandardSave(nonempty))
    except OSError:
        raise
    except Exception as error:  # tensorstore has its own errors for a disk that refuses
        code = re.search(r"os_error_code='(\d+)'", str(error))
        if code:
            raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error
        first_line = (str(error).splitlines() or [type(error).__name__])[0][:300]
        raise OSError(f"{path}: could not be written: {first_line}") from error


def read_arrays(path: Path, like: Mapping[str, Any]) -> list[np.ndarray]:
    """Read arrays from a folder that `write_arrays` wrote.

    Args:
      path: the folder.
      like: by name, arrays of the shapes and dtypes to be read.

    Returns:
      The arrays in the order of `like`.

    Raises:
      ValueError: an array has another shape or dtype. Other errors are those of orbax.
    """
    with optional_imports("lur.runs"):
        import orbax.checkpoint as ocp

    with loggers_disabled("absl", "asyncio"), local_checkpointer() as checkpointer:
        stored = checkpointer.restore(path.absolute(), args=ocp.args.StandardRestore())
    arrays = []
    for name, expected in like.items():
        array = np.asarray(stored[name]) if np.size(expected) else np.zeros(np.shape(expected), expected.dtype)
        if array.shape != np.shape(expected) or array.dtype != expected.dtype:
            raise ValueError(f"{name} must be {expected.dtype}{np.shape(expected)}, got {array.dtype}{array.shape}")
        arrays.append(array)
    return arrays


def local_checkpointer() -> Any:
    """Return an orbax checkpointer that does not wait for other processes.

    Checkpoints hold only what is the same in all processes, so each one reads and writes on its own.
    """
    import orbax.checkpoint as ocp

    index = jax.process_index()
    options = ocp.options.MultiprocessingOptions(
        primary_host=index, active_processes={index}, barrier_sync_key_prefix=f"process-{index}"
    )
    handler = ocp.StandardCheckpointHandler(multiprocessing_options=options)
    return ocp.Checkpointer(handler, multiprocessing_options=options)


@contextmanager
def loggers_disabled(*names: str) -> Iterator[None]:
    """Silence loggers; what they would print about a failure is raised as well."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
