"""How the time and memory of a round grow with M, K and B.

    lur bench scaling --task femnist --figures FOLDER

About five minutes on two cores for femnist. Expect time to be linear in each of them (exponent 1) and memory to be flat
in M and K, since one client runs at a time and one mini-batch is in memory.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.speed.round_cost import RoundCost, measure_in_new_process
from benchmarks.speed.workloads import Sizes
from lur import plots

BASE = {"femnist": Sizes(4, 4, 20), "shakespeare": Sizes(4, 4, 4), "tiny": Sizes(40, 40, 4)}
FACTORS = (1, 2, 4, 8)
PASSES = 3
"""Passes over all sizes: the speed of a machine changes over minutes, so the passes are interleaved."""


class Growth(NamedTuple):
    """Growth of a round's cost along one size.

    Attributes:
        along: M, K or B.
        points: The costs, smallest size first.
        exponent: p in seconds ~ size^p: the slope of a line through the logarithms.
    """

    along: str
    points: tuple[RoundCost, ...]
    exponent: float


def sizes_along(base: Sizes, along: str, factor: int) -> Sizes:
    """The base sizes with one of them multiplied by a factor."""
    return base._replace(**{along: factor * getattr(base, along)})


def exponent(values: Sequence[float], seconds: Sequence[float]) -> float:
    """p in seconds ~ values^p, by least squares on the logarithms."""
    return float(np.polyfit(np.log(values), np.log(seconds), 1)[0])


def measure(
    task: str,
    report: Callable[[str], None] = lambda line: None,
    measure_cost: Callable[[str, Sizes], RoundCost] = measure_in_new_process,
) -> list[Growth]:
    """Growth along M, K and B; the fastest of several interleaved passes counts for each size."""
    if task not in BASE:
        raise ValueError(f"--task of scaling must be one of {', '.join(BASE)}, got {task!r}")
    grid = [(along, factor) for along in Sizes._fields for factor in FACTORS]
    best: dict[tuple[str, int], RoundCost] = {}
    for _ in range(PASSES):
        for along, factor in grid:
            cost = measure_cost(task, sizes_along(BASE[task], along, factor))
            report(describe(cost))
            best[along, factor] = combine(best.get((along, factor), cost), cost)
    growths = []
    for along in Sizes._fields:
        points = tuple(best[along, factor] for factor in FACTORS)
        p = exponent([getattr(point, along) for point in points], [point.seconds for point in points])
        report(f"time grows as {along}^{p:.2f}")
        growths.append(Growth(along, points, p))
    return growths


def combine(a: RoundCost, b: RoundCost) -> RoundCost:
    """The shorter times and the larger memory of two measurements at the same sizes."""
    return a._replace(seconds=min(a.seconds, b.seconds), first=min(a.first, b.first), memory=max(a.memory, b.memory))


def describe(cost: RoundCost) -> str:
    """A cost as a line of text."""
    sizes = f"M = {cost.M}, K = {cost.K}, B = {cost.B}"
    return f"{sizes}: {cost.seconds:.4g} s per round, peak {cost.memory / 2**20:.0f} MB"


def draw(task: str, growths: Sequence[Growth], folder: Path) -> tuple[Path, Path]:
    """Draws time against each of M, K and B on logarithmic axes, with a line of exponent 1 through the first point."""
    figure, axes = plots.panels(len(growths), sharey=True)
    for ax, growth in zip(axes, growths, strict=True):
        values = [getattr(point, growth.along) for point in growth.points]
        seconds = [point.seconds for point in growth.points]
        ax.loglog(values, seconds, "o-", label=f"measured, exponent {growth.exponent:.2f}", base=2)
        linear = [seconds[0] * value / values[0] for value in values]
        ax.loglog(values, linear, "--", color="grey", label="linear", base=2)
        ax.set(xlabel=growth.along)
        ax.legend()
    axes[0].set_ylabel("seconds per round")
    base = BASE[task]
    figure.suptitle(f"{task}, clients in sequence, from M = {base.M}, K = {base.K}, B = {base.B}", fontsize=9)
    return plots.save(figure, folder, f"scaling-{task}")
