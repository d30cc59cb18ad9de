"""The results of a race as a table and as a JSON record."""

import os
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.race import Result
from benchmarks.speed.workloads import Sizes

HEADER = ("", "s/round", "rounds", "warm-up s", "memory MB", "x lur", "x floor", "difference")


def does_same_work(result: Result, sizes: Sizes, tolerance: float) -> bool:
    """Whether a contender took all example gradients of the rounds and ended where lur did."""
    return result.examples == sizes.examples and (result.difference is None or result.difference <= tolerance)


def seconds_of(results: Sequence[Result], name: str) -> float | None:
    """Seconds per round of the contender of this name; None if it did not run."""
    return next((result.seconds for result in results if result.name == name), None)


def table_row(result: Result, lur: float | None, floor: float | None) -> tuple[str, ...]:
    """A contender's row of the table."""
    return (
        result.name,
        f"{result.seconds:.4g}",
        str(result.rounds),
        f"{result.warm_up:.1f}",
        "" if result.memory is None else f"{result.memory / 2**20:.0f}",
        "" if lur is None else f"{result.seconds / lur:.2f}",
        "" if floor is None else f"{result.seconds / floor:.2f}",
        "" if result.difference is None else f"{result.difference:.0e}",
    )


def table(results: Sequence[Result], skipped: Mapping[str, str], sizes: Sizes, tolerance: float) -> str:
    """All contenders, fastest first; then a line for each one whose work differs and each one that was skipped."""
    lur, floor = seconds_of(results, "lur"), seconds_of(results, "floor")
    rows = [HEADER, *(table_row(result, lur, floor) for result in sorted(results, key=lambda result: result.seconds))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
        for row in rows
    ]
    for result in results:
        if not does_same_work(result, sizes, tolerance):
            lines.append(
                f"not the same work: {result.name} took {result.examples:g} example gradients per round (lur: "
                f"{sizes.examples}) and ended {result.difference or 0:.1e} from lur (tolerance: {tolerance:g})"
            )
    return "\n".join([*lines, *(f"skipped: {name}: {reason}" for name, reason in skipped.items())])


def processor() -> str:
    """The processor's name according to Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def machine() -> dict[str, Any]:
    """The machine, the date, and the load from other processes."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "load": [round(value, 2) for value in os.getloadavg()],
    }


def record(
    task: str,
    sizes: Sizes,
    turns: int,
    results: Sequence[Result],
    skipped: Mapping[str, str],
    before: Mapping[str, Any],
) -> dict[str, Any]:
    """A race for a JSON file: sizes, results with versions, skipped contenders with reasons, the machine before it."""
    return {
        "task": task,
        **sizes._asdict(),
        "turns": turns,
        "machine": dict(before),
        "results": [result._asdict() for result in results],
        "skipped": dict(skipped),
    }
