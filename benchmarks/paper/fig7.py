"""Figure 7: Stack Overflow with Yogi as the server optimiser, the best eta for each gamma.

    lur reproduce fig7 --scale small

On two cores: seconds at scale smoke; at scale small one minute for digits and several for FEMNIST and Stack Overflow
TP, whose sweeps all figures share. Scale paper needs an accelerator: it would take days on a CPU.

Expect: smaller gammas end lower on tag prediction.
"""

from pathlib import Path

from benchmarks.paper.drawing import Result, by_gamma, curves, record
from benchmarks.paper.experiments import PaperRuns
from benchmarks.paper.scales import ETA, tasks_of
from benchmarks.paper.verdicts import etas_rise, small_gamma_wins, tuning_helps
from lur.runs.sweep_results import best_cells

TITLE = "Stack Overflow with Yogi, tuned server rate"


def make(runs: PaperRuns, out: Path) -> Result:
    """Draws the figure and computes its verdicts."""
    tasks = runs.tasks or tasks_of("yogi", runs.scale)
    paths = curves(runs, "fig7", tasks, lambda task: by_gamma(best_cells(runs.grid(task)), with_eta=True), TITLE, out)
    statements = [judge(task, runs.grid(task)) for task in tasks for judge in (small_gamma_wins, etas_rise)]
    statements += [tuning_helps(task, runs.grid(task), ETA) for task in tasks]
    return record(runs, "fig7", TITLE, tasks, Result(paths, statements), out)
