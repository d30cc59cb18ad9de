"""Options of a configuration that are written as text: numbers of local steps, splits, adaptation."""

import difflib
from collections.abc import Iterable

SPLITS = ("train", "test", "clients")
"""The splits of a task's data."""
MAX_ADAPTATION = 10_000
"""Most local steps of an adaptation."""


def parse_splits(text: str | None) -> tuple[str, ...] | None:
    """The splits of `evaluate_on`; None for all that there are."""
    if text is None:
        return None
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in SPLITS:
            raise ValueError(f"evaluate_on must be among {', '.join(SPLITS)}, got {name!r}{did_you_mean(name, SPLITS)}")
    return names


def parse_adaptation(text: str | None) -> tuple[int, ...]:
    """The numbers of local steps of `adapt`; empty without it."""
    if text is None:
        return ()
    try:
        steps = tuple(int(part) for part in text.split(","))
    except ValueError:
        steps = (-1,)
    if min(steps) < 0 or max(steps) > MAX_ADAPTATION:
        raise ValueError(f"adapt must be integers from 0 to {MAX_ADAPTATION:,}, such as 0,1,5, got {text!r}")
    return steps


def parse_steps(text: str | None) -> tuple[int, int] | None:
    """The least and the largest number of local steps in ``low:high``; None for None."""
    if text is None:
        return None
    low, _, high = text.partition(":")
    if not (low.isdecimal() and high.isdecimal() and 1 <= int(low) <= int(high)):
        raise ValueError(f"steps must be low:high with 1 <= low <= high, got {text!r}")
    return int(low), int(high)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of an error message: the closest of the valid names, or nothing if none is close."""
    closest = difflib.get_close_matches(name, [*names], n=1, cutoff=0.5)
    return f"; did you mean {closest[0]}?" if closest else ""
