"""The figures of a run folder, drawn from its logs.

    figures/run.svg, run.png        of `lur train`: loss, norm of the update, rates
    figures/sweep.svg, sweep.png    of `lur sweep`, `tune` and `decay`: loss of every cell, the best in colour

The commands draw them when a run ends, and again when it is extended. The folder is locked while it is read and while
the figures are written, not while they are drawn: a second start of a finished run need not wait for the drawing.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from lur import plots
from lur.regular_files import read_regular
from lur.runs import folder
from lur.runs.errors import Locked, RunError
from lur.runs.files import write_file
from lur.runs.reader import RunRecord, block_statistics, read_run
from lur.runs.sweep_results import SweepResults, mean_loss, read_sweep

FOLDER = "figures"
MAX_POINTS = 2000
NUM_BLOCKS = 20
MAX_NUMBER = 1e300
"""Largest number that an axis can show: matplotlib computes with several times the range of what it draws."""
LEAST_RATE = 1e-12
"""Smallest rate that an axis tells from 0, relative to the largest one."""


def save_figures(path: Path) -> None:
    """Draw the run of a folder into the folder, in place of earlier figures. A run without rounds has no figure.

    If another process has gone on with the run, nothing is written: that process draws when the run ends.
    """
    try:
        with folder.lock_folder(path):
            ended = _ending(path)
            is_sweep = folder.read_run_info(path).get("kind") == "sweep"
            figure = sweep_figure(read_sweep(path)) if is_sweep else run_figure(read_run(path))
        if figure is None:
            return
        content = plots.render(figure)
        with folder.lock_folder(path):
            if _ending(path) == ended:
                (path / FOLDER).mkdir(exist_ok=True)
                for suffix, part in zip(("svg", "png"), content, strict=True):
                    write_file(path / FOLDER / f"{'sweep' if is_sweep else 'run'}.{suffix}", part)
    except Locked:
        return
    except OSError as error:
        raise OSError(
            f"{error}; {path} lacks only its figures: fix the problem and run the same command again"
        ) from error


def _ending(path: Path) -> bytes:
    """The content of result.json; empty if there is none."""
    file = path / "result.json"
    return read_regular(file, folder.MAX_FILE_BYTES, error=RunError) if file.exists() else b""


def run_figure(record: RunRecord) -> Any | None:
    """Loss, ||q_t|| with its spread, and rates of a run of `lur train`; None if it has no rounds."""
    if not record.rounds:
        return None
    rounds = [line["round"] for line in record.rounds]
    step = max(1, len(rounds) // MAX_POINTS)
    figure, (losses, norms, rates) = plots.panels(3)
    sampled = [_finite_or_nan(line["loss"]) for line in record.rounds[::step]]
    losses.plot(rounds[::step], sampled, alpha=0.5, label="round's clients")
    if record.evaluations:
        true_loss = [_finite_or_nan(line["f"]) for line in record.evaluations]
        losses.plot([line["round"] for line in record.evaluations], true_loss, marker=".", label="f(x)")
    losses.set(xlabel="round", ylabel="loss")
    losses.legend()
    blocks = block_statistics(record.rounds, size=max(1, len(rounds) // NUM_BLOCKS))
    shown = [(b.last, _finite_or_nan(b.mean), _finite_or_nan(b.spread)) for b in blocks]
    norms.errorbar(*([entry[k] for entry in shown] for k in range(3)), capsize=2)
    norms.set(xlabel="round", ylabel=r"$\|q_t\|$")
    plotted: list[float] = []
    for name, label, style in (("client_lr", r"$\gamma_t$", "-"), ("server_lr", r"$\eta_t$", "--")):
        values = [line[name] for line in record.rounds[::step]]
        if all(isinstance(value, int | float) for value in values):
            values = [_finite_or_nan(value) for value in values]
            rates.step(rounds[::step], values, where="post", linestyle=style, label=label)
            plotted += values
    if positive := [value for value in plotted if value > 0]:
        rates.set_yscale("symlog", linthresh=max(min(positive), LEAST_RATE * max(positive)))
        rates.set_ylim(0, 3 * max(positive))
    rates.set(xlabel="round")
    rates.legend()
    return figure


def sweep_figure(results: SweepResults) -> Any | None:
    """The loss of every cell that has not diverged, with those of the lowest final loss in colour; None without any."""
    alive = [cell for cell in results.cells if not cell.diverged and len(cell.loss)]
    if not alive:
        return None
    figure, axis = plots.panels(1)
    window = results.window
    for k, cell in enumerate(sorted(alive, key=lambda cell: mean_loss(cell, window))):
        colour = plots.COLOURS[k] if k < len(plots.COLOURS) else "#bbbbbb"
        name = rf"$\gamma$ {cell.gamma:g}, $\eta$ {cell.eta:.3g}" if k < len(plots.COLOURS) else None
        step = max(1, len(cell.loss) // MAX_POINTS)
        rounds = range(1, len(cell.loss) + 1, step)
        losses = np.where(np.abs(cell.loss) < MAX_NUMBER, cell.loss, np.nan)[::step]
        axis.plot(rounds, losses, color=colour, label=name, zorder=-k, linewidth=1)
    axis.set(xlabel="round", ylabel="loss of the round's clients", yscale="log")
    axis.legend(fontsize=6)
    return figure


def _finite_or_nan(value: Any) -> float:
    """A number of a log for a plot, where nan leaves a gap."""
    number = float(value)
    return number if abs(number) < MAX_NUMBER else math.nan
