"""Figure 3: mean and standard deviation of ||q_t|| per block of rounds (1,000 at the paper's scale), eta = 0.01.

    lur reproduce fig3 --scale small

On two cores: seconds at scale smoke; at scale small what its sweeps take (digits a minute, FEMNIST and Stack
Overflow TP several), once for all figures; at scale paper days of a CPU, so an accelerator.

Expect: smaller gammas have larger updates. The paper shows CIFAR-100.
"""

from pathlib import Path

from benchmarks.paper.drawing import Made, by_gamma, norms, record
from benchmarks.paper.experiments import Lab
from benchmarks.paper.scales import ETA, tasks_of
from benchmarks.paper.verdicts import column, norms_fall

TITLE = "Norm of the update, $\\eta$ = 0.01"


def make(lab: Lab, out: Path) -> Made:
    """Draw it and judge it."""
    tasks = lab.only or tasks_of("sgd", lab.scale)
    if lab.scale == "paper" and not lab.only:
        tasks = ("cifar100",)
    paths = norms(lab, "fig3", tasks, lambda task: by_gamma(column(lab.grid(task), ETA)), TITLE, out)
    statements = [norms_fall(task, lab.grid(task), ETA) for task in tasks]
    return record(lab, "fig3", TITLE, tasks, Made(paths, statements), out)
