"""Shared by Tables 3 to 7: the best eta for each gamma, compared with the paper's."""

import math
from collections.abc import Mapping
from pathlib import Path

from benchmarks.paper.drawing import Result, record, write_csv
from benchmarks.paper.experiments import PaperRuns
from benchmarks.paper.verdicts import Statement
from lur.runs.sweep_results import format_rate, tune_server_lr


def make(runs: PaperRuns, out: Path, name: str, title: str, task: str, paper: Mapping[float, float]) -> Result:
    """Writes the table of one task; `paper` maps gamma to the base-10 logarithm of the paper's eta."""
    rows, statements = [], []
    for row in tune_server_lr(runs.grid(task)):
        printed = paper.get(row.gamma)
        eta = "" if row.eta is None else f"{math.log10(row.eta):g}"
        rows.append(
            (task, row.gamma, eta, f"{row.loss:.9g}", row.diverged, row.cells, "" if printed is None else printed)
        )
        if printed is not None:
            shows = "every eta diverges" if row.eta is None else f"gamma {row.gamma:g}: eta {format_rate(row.eta)}"
            same = row.eta is not None and math.isclose(row.eta, 10**printed)
            statements.append(Statement(task, f"gamma {row.gamma:g}: eta {format_rate(10**printed)}", shows, same))
    path = out / f"{name}.csv"
    write_csv(path, ("task", "gamma", "log10_eta", "loss", "diverged", "cells", "paper_log10_eta"), rows)
    return record(runs, name, title, (task,), Result([path], statements), out)
