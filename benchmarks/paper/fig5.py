"""Figure 5: training loss with the best eta for each gamma.

    lur reproduce fig5 --scale small

On two cores: seconds at scale smoke; at scale small one minute for digits and several for FEMNIST and Stack Overflow
TP, whose sweeps all figures share. Scale paper needs an accelerator: it would take days on a CPU.

Expect: the gap between gammas is smaller than in Figure 2.
"""

from pathlib import Path

from benchmarks.paper.drawing import Result, by_gamma, curves, record
from benchmarks.paper.experiments import PaperRuns
from benchmarks.paper.scales import ETA, tasks_of
from benchmarks.paper.verdicts import etas_rise, large_gamma_wins, tuning_helps
from lur.runs.sweep_results import best_cells

TITLE = "LocalUpdate with tuned server rate"


def make(runs: PaperRuns, out: Path) -> Result:
    """Draws the figure and computes its verdicts."""
    tasks = runs.tasks or tasks_of("sgd", runs.scale)
    paths = curves(runs, "fig5", tasks, lambda task: by_gamma(best_cells(runs.grid(task)), with_eta=True), TITLE, out)
    statements = [judge(task, runs.grid(task)) for task in tasks for judge in (large_gamma_wins, etas_rise)]
    statements += [tuning_helps(task, runs.grid(task), ETA) for task in tasks]
    return record(runs, "fig5", TITLE, tasks, Result(paths, statements), out)
