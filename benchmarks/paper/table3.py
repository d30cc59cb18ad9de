"""Table 3: the best server rate eta for each client rate gamma, CIFAR-100.

    lur reproduce table3 --scale small

Takes as long as the task's sweep, which the figures share. Expect: at the paper's scale, the paper's eta to within one
step of the grid. Generated data have other best rates.
"""

from pathlib import Path

from benchmarks.paper import tuned_table
from benchmarks.paper.drawing import Result
from benchmarks.paper.experiments import PaperRuns

TITLE = "Tuned server rates, CIFAR-100"
PAPER = {1.0: -1.0, 0.1: -1.0, 0.01: -1.5, 0.001: -1.5, 0.0: -1.5}
"""The base-10 logarithm of eta for each gamma."""


def make(runs: PaperRuns, out: Path) -> Result:
    """Writes the table and compares it with the paper's."""
    return tuned_table.make(runs, out, "table3", TITLE, "cifar100", PAPER)
