"""Errors in run folders."""

from typing import Any


class RunError(ValueError):
    """A run folder cannot be used. The message names the file, what was expected and what was found."""


class Damaged(RunError):
    """A file of a run folder is not as it was written. An older checkpoint may be intact."""


class Locked(RunError):
    """Another process uses the run folder."""


def excerpt(value: Any) -> str:
    """The beginning of a value's text, for messages."""
    try:
        return repr(value)[:80]
    except RecursionError:
        return f"a deeply nested {type(value).__name__}"
