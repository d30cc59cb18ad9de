"""Table 2: rates of LocalUpdateDecay: the largest gamma that does not diverge, and the best eta for it.

    lur reproduce table2 --scale small

Takes as long as Figures 8 and 9, whose runs it shares. Expect: a large first gamma.
"""

import math
from pathlib import Path

from benchmarks.paper.drawing import Result, record, write_csv
from benchmarks.paper.experiments import PaperRuns
from benchmarks.paper.scales import tasks_of
from benchmarks.paper.verdicts import Statement
from lur.runs.sweep_results import format_rate

TITLE = "Rates of LocalUpdateDecay"
PAPER = {  # base-10 logarithms
    "cifar100": (0.0, -1.0),
    "femnist": (-1.0, -1.0),
    "shakespeare": (0.0, 1.5),
    "stackoverflow_nwp": (-1.0, -1.5),
    "stackoverflow_tp": (2.0, 0.0),
}


def make(runs: PaperRuns, out: Path) -> Result:
    """Writes the rates and compares them with the paper's."""
    tasks = runs.tasks or (*tasks_of("sgd", runs.scale), *tasks_of("yogi", runs.scale))
    rows, statements = [], []
    for task in tasks:
        decayed = runs.decay(task)
        log = (
            ["", ""] if decayed.cell is None else [f"{math.log10(v):g}" for v in (decayed.cell.gamma, decayed.cell.eta)]
        )
        rows.append((task, *log, *PAPER.get(task, ("", "")), " ".join(f"{gamma:g}" for gamma in decayed.refused)))
        if task in PAPER:
            gamma, eta = (10**value for value in PAPER[task])
            same = (
                decayed.cell is not None
                and math.isclose(decayed.cell.gamma, gamma)
                and math.isclose(decayed.cell.eta, eta)
            )
            shows = (
                "no gamma trains"
                if decayed.cell is None
                else f"gamma {decayed.cell.gamma:g}, eta {format_rate(decayed.cell.eta)}"
            )
            claim = f"LocalUpdateDecay uses gamma {gamma:g}, eta {format_rate(eta)}"
            statements.append(Statement(task, claim, shows, same))
    path = out / "table2.csv"
    header = ("task", "log10_gamma", "log10_eta", "paper_log10_gamma", "paper_log10_eta", "gammas_that_diverged")
    write_csv(path, header, rows)
    return record(runs, "table2", TITLE, tasks, Result([path], statements), out)
