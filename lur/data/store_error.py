"""The error of a file that is not what it should be."""


class StoreError(ValueError):
    """An error in a file: the message names the file, the client if it is known, and what was expected."""
