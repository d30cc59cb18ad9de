"""Errors in run folders."""


class RunError(ValueError):
    """A run folder cannot be used. The message names the file, what was expected and what was found."""


class Damaged(RunError):
    """A file of a run folder is not as it was written. An older checkpoint may be intact."""
