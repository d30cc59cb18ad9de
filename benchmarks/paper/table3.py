"""Table 3: the best server rate eta for each client rate gamma, CIFAR-100.

    lur reproduce table3 --scale small

As long as the task's sweep, which the figures share. Expect: the paper's eta to within a step of the grid at its
scale; generated data have rates of their own.
"""

from pathlib import Path

from benchmarks.paper import tuned_table
from benchmarks.paper.drawing import Made
from benchmarks.paper.experiments import Lab

TITLE = "Tuned server rates, CIFAR-100"
PAPER = {1.0: -1.0, 0.1: -1.0, 0.01: -1.5, 0.001: -1.5, 0.0: -1.5}
"""The base-10 logarithm of eta for each gamma."""


def make(lab: Lab, out: Path) -> Made:
    """Tune."""
    return tuned_table.make(lab, out, "table3", TITLE, "cifar100", PAPER)
