"""Figure 1: the limits of LocalUpdate in one dimension as K or gamma varies.

    lur reproduce fig1

Half a minute; all scales are the same. Expect: the limits equal the closed form and move from the true minimiser to the
average of the clients' minimisers as K or gamma grows.
"""

from itertools import pairwise
from pathlib import Path

import lur
from benchmarks.paper.drawing import Result, record
from benchmarks.paper.experiments import PaperRuns
from benchmarks.paper.verdicts import Statement
from lur import plots

TITLE = "LocalUpdate in one dimension"
TOLERANCE = 1e-6


def make(runs: PaperRuns, out: Path) -> Result:
    """Draws the figure and computes its verdicts."""
    from theory import examples
    from theory.reports import figure1
    from theory.trials import implementation_of

    rows = figure1.points(implementation_of(lur))
    paths = [*figure1.draw(out, rows, plots, "fig1"), out / "fig1.csv"]
    gap = max(abs(row["closed_form"] - row["limit"]) for panel in rows.values() for row in panel)
    least, most = sorted((float(examples.TRUE_MINIMIZER), float(examples.AVERAGE_MINIMIZER)))
    moves, outside = True, []
    for panel in rows.values():
        ends = [abs(row["limit"] - float(examples.TRUE_MINIMIZER)) for row in panel]
        moves &= all(a <= b + TOLERANCE for a, b in pairwise(ends))
        outside += [row for row in panel if not least - TOLERANCE <= row["limit"] <= most + TOLERANCE]
    exceptions = ", ".join(f"gamma {row['gamma']:g}, K {row['K']:g} ends at {row['limit']:.4f}" for row in outside)
    statements = [
        Statement(
            "1-D example",
            "as gamma or K grows, the point of convergence moves from the true minimiser to the average minimiser",
            f"the limits of {sum(map(len, rows.values()))} runs {'move' if moves else 'do not all move'} that way"
            + (f"; outside of [{least:.4f}, {most:.4f}]: {exceptions}" if outside else ""),
            moves and not outside,
        ),
        Statement(
            "1-D example",
            "LocalUpdate converges to the minimiser of the surrogate loss",
            f"the largest distance of a limit from the closed form is {gap:.1e}",
            gap < TOLERANCE,
        ),
    ]
    return record(runs, "fig1", TITLE, (), Result(paths, statements), out)
