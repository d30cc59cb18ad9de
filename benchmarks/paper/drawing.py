"""Shared by the figures: curves by gamma, their numbers as CSV, verdicts as JSON."""

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np

from benchmarks.paper.experiments import PaperRuns
from benchmarks.paper.scales import NAMES, YOGI, case
from benchmarks.paper.verdicts import Statement, curve_of
from lur import plots
from lur.runs.environment import environment
from lur.runs.sweep_results import CellResult, format_rate


class Line(NamedTuple):
    """A curve of a figure.

    Attributes:
        label: Its name in the legend.
        cell: The cell of a sweep that it shows.
    """

    label: str
    cell: CellResult


class Result(NamedTuple):
    """A finished figure or table.

    Attributes:
        paths: The files written.
        statements: Its verdicts.
    """

    paths: list[Path]
    statements: list[Statement]


def is_evaluated(task: str) -> bool:
    """Whether to draw f(x); for Stack Overflow, the paper draws the loss of the round's clients instead."""
    return task not in YOGI


def by_gamma(cells: Sequence[CellResult], with_eta: bool = False) -> list[Line]:
    """The cells that did not diverge, labelled by their rates."""
    return [
        Line(rf"$\gamma$ = {cell.gamma:g}" + (rf", $\eta$ = {tex(cell.eta)}" if with_eta else ""), cell)
        for cell in cells
        if not cell.diverged
    ]


def tex(rate: float) -> str:
    """A rate as LaTeX for a legend."""
    label = format_rate(rate)
    return f"$10^{{{label[3:]}}}$" if label.startswith("10^") else label


def curves(
    runs: PaperRuns, name: str, tasks: Sequence[str], lines_of: Callable[[str], list[Line]], title: str, out: Path
) -> list[Path]:
    """Draws one panel per task: training loss against rounds."""
    figure, axes = plots.panels(len(tasks))
    axes = [axes] if len(tasks) == 1 else axes
    rows: list[Sequence[Any]] = []
    for ax, task in zip(axes, tasks, strict=True):
        block = case(task, runs.scale).block
        for k, line in enumerate(lines_of(task)):
            rounds, losses = curve_of(line.cell, block, is_evaluated(task))
            style = "--" if line.label.startswith("decay") else "-"
            ax.plot(rounds, losses, style, color=plots.COLOURS[k % len(plots.COLOURS)], label=line.label)
            rates = "decay" if style == "--" else "constant"
            rows += [
                (task, rates, line.cell.gamma, line.cell.eta, t, f"{v:.9g}")
                for t, v in zip(rounds, losses, strict=True)
            ]
        ax.set(title=panel_title(NAMES[task], runs.describe_data(task)), xlabel="round", yscale="log")
        ax.title.set_fontsize(7)
        ax.legend(fontsize=6)
    axes[0].set_ylabel("training loss")
    figure.suptitle(f"{title} (scale: {runs.scale})", fontsize=9)
    return save(figure, name, ("task", "rates", "gamma", "eta", "round", "loss"), rows, out)


def norms(
    runs: PaperRuns, name: str, tasks: Sequence[str], lines_of: Callable[[str], list[Line]], title: str, out: Path
) -> list[Path]:
    """Draws one panel per task: mean and standard deviation of ||q_t|| per block of rounds."""
    figure, axes = plots.panels(len(tasks))
    axes = [axes] if len(tasks) == 1 else axes
    rows: list[Sequence[Any]] = []
    for ax, task in zip(axes, tasks, strict=True):
        block = case(task, runs.scale).block
        for k, line in enumerate(lines_of(task)):
            parts = [line.cell.norm[t : t + block] for t in range(0, len(line.cell.norm), block)]
            ends = [min((b + 1) * block, len(line.cell.norm)) for b in range(len(parts))]
            mean, deviation = np.array([p.mean() for p in parts]), np.array([p.std() for p in parts])
            colour = plots.COLOURS[k % len(plots.COLOURS)]
            ax.plot(ends, mean, color=colour, label=line.label)
            ax.fill_between(
                ends, np.maximum(mean - deviation, 0), mean + deviation, color=colour, alpha=0.2, linewidth=0
            )
            rows += [
                (task, line.cell.gamma, line.cell.eta, t, f"{m:.9g}", f"{s:.9g}")
                for t, m, s in zip(ends, mean, deviation, strict=True)
            ]
        ax.set(title=panel_title(f"{NAMES[task]}, blocks of {block} rounds", runs.describe_data(task)), xlabel="round")
        ax.title.set_fontsize(7)
        ax.legend(fontsize=6)
    axes[0].set_ylabel(r"$\|q_t\|$")
    figure.suptitle(f"{title} (scale: {runs.scale})", fontsize=9)
    return save(figure, name, ("task", "gamma", "eta", "round", "mean", "spread"), rows, out)


def panel_title(name: str, data: str) -> str:
    """The title of a panel: the task and its data, wrapped."""
    return "\n".join([name, *wrap(data, 50)])


def save(figure: Any, name: str, header: Sequence[str], rows: Sequence[Sequence[Any]], out: Path) -> list[Path]:
    """Writes the figure and its numbers."""
    paths = [*plots.save(figure, out, name), out / f"{name}.csv"]
    write_csv(paths[-1], header, rows)
    return paths


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Writes rows as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def record(runs: PaperRuns, name: str, title: str, tasks: Sequence[str], result: Result, out: Path) -> Result:
    """Writes the verdicts of a figure as NAME.json, with its data, sizes and environment."""
    entry = {
        "name": name,
        "title": title,
        "scale": runs.scale,
        "data": {task: runs.describe_data(task) for task in tasks},
        "rounds": {task: case(task, runs.scale).run.rounds for task in tasks},
        "files": [path.name for path in result.paths],
        "verdicts": [statement._asdict() for statement in result.statements],
        "environment": {name: value for name, value in environment().items() if name != "host"},
    }
    path = out / f"{name}.json"
    path.write_text(json.dumps(entry, indent=1) + "\n")
    return Result([*result.paths, path], result.statements)
