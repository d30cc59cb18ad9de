"""What a sweep says: its cells as curves, the best eta for each gamma, the rates of LocalUpdateDecay.

As the paper does, eta is chosen for the lowest mean training loss over the last 100 rounds; of a run of fewer than
400 rounds over its last quarter. A cell that diverged is not chosen.
"""

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lur.runs import folder
from lur.runs.log import lines, number
from lur.runs.sweep_run import configured
from lur.training.sweeps import Sweep

LAST = 100
TRAINS = 0.95
"""Of its first loss, what a cell that trains ends below."""


class Cell(NamedTuple):
    """One pair of rates: its rounds as far as they go, its evaluations (round, f, accuracy), and how it diverged."""

    number: int
    gamma: float
    eta: float
    loss: np.ndarray
    norm: np.ndarray
    gammas: np.ndarray
    evaluations: tuple[tuple[int, float, float], ...]
    diverged: tuple[int, str] | None


class Swept(NamedTuple):
    """A sweep as its folder holds it, finished or not."""

    path: Path
    sweep: Sweep
    finished: bool
    environment: dict[str, Any]
    cells: tuple[Cell, ...]

    @property
    def window(self) -> int:
        """The rounds at the end that count."""
        return last_rounds(self.sweep.run.rounds)


def last_rounds(rounds: int) -> int:
    """100, or a quarter of fewer than 400 rounds."""
    return LAST if rounds >= 4 * LAST else max(1, rounds // 4)


def read_sweep(path: Path) -> Swept:
    """A sweep's folder: one that is finished, still going, or was cut off."""
    sweep = configured(path)
    count = len(sweep.cells)
    columns: list[dict[str, list[float]]] = [{"loss": [], "update_norm": [], "client_lr": []} for _ in range(count)]
    evaluations: list[list[tuple[int, float, float]]] = [[] for _ in range(count)]
    diverged: dict[int, tuple[int, str]] = {}
    for line in lines(path / "log.jsonl"):
        for k, cell in enumerate(line["cells"]):
            for name, values in columns[cell].items():
                if name in line:
                    values.append(number(line[name][k]))
        diverged |= {int(cell): (line["round"], why) for cell, why in line.get("diverged", {}).items()}
    for line in lines(path / "evaluation.jsonl"):
        for k, cell in enumerate(line["cells"]):
            accuracy = number(line["accuracy"][k]) if "accuracy" in line else math.nan
            evaluations[cell].append((line["round"], number(line["f"][k]), accuracy))
        diverged |= {int(cell): (line["round"], why) for cell, why in line.get("diverged", {}).items()}
    cells = tuple(
        Cell(
            k,
            *sweep.cells[k],
            np.asarray(columns[k]["loss"]),
            np.asarray(columns[k]["update_norm"]),
            np.asarray(columns[k]["client_lr"]),
            tuple(evaluations[k]),
            diverged.get(k),
        )
        for k in range(count)
    )
    environment = folder.read_json(path / "environment.json")
    return Swept(path, sweep, (path / "result.json").exists(), environment, cells)


def tail(cell: Cell, rounds: int) -> float:
    """The mean loss over the last rounds; nan for a cell that diverged or has not come so far."""
    if cell.diverged or len(cell.loss) < rounds:
        return math.nan
    return float(cell.loss[-last_rounds(rounds) :].mean())


def settles(cell: Cell, rounds: int) -> bool:
    """Whether a cell trains: it did not diverge, and its loss ends below where it began, by at least a twentieth."""
    return bool(len(cell.loss)) and tail(cell, rounds) < TRAINS * float(cell.loss[0])


class Tuned(NamedTuple):
    """The best eta for a gamma and its mean loss at the end; None and nan where no cell is left."""

    gamma: float
    eta: float | None
    loss: float
    f: float
    cells: int
    diverged: int
    at_the_edge: bool
    """Whether the best eta is the least or the largest of the grid: a wider one might have a better."""


def tuned(found: Swept) -> list[Tuned]:
    """The best eta for each gamma."""
    rounds, rows = found.sweep.run.rounds, []
    for gamma in found.sweep.client_lr:
        own = [cell for cell in found.cells if cell.gamma == gamma]
        best = best_of(own, rounds)
        diverged = sum(cell.diverged is not None for cell in own)
        if best is None:
            rows.append(Tuned(gamma, None, math.nan, math.nan, len(own), diverged, False))
            continue
        f = best.evaluations[-1][1] if best.evaluations else math.nan
        etas = sorted(cell.eta for cell in own)
        edge = len(etas) > 1 and best.eta in (etas[0], etas[-1])
        rows.append(Tuned(gamma, best.eta, tail(best, rounds), f, len(own), diverged, edge))
    return rows


def best_of(cells: Iterable[Cell], rounds: int) -> Cell | None:
    """The cell with the lowest loss at the end; of those alike the first."""
    ended = [cell for cell in cells if math.isfinite(tail(cell, rounds))]
    return min(ended, key=lambda cell: tail(cell, rounds), default=None)


def best_cells(found: Swept) -> list[Cell]:
    """The cell of the best eta for each gamma, where there is one, smallest gamma first."""
    by = ([cell for cell in found.cells if cell.gamma == gamma] for gamma in sorted(found.sweep.client_lr))
    best = (best_of(own, found.sweep.run.rounds) for own in by)
    return [cell for cell in best if cell is not None]


COLUMNS = ("gamma", "eta", "loss", "f", "cells", "diverged", "at_the_edge")


def as_csv(rows: Sequence[Tuned]) -> str:
    """The table as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(
            ["" if value is None else f"{value:.9g}" if isinstance(value, float) else value for value in row]
        )
    return text.getvalue()


def as_json(rows: Sequence[Tuned]) -> str:
    """The table as JSON; what is not a number is null."""
    plain = [
        {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row._asdict().items()}
        for row in rows
    ]
    return json.dumps(plain, indent=1) + "\n"


def as_text(rows: Sequence[Tuned], window: int) -> str:
    """The table for a terminal."""
    found = [f"{'gamma':>8}  {'eta':>10}  {f'loss, last {window}':>16}  {'f(x)':>10}  diverged"]
    for row in rows:
        eta = "none left" if row.eta is None else f"{power(row.eta)}{' (edge)' if row.at_the_edge else ''}"
        numbers = ["" if math.isnan(value) else f"{value:.6g}" for value in (row.loss, row.f)]
        found.append(f"{row.gamma:>8g}  {eta:>10}  {numbers[0]:>16}  {numbers[1]:>10}  {row.diverged} of {row.cells}")
    return "\n".join(found)


def power(rate: float) -> str:
    """A rate as the paper writes it: 10^-1.5."""
    if rate <= 0:
        return f"{rate:g}"
    exponent = math.log10(rate)
    near = round(2 * exponent) / 2
    if abs(exponent - near) > 1e-9 or near.is_integer():
        return f"{rate:g}"
    return f"10^{near:g}"
