"""Figure 8: LocalUpdateDecay from the largest gamma that does not diverge, against tuned rates.

    lur reproduce fig8 --scale small

On two cores: seconds at scale smoke; at scale small one minute for digits and several for FEMNIST and Stack Overflow
TP, whose sweeps all figures share. Scale paper needs an accelerator: it would take days on a CPU.

Expect: LocalUpdateDecay ends as low as the best gamma, without tuning gamma.
"""

from pathlib import Path

from benchmarks.paper.drawing import Line, Made, by_gamma, curves, record
from benchmarks.paper.experiments import Lab
from benchmarks.paper.scales import tasks_of
from benchmarks.paper.verdicts import decay_matches
from lur.runs.sweep_results import best_cells

TITLE = "LocalUpdateDecay against tuned rates"


def make(lab: Lab, out: Path) -> Made:
    """Draws the figure and computes its verdicts."""
    tasks = lab.only or tasks_of("sgd", lab.scale)

    def lines(task: str) -> list[Line]:
        decayed = lab.decay(task)
        tuned = by_gamma(best_cells(lab.grid(task)), with_eta=True)
        return tuned if decayed.cell is None else [*tuned, Line(f"decay from {decayed.gamma:g}", decayed.cell)]

    paths = curves(lab, "fig8", tasks, lines, TITLE, out)
    statements = [decay_matches(task, lab.grid(task), lab.decay(task)) for task in tasks]
    return record(lab, "fig8", TITLE, tasks, Made(paths, statements), out)
