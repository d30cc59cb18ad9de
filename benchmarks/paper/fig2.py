"""Figure 2: training loss with the constant server rate eta = 0.01, for each gamma that does not diverge.

    lur reproduce fig2 --scale small

On two cores: seconds at scale smoke; at scale small what its sweeps take (digits a minute, FEMNIST and Stack
Overflow TP several), once for all figures; at scale paper days of a CPU, so an accelerator.

Expect: larger gammas fall faster at first and end higher.
"""

from pathlib import Path

from benchmarks.paper.drawing import Made, by_gamma, curves, is_evaluated, record
from benchmarks.paper.experiments import Lab
from benchmarks.paper.scales import ETA, case, tasks_of
from benchmarks.paper.verdicts import column, early_and_late

TITLE = "LocalUpdate with constant server rate, $\\eta$ = 0.01"


def make(lab: Lab, out: Path) -> Made:
    """Draw it and judge it."""
    tasks = lab.only or tasks_of("sgd", lab.scale)
    paths = curves(lab, "fig2", tasks, lambda task: by_gamma(column(lab.grid(task), ETA)), TITLE, out)
    statements = [
        early_and_late(task, lab.grid(task), ETA, case(task, lab.scale).block, is_evaluated(task)) for task in tasks
    ]
    return record(lab, "fig2", TITLE, tasks, Made(paths, statements), out)
