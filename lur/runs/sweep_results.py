"""The results of a sweep: the curves of its cells, and the best eta for each gamma.

As in the paper, the best eta has the lowest mean training loss over the last 100 rounds, or over the last quarter of a
run of fewer than 400 rounds. A cell that diverged is never the best.
"""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lur.runs import folder
from lur.runs.errors import Damaged, excerpt
from lur.runs.files import read_lines
from lur.runs.reader import is_number
from lur.runs.sweep_run import read_sweep_config
from lur.training.sweep_plan import SweepConfig

FINAL_ROUNDS = 100
LARGE = 1e300
"""The sum of larger losses may be infinite."""
TRAINED_SHARE = 0.95
"""A cell has trained if its final loss is below this share of its first loss."""


class CellResult(NamedTuple):
    """The results of one pair of rates, as far as it has come.

    Attributes:
      number: index of the cell in the sweep.
      gamma: client learning rate.
      eta: server learning rate.
      loss: loss of each round.
      norm: norm of each round's update.
      gammas: client learning rate of each round; empty without a decay rule.
      evaluations: (round, f(x), accuracy) of each evaluation.
      diverged: the round in which the cell diverged, and why; None if it has not.
    """

    number: int
    gamma: float
    eta: float
    loss: np.ndarray
    norm: np.ndarray
    gammas: np.ndarray
    evaluations: tuple[tuple[int, float, float], ...]
    diverged: tuple[int, str] | None


class SweepResults(NamedTuple):
    """The results of a sweep, finished or not.

    Attributes:
      path: the run folder.
      sweep: the sweep.
      finished: whether it has finished.
      environment: the content of environment.json.
      cells: the results of its cells.
    """

    path: Path
    sweep: SweepConfig
    finished: bool
    environment: dict[str, Any]
    cells: tuple[CellResult, ...]

    @property
    def window(self) -> int:
        """The number of rounds that the final loss is averaged over."""
        return final_window(self.sweep.run.rounds)


def final_window(rounds: int) -> int:
    """The number of rounds that the final loss is averaged over: 100, or a quarter of fewer than 400."""
    return FINAL_ROUNDS if rounds >= 4 * FINAL_ROUNDS else max(1, rounds // 4)


def read_sweep(path: Path) -> SweepResults:
    """Read the folder of a sweep that is finished, still going, or was killed."""
    sweep = read_sweep_config(path)
    count = len(sweep.cells)
    result = folder.read_result(path, check_logs=not folder.is_locked(path))
    columns: list[dict[str, list[float]]] = [{"loss": [], "update_norm": [], "client_lr": []} for _ in range(count)]
    evaluations: list[list[tuple[int, float, float]]] = [[] for _ in range(count)]
    diverged: dict[int, tuple[int, str]] = {}
    for line in _checked_lines(path / "log.jsonl", count, ("loss", "update_norm"), ("client_lr",)):
        for k, cell in enumerate(line["cells"]):
            for name, values in columns[cell].items():
                if name in line:
                    values.append(float(line[name][k]))
        diverged |= {int(cell): (line["round"], why) for cell, why in line.get("diverged", {}).items()}
    for line in _checked_lines(path / "evaluation.jsonl", count, ("f",), ("accuracy",)):
        for k, cell in enumerate(line["cells"]):
            accuracy = float(line["accuracy"][k]) if "accuracy" in line else math.nan
            evaluations[cell].append((line["round"], float(line["f"][k]), accuracy))
        diverged |= {int(cell): (line["round"], why) for cell, why in line.get("diverged", {}).items()}
    cells = tuple(
        CellResult(
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
    return SweepResults(path, sweep, result is not None, folder.read_environment(path), cells)


def _checked_lines(path: Path, cells: int, numbers: Sequence[str], optional: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The lines of a sweep's log: `Damaged` is raised unless they have a number for each of their cells.

    Args:
      path: the log.
      cells: number of cells in the sweep.
      numbers: fields with a number for each cell.
      optional: further such fields, which a line may lack.
    """
    for k, line in enumerate(read_lines(path), start=1):
        present, why = line.get("cells"), line.get("diverged", {})
        fields = [*numbers, *(name for name in optional if name in line)]
        is_sound = (
            type(line.get("round")) is int
            and isinstance(present, list)
            and all(type(cell) is int and 0 <= cell < cells for cell in present)
            and all(isinstance(line.get(name), list) and len(line[name]) == len(present) for name in fields)
            and all(is_number(value) for name in fields for value in line[name])
            and isinstance(why, dict)
            and all(cell.isdecimal() and len(cell) < 10 and int(cell) < cells for cell in why)
            and all(isinstance(reason, str) for reason in why.values())
        )
        if not is_sound:
            raise Damaged(
                f"{path}, line {k}: expected {', '.join(fields)} of cells below {cells}, found {excerpt(line)}"
            )
        yield line


def final_loss(cell: CellResult, rounds: int) -> float:
    """The mean loss over the final rounds; nan for a cell that diverged or is not finished.

    Args:
      cell: the cell.
      rounds: number of rounds of the sweep.
    """
    if cell.diverged or len(cell.loss) < rounds:
        return math.nan
    return mean_loss(cell, final_window(rounds))


def mean_loss(cell: CellResult, window: int) -> float:
    """The mean loss over the last rounds of a cell, at most `window` of them."""
    losses = cell.loss[-window:]
    return float((losses / len(losses)).sum()) if np.abs(losses).max() > LARGE else float(losses.mean())


def has_trained(cell: CellResult, rounds: int) -> bool:
    """Whether a cell trains: it did not diverge, and its final loss is at least a twentieth below its first one."""
    return bool(len(cell.loss)) and final_loss(cell, rounds) < TRAINED_SHARE * float(cell.loss[0])


class TunedRate(NamedTuple):
    """The best eta for a gamma.

    Attributes:
      gamma: client learning rate.
      eta: the best server learning rate; None if all cells of this gamma diverged.
      loss: its final loss; nan if there is none.
      f: its last evaluation f(x); nan if there is none.
      cells: number of cells of this gamma.
      diverged: how many of them diverged.
      at_the_edge: whether the best eta is the smallest or the largest one, so that a wider grid might do better.
    """

    gamma: float
    eta: float | None
    loss: float
    f: float
    cells: int
    diverged: int
    at_the_edge: bool


def tune_server_lr(results: SweepResults) -> list[TunedRate]:
    """The best eta for each gamma."""
    rounds, rows = results.sweep.run.rounds, []
    for gamma in results.sweep.client_lr:
        cells = [cell for cell in results.cells if cell.gamma == gamma]
        best = best_cell(cells, rounds)
        diverged = sum(cell.diverged is not None for cell in cells)
        if best is None:
            rows.append(TunedRate(gamma, None, math.nan, math.nan, len(cells), diverged, False))
            continue
        f = best.evaluations[-1][1] if best.evaluations else math.nan
        etas = sorted(cell.eta for cell in cells)
        edge = len(etas) > 1 and best.eta in (etas[0], etas[-1])
        rows.append(TunedRate(gamma, best.eta, final_loss(best, rounds), f, len(cells), diverged, edge))
    return rows


def best_cell(cells: Iterable[CellResult], rounds: int) -> CellResult | None:
    """The first of the cells with the lowest final loss; None if all diverged."""
    finished = [cell for cell in cells if math.isfinite(final_loss(cell, rounds))]
    return min(finished, key=lambda cell: final_loss(cell, rounds), default=None)


def best_cells(results: SweepResults) -> list[CellResult]:
    """The cell of the best eta for each gamma, smallest gamma first, without gammas whose cells all diverged."""
    gammas = sorted(results.sweep.client_lr)
    by_gamma = ([cell for cell in results.cells if cell.gamma == gamma] for gamma in gammas)
    best = (best_cell(cells, results.sweep.run.rounds) for cells in by_gamma)
    return [cell for cell in best if cell is not None]


COLUMNS = ("gamma", "eta", "loss", "f", "cells", "diverged", "at_the_edge")


def as_csv(rows: Sequence[TunedRate]) -> str:
    """The table as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(
            ["" if value is None else f"{value:.9g}" if isinstance(value, float) else value for value in row]
        )
    return file.getvalue()


def as_json(rows: Sequence[TunedRate]) -> str:
    """The table as JSON; a number that is not finite is null."""
    entries = [
        {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row._asdict().items()}
        for row in rows
    ]
    return json.dumps(entries, indent=1) + "\n"


def as_text(rows: Sequence[TunedRate], window: int) -> str:
    """The table for a terminal."""
    lines = [f"{'gamma':>8}  {'eta':>12}  {f'loss, last {window}':>16}  {'f(x)':>10}  diverged"]
    for row in rows:
        eta = "all diverged" if row.eta is None else f"{format_rate(row.eta)}{' (edge)' if row.at_the_edge else ''}"
        numbers = ["" if math.isnan(value) else f"{value:.6g}" for value in (row.loss, row.f)]
        lines.append(f"{row.gamma:>8g}  {eta:>12}  {numbers[0]:>16}  {numbers[1]:>10}  {row.diverged} of {row.cells}")
    return "\n".join(lines)


def format_rate(rate: float) -> str:
    """A rate as the paper writes it, for example 10^-1.5."""
    if rate <= 0:
        return f"{rate:g}"
    exponent = math.log10(rate)
    near = round(2 * exponent) / 2
    if abs(exponent - near) > 1e-9 or near.is_integer():
        return f"{rate:g}"
    return f"10^{near:g}"
