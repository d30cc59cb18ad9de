"""Figure 8: LocalUpdateDecay from the largest gamma that does not diverge, against tuned rates.

    lur reproduce fig8 --scale small

On two cores: seconds at scale smoke; at scale small one minute for digits and several for FEMNIST and Stack Overflow
TP, whose sweeps all figures share. Scale paper needs an accelerator: it would take days on a CPU.

Expect: LocalUpdateDecay ends as low as the best gamma, without tuning gamma.
"""

from pathlib import Path

from benchmarks.paper.drawing import Line, Result, by_gamma, curves, record
from benchmarks.paper.experiments import PaperRuns
from benchmarks.paper.scales import tasks_of
from benchmarks.paper.verdicts import decay_matches
from lur.runs.sweep_results import best_cells

TITLE = "LocalUpdateDecay against tuned rates"


def make(runs: PaperRuns, out: Path) -> Result:
    """Draws the figure and computes its verdicts."""
    tasks = runs.tasks or tasks_of("sgd", runs.scale)

    def lines(task: str) -> list[Line]:
        decayed = runs.decay(task)
        tuned = by_gamma(best_cells(runs.grid(task)), with_eta=True)
        return tuned if decayed.cell is None else [*tuned, Line(f"decay from {decayed.gamma:g}", decayed.cell)]

    paths = curves(runs, "fig8", tasks, lines, TITLE, out)
    statements = [decay_matches(task, runs.grid(task), runs.decay(task)) for task in tasks]
    return record(runs, "fig8", TITLE, tasks, Result(paths, statements), out)
