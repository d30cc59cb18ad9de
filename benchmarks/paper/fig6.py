"""Figure 6: Stack Overflow with a server of Yogi, eta = 0.01: the loss of the rounds' clients before training.

    lur reproduce fig6 --scale small

On two cores: seconds at scale smoke; at scale small what its sweeps take (digits a minute, FEMNIST and Stack
Overflow TP several), once for all figures; at scale paper days of a CPU, so an accelerator.

Expect: as Figure 2, and little difference between all but the largest gammas.
"""

from pathlib import Path

from benchmarks.paper.drawing import Made, by_gamma, curves, is_evaluated, record
from benchmarks.paper.experiments import Lab
from benchmarks.paper.scales import ETA, case, tasks_of
from benchmarks.paper.verdicts import column, early_and_late

TITLE = "Stack Overflow with Yogi, constant server rate $\\eta$ = 0.01"


def make(lab: Lab, out: Path) -> Made:
    """Draw it and judge it."""
    tasks = lab.only or tasks_of("yogi", lab.scale)
    paths = curves(lab, "fig6", tasks, lambda task: by_gamma(column(lab.grid(task), ETA)), TITLE, out)
    statements = [
        early_and_late(task, lab.grid(task), ETA, case(task, lab.scale).block, is_evaluated(task)) for task in tasks
    ]
    return record(lab, "fig6", TITLE, tasks, Made(paths, statements), out)
