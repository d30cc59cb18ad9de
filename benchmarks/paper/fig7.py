"""Figure 7: Stack Overflow with a server of Yogi, the best eta for each gamma.

    lur reproduce fig7 --scale small

On two cores: seconds at scale smoke; at scale small what its sweeps take (digits a minute, FEMNIST and Stack
Overflow TP several), once for all figures; at scale paper days of a CPU, so an accelerator.

Expect: smaller gammas end lower on tag prediction.
"""

from pathlib import Path

from benchmarks.paper.drawing import Made, by_gamma, curves, record
from benchmarks.paper.experiments import Lab
from benchmarks.paper.scales import ETA, tasks_of
from benchmarks.paper.verdicts import etas_rise, small_gamma_wins, tuning_helps
from lur.runs.sweep_results import best_cells

TITLE = "Stack Overflow with Yogi, tuned server rate"


def make(lab: Lab, out: Path) -> Made:
    """Draw it and judge it."""
    tasks = lab.only or tasks_of("yogi", lab.scale)
    paths = curves(lab, "fig7", tasks, lambda task: by_gamma(best_cells(lab.grid(task)), with_eta=True), TITLE, out)
    statements = [judge(task, lab.grid(task)) for task in tasks for judge in (small_gamma_wins, etas_rise)]
    statements += [tuning_helps(task, lab.grid(task), ETA) for task in tasks]
    return record(lab, "fig7", TITLE, tasks, Made(paths, statements), out)
