"""Figure 6: Stack Overflow with Yogi as the server optimiser, eta = 0.01: loss of each round's clients before training.

    lur reproduce fig6 --scale small

On two cores: seconds at scale smoke; at scale small one minute for digits and several for FEMNIST and Stack Overflow
TP, whose sweeps all figures share. Scale paper needs an accelerator: it would take days on a CPU.

Expect: as in Figure 2; all gammas but the largest differ little.
"""

from pathlib import Path

from benchmarks.paper.drawing import Result, by_gamma, curves, is_evaluated, record
from benchmarks.paper.experiments import PaperRuns
from benchmarks.paper.scales import ETA, case, tasks_of
from benchmarks.paper.verdicts import column, early_and_late

TITLE = "Stack Overflow with Yogi, constant server rate $\\eta$ = 0.01"


def make(runs: PaperRuns, out: Path) -> Result:
    """Draws the figure and computes its verdicts."""
    tasks = runs.tasks or tasks_of("yogi", runs.scale)
    paths = curves(runs, "fig6", tasks, lambda task: by_gamma(column(runs.grid(task), ETA)), TITLE, out)
    statements = [
        early_and_late(task, runs.grid(task), ETA, case(task, runs.scale).block, is_evaluated(task)) for task in tasks
    ]
    return record(runs, "fig6", TITLE, tasks, Result(paths, statements), out)
