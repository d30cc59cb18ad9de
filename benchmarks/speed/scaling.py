"""How time and memory of a round grow with M, K and B.

    lur bench scaling --task femnist --figures FOLDER

About five minutes on two cores for femnist. Time should be linear in each (exponent 1), memory flat in M and K: one
client runs at a time, one mini-batch is in memory.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.speed.point import Point, apart
from benchmarks.speed.work import Sizes
from lur import plots

BASE = {"femnist": Sizes(4, 4, 20), "shakespeare": Sizes(4, 4, 4), "tiny": Sizes(40, 40, 4)}
FACTORS = (1, 2, 4, 8)
PASSES = 3
"""Times that all points are measured, one after the other: a machine's speed changes over minutes."""


class Growth(NamedTuple):
    """Points along one of M, K and B, and the exponent of time in it: the slope of a line through the logarithms."""

    along: str
    points: tuple[Point, ...]
    exponent: float


def sizes_along(base: Sizes, along: str, factor: int) -> Sizes:
    """The base with one of its numbers multiplied."""
    return base._replace(**{along: factor * getattr(base, along)})


def exponent(values: Sequence[float], seconds: Sequence[float]) -> float:
    """p of seconds ~ values^p, by least squares of the logarithms."""
    return float(np.polyfit(np.log(values), np.log(seconds), 1)[0])


def measure(
    task: str, report: Callable[[str], None] = lambda line: None, take: Callable[[str, Sizes], Point] = apart
) -> list[Growth]:
    """All three axes, interleaved; the fastest of each point."""
    if task not in BASE:
        raise ValueError(f"--task of scaling must be one of {', '.join(BASE)}, got {task!r}")
    places = [(along, factor) for along in Sizes._fields for factor in FACTORS]
    best: dict[tuple[str, int], Point] = {}
    for _ in range(PASSES):
        for place in places:
            point = take(task, sizes_along(BASE[task], *place))
            report(line(point))
            best[place] = better(best.get(place, point), point)
    found = []
    for along in Sizes._fields:
        points = tuple(best[along, factor] for factor in FACTORS)
        p = exponent([getattr(point, along) for point in points], [point.seconds for point in points])
        report(f"time grows as {along}^{p:.2f}")
        found.append(Growth(along, points, p))
    return found


def better(a: Point, b: Point) -> Point:
    """The quicker times and the larger memory of two measurements of the same."""
    return a._replace(seconds=min(a.seconds, b.seconds), first=min(a.first, b.first), memory=max(a.memory, b.memory))


def line(point: Point) -> str:
    """A point in words."""
    where = f"M = {point.M}, K = {point.K}, B = {point.B}"
    return f"{where}: {point.seconds:.4g} s a round, peak {point.memory / 2**20:.0f} MB"


def draw(task: str, found: Sequence[Growth], folder: Path) -> tuple[Path, Path]:
    """Time against each of M, K and B, both axes logarithmic, with the line of exponent 1 through the first point."""
    figure, axes = plots.panels(len(found), sharey=True)
    for ax, growth in zip(axes, found, strict=True):
        values = [getattr(point, growth.along) for point in growth.points]
        seconds = [point.seconds for point in growth.points]
        ax.loglog(values, seconds, "o-", label=f"measured, exponent {growth.exponent:.2f}", base=2)
        linear = [seconds[0] * value / values[0] for value in values]
        ax.loglog(values, linear, "--", color="grey", label="linear", base=2)
        ax.set(xlabel=growth.along)
        ax.legend()
    axes[0].set_ylabel("seconds a round")
    base = BASE[task]
    figure.suptitle(f"{task}, one client after the other, from M = {base.M}, K = {base.K}, B = {base.B}", fontsize=9)
    return plots.save(figure, folder, f"scaling-{task}")
