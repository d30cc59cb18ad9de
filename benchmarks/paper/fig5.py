"""Figure 5: training loss with the best eta for each gamma.

    lur reproduce fig5 --scale small

On two cores: seconds at scale smoke; at scale small one minute for digits and several for FEMNIST and Stack Overflow
TP, whose sweeps all figures share. Scale paper needs an accelerator: it would take days on a CPU.

Expect: the gap between gammas is smaller than in Figure 2.
"""

from pathlib import Path

from benchmarks.paper.drawing import Made, by_gamma, curves, record
from benchmarks.paper.experiments import Lab
from benchmarks.paper.scales import ETA, tasks_of
from benchmarks.paper.verdicts import etas_rise, large_gamma_wins, tuning_helps
from lur.runs.sweep_results import best_cells

TITLE = "LocalUpdate with tuned server rate"


def make(lab: Lab, out: Path) -> Made:
    """Draws the figure and computes its verdicts."""
    tasks = lab.only or tasks_of("sgd", lab.scale)
    paths = curves(lab, "fig5", tasks, lambda task: by_gamma(best_cells(lab.grid(task)), with_eta=True), TITLE, out)
    statements = [judge(task, lab.grid(task)) for task in tasks for judge in (large_gamma_wins, etas_rise)]
    statements += [tuning_helps(task, lab.grid(task), ETA) for task in tasks]
    return record(lab, "fig5", TITLE, tasks, Made(paths, statements), out)
