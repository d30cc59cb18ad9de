"""Figure 4: training loss of vanilla FedAvg, where gamma = eta: the diagonal of the sweep.

    lur reproduce fig4 --scale small

On two cores: seconds at scale smoke; at scale small one minute for digits and several for FEMNIST and Stack Overflow
TP, whose sweeps all figures share. Scale paper needs an accelerator: it would take days on a CPU.

Expect: no tied pair is the best of the grid. The paper shows CIFAR-100.
"""

import math
from pathlib import Path

from benchmarks.paper.drawing import Line, Result, by_gamma, curves, record
from benchmarks.paper.experiments import PaperRuns
from benchmarks.paper.scales import tasks_of
from benchmarks.paper.verdicts import tied_is_not_best

TITLE = "Vanilla FedAvg, $\\gamma = \\eta$"


def make(runs: PaperRuns, out: Path) -> Result:
    """Draws the figure and computes its verdicts."""
    tasks = runs.tasks or tasks_of("sgd", runs.scale)
    if runs.scale == "paper" and not runs.tasks:
        tasks = ("cifar100",)

    def tied(task: str) -> list[Line]:
        cells = [cell for cell in runs.grid(task).cells if math.isclose(cell.gamma, cell.eta)]
        return by_gamma(sorted(cells, key=lambda cell: cell.gamma))

    paths = curves(runs, "fig4", tasks, tied, TITLE, out)
    statements = [tied_is_not_best(task, runs.grid(task)) for task in tasks]
    return record(runs, "fig4", TITLE, tasks, Result(paths, statements), out)
