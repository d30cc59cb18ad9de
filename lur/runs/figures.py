"""The figures of a run folder: drawn from its logs, as far as they go; a folder whose run has ended keeps them.

    figures/run.svg, run.png        of `lur train`: loss, norm of the update, rates
    figures/sweep.svg, sweep.png    of `lur sweep`, `tune` and `decay`: loss of every cell, the best in colour

The commands draw them at the end, again where a run is extended or was killed meanwhile.
"""

import math
import shutil
from pathlib import Path
from typing import Any

from lur import plots
from lur.runs import folder
from lur.runs.log import number
from lur.runs.reader import Record, blocks, read_run
from lur.runs.sweep_results import Swept, read_sweep

FOLDER = "figures"
MOST_POINTS = 2000
BLOCKS = 20
LARGEST = 1e300
"""Rate that an axis can still hold."""


def keep(path: Path) -> None:
    """Draw the folder's run into it, over what an earlier part of it drew, whole or not at all. No round, no figure."""
    if folder.about(path).get("kind") == "sweep":
        name, figure = "sweep", sweep_figure(read_sweep(path))
    else:
        name, figure = "run", run_figure(read_run(path))
    if figure is None:
        return
    partial = path / f"{FOLDER}.partial"
    try:
        drawn = plots.save(figure, partial, name)
        (path / FOLDER).mkdir(exist_ok=True)
        for file in drawn:
            file.rename(path / FOLDER / file.name)
    except OSError as error:
        raise OSError(f"{error}; {path} has all but its figures: mend that and start it again") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def run_figure(record: Record) -> Any | None:
    """Loss, ||q_t|| with its spread, and rates of a run of `lur train`."""
    if not record.rounds:
        return None
    rounds = [line["round"] for line in record.rounds]
    step = max(1, len(rounds) // MOST_POINTS)
    figure, (losses, norms, rates) = plots.panels(3)
    own = [finite(line["loss"]) for line in record.rounds[::step]]
    losses.plot(rounds[::step], own, alpha=0.5, label="round's clients")
    if record.evaluations:
        whole = [finite(line["f"]) for line in record.evaluations]
        losses.plot([line["round"] for line in record.evaluations], whole, marker=".", label="f(x)")
    losses.set(xlabel="round", ylabel="loss")
    losses.legend()
    found = blocks(record.rounds, size=max(1, len(rounds) // BLOCKS))
    norms.errorbar([b.last for b in found], [b.mean for b in found], [b.spread for b in found], capsize=2)
    norms.set(xlabel="round", ylabel=r"$\|q_t\|$")
    shown: list[float] = []
    for name, label, style in (("client_lr", r"$\gamma_t$", "-"), ("server_lr", r"$\eta_t$", "--")):
        values = [line[name] for line in record.rounds[::step]]
        if all(isinstance(value, int | float) for value in values):
            rates.step(rounds[::step], values, where="post", linestyle=style, label=label)
            shown += values
    if positive := [value for value in shown if 0 < value < LARGEST]:
        rates.set_yscale("symlog", linthresh=min(positive))
        rates.set_ylim(0, 3 * max(positive))
    rates.set(xlabel="round")
    rates.legend()
    return figure


def sweep_figure(found: Swept) -> Any | None:
    """The loss of every cell of a sweep that has not diverged, lowest at the end first."""
    alive = [cell for cell in found.cells if not cell.diverged and len(cell.loss)]
    if not alive:
        return None
    figure, axis = plots.panels(1)
    for k, cell in enumerate(sorted(alive, key=lambda cell: cell.loss[-min(len(cell.loss), found.window) :].mean())):
        colour = plots.COLOURS[k] if k < len(plots.COLOURS) else "#bbbbbb"
        name = rf"$\gamma$ {cell.gamma:g}, $\eta$ {cell.eta:.3g}" if k < len(plots.COLOURS) else None
        step = max(1, len(cell.loss) // MOST_POINTS)
        rounds = range(1, len(cell.loss) + 1, step)
        axis.plot(rounds, cell.loss[::step], color=colour, label=name, zorder=-k, linewidth=1)
    axis.set(xlabel="round", ylabel="loss of the round's clients", yscale="log")
    axis.legend(fontsize=6)
    return figure


def finite(value: Any) -> float:
    """A number of a log for a plot; what is not finite leaves a gap."""
    found = number(value)
    return found if math.isfinite(found) else math.nan
