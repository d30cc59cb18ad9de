"""Figure 4: training loss of vanilla FedAvg, gamma = eta: the diagonal of the sweep.

    lur reproduce fig4 --scale small

On two cores: seconds at scale smoke; at scale small what its sweeps take (digits a minute, FEMNIST and Stack
Overflow TP several), once for all figures; at scale paper days of a CPU, so an accelerator.

Expect: no tied pair is the best of the grid. The paper shows CIFAR-100.
"""

import math
from pathlib import Path

from benchmarks.paper.drawing import Line, Made, by_gamma, curves, record
from benchmarks.paper.experiments import Lab
from benchmarks.paper.scales import tasks_of
from benchmarks.paper.verdicts import tied_is_not_best

TITLE = "Vanilla FedAvg, $\\gamma = \\eta$"


def make(lab: Lab, out: Path) -> Made:
    """Draw it and judge it."""
    tasks = lab.only or tasks_of("sgd", lab.scale)
    if lab.scale == "paper" and not lab.only:
        tasks = ("cifar100",)

    def tied(task: str) -> list[Line]:
        cells = [cell for cell in lab.grid(task).cells if math.isclose(cell.gamma, cell.eta)]
        return by_gamma(sorted(cells, key=lambda cell: cell.gamma))

    paths = curves(lab, "fig4", tasks, tied, TITLE, out)
    statements = [tied_is_not_best(task, lab.grid(task)) for task in tasks]
    return record(lab, "fig4", TITLE, tasks, Made(paths, statements), out)
