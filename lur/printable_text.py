"""Text of strangers, made safe to print."""

from typing import Any


def printable(text: Any) -> str:
    """Return text on one line, its control characters escaped: a stranger's text could steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
