"""Figure 2: training loss with the constant server rate eta = 0.01, for each gamma that does not diverge.

    lur reproduce fig2 --scale small

On two cores: seconds at scale smoke; at scale small one minute for digits and several for FEMNIST and Stack Overflow
TP, whose sweeps all figures share. Scale paper needs an accelerator: it would take days on a CPU.

Expect: the loss of larger gammas falls faster at first and ends higher.
"""

from pathlib import Path

from benchmarks.paper.drawing import Result, by_gamma, curves, is_evaluated, record
from benchmarks.paper.experiments import PaperRuns
from benchmarks.paper.scales import ETA, case, tasks_of
from benchmarks.paper.verdicts import column, early_and_late

TITLE = "LocalUpdate with constant server rate, $\\eta$ = 0.01"


def make(runs: PaperRuns, out: Path) -> Result:
    """Draws the figure and computes its verdicts."""
    tasks = runs.tasks or tasks_of("sgd", runs.scale)
    paths = curves(runs, "fig2", tasks, lambda task: by_gamma(column(runs.grid(task), ETA)), TITLE, out)
    statements = [
        early_and_late(task, runs.grid(task), ETA, case(task, runs.scale).block, is_evaluated(task)) for task in tasks
    ]
    return record(runs, "fig2", TITLE, tasks, Result(paths, statements), out)
