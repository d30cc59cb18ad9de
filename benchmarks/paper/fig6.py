"""Figure 6: Stack Overflow with Yogi as the server optimiser, eta = 0.01: loss of each round's clients before training.

    lur reproduce fig6 --scale small

On two cores: seconds at scale smoke; at scale small one minute for digits and several for FEMNIST and Stack Overflow
TP, whose sweeps all figures share. Scale paper needs an accelerator: it would take days on a CPU.

Expect: as in Figure 2; all gammas but the largest differ little.
"""

from pathlib import Path

from benchmarks.paper.drawing import Made, by_gamma, curves, is_evaluated, record
from benchmarks.paper.experiments import Lab
from benchmarks.paper.scales import ETA, case, tasks_of
from benchmarks.paper.verdicts import column, early_and_late

TITLE = "Stack Overflow with Yogi, constant server rate $\\eta$ = 0.01"


def make(lab: Lab, out: Path) -> Made:
    """Draws the figure and computes its verdicts."""
    tasks = lab.only or tasks_of("yogi", lab.scale)
    paths = curves(lab, "fig6", tasks, lambda task: by_gamma(column(lab.grid(task), ETA)), TITLE, out)
    statements = [
        early_and_late(task, lab.grid(task), ETA, case(task, lab.scale).block, is_evaluated(task)) for task in tasks
    ]
    return record(lab, "fig6", TITLE, tasks, Made(paths, statements), out)
