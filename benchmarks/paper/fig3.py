"""Figure 3: mean and standard deviation of ||q_t|| per block of rounds (1,000 at the paper's scale), eta = 0.01.

    lur reproduce fig3 --scale small

On two cores: seconds at scale smoke; at scale small one minute for digits and several for FEMNIST and Stack Overflow
TP, whose sweeps all figures share. Scale paper needs an accelerator: it would take days on a CPU.

Expect: smaller gammas have larger updates. The paper shows CIFAR-100.
"""

from pathlib import Path

from benchmarks.paper.drawing import Result, by_gamma, norms, record
from benchmarks.paper.experiments import PaperRuns
from benchmarks.paper.scales import ETA, tasks_of
from benchmarks.paper.verdicts import column, norms_fall

TITLE = "Norm of the update, $\\eta$ = 0.01"


def make(runs: PaperRuns, out: Path) -> Result:
    """Draws the figure and computes its verdicts."""
    tasks = runs.tasks or tasks_of("sgd", runs.scale)
    if runs.scale == "paper" and not runs.tasks:
        tasks = ("cifar100",)
    paths = norms(runs, "fig3", tasks, lambda task: by_gamma(column(runs.grid(task), ETA)), TITLE, out)
    statements = [norms_fall(task, runs.grid(task), ETA) for task in tasks]
    return record(runs, "fig3", TITLE, tasks, Result(paths, statements), out)
