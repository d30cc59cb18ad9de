"""Verdicts: a statement of the paper, what these runs show, and whether they agree, computed from the runs."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.paper.heterogeneity import Curve, comparisons
from lur.runs.sweep_results import CellResult, SweepResults, final_loss, format_rate, tune_server_lr

COMPARABLE = 1.05
"""Two losses are comparable if their ratio is at most this."""


class Statement(NamedTuple):
    """A statement of the paper and what the runs show.

    Attributes:
        task: Name of the task.
        paper: The statement.
        shows: What the runs show.
        agrees: Whether they agree; None if too few cells are left to tell.
    """

    task: str
    paper: str
    shows: str
    agrees: bool | None


def curve_of(cell: CellResult, block: int, evaluated: bool) -> tuple[list[int], list[float]]:
    """A cell's training curve: f(x) if it was evaluated, otherwise the mean loss of the rounds' clients per block."""
    if evaluated and cell.evaluations:
        return [t for t, *_ in cell.evaluations], [f for _, f, _ in cell.evaluations]
    ends = [*range(block, len(cell.loss) + 1, block)]
    return ends, [float(np.mean(cell.loss[t - block : t])) for t in ends]


def column(swept: SweepResults, eta: float) -> list[CellResult]:
    """The cells with a server rate that did not diverge, smallest gamma first."""
    cells = [cell for cell in swept.cells if math.isclose(cell.eta, eta) and not cell.diverged]
    return sorted(cells, key=lambda cell: cell.gamma)


class Crossing(NamedTuple):
    """A larger gamma compared with the smallest at one eta.

    Attributes:
        gamma: The larger gamma.
        lead: Last round up to which it is ahead; 0 if it never is.
        late: Its final loss divided by that of the smallest gamma.
        last: Last round of the curves.
    """

    gamma: float
    lead: int
    late: float
    last: int

    @property
    def appears(self) -> bool:
        """Whether it is ahead early and behind late."""
        return 0 < self.lead < self.last and self.late > 1


def crossings(cells: Sequence[CellResult], block: int, evaluated: bool) -> list[Crossing]:
    """Compares each larger gamma with the smallest, which is the first cell."""
    curves = []
    for cell in cells:
        rounds, losses = curve_of(cell, block, evaluated)
        curves.append(Curve(0.0, cell.gamma, tuple(rounds), tuple(losses), ()))
    crossed = []
    for other in curves[1:]:
        if not other.rounds or other.rounds != curves[0].rounds:
            continue
        (row,) = comparisons([curves[0], other])
        crossed.append(Crossing(other.gamma, row.lead, row.late, other.rounds[-1]))
    return crossed


def early_and_late(task: str, swept: SweepResults, eta: float, block: int, evaluated: bool) -> Statement:
    """With eta fixed, a larger gamma leads early and loses late."""
    claim = "with a fixed server rate a larger gamma has the lower loss at first and is beaten or matched later"
    cells = column(swept, eta)
    rows = crossings(cells, block, evaluated)
    if not rows:
        return Statement(task, claim, f"eta {eta:g}: fewer than two gammas did not diverge", None)
    appearing = [row for row in rows if row.appears]
    if appearing:
        best = max(appearing, key=lambda row: row.gamma)
        shows = (
            f"eta {eta:g}: gamma {best.gamma:g} leads gamma {cells[0].gamma:g} up to round {best.lead} "
            f"and ends at {best.late:.3g} times its loss"
        )
    else:
        ends = ", ".join(
            f"gamma {row.gamma:g}: leads to {row.lead} of {row.last}, ends at {row.late:.4g}" for row in rows
        )
        shows = f"eta {eta:g}: no gamma leads gamma {cells[0].gamma:g} early and loses late ({ends} times its loss)"
    others = [
        format_rate(other) for other in swept.sweep.server_lr
        if not math.isclose(other, eta) and any(r.appears for r in crossings(column(swept, other), block, evaluated))
    ]  # fmt: skip
    if len(swept.sweep.server_lr) > 1:
        shows += f"; of the grid's other etas it appears at {', '.join(others) or 'none'}"
    return Statement(task, claim, shows, bool(appearing))


def spread(losses: Sequence[float]) -> float:
    """The gap between the largest and the smallest loss: suboptimality, as a difference."""
    return max(losses) - min(losses)


def tuning_helps(task: str, swept: SweepResults, eta: float) -> Statement:
    """Tuning eta for each gamma brings the gammas together."""
    claim = "tuning the server rate mitigates the suboptimality of gamma > 0: the gap between gammas shrinks"
    rounds = swept.sweep.run.rounds
    best = {row.gamma: row.loss for row in tune_server_lr(swept) if row.eta is not None}
    fixed = {cell.gamma: final_loss(cell, rounds) for cell in column(swept, eta)}
    both = sorted(set(best) & set(fixed))
    if len(both) < 2:
        return Statement(task, claim, f"fewer than two gammas are left at eta {eta:g}", None)
    ends = [[losses[g] for g in both] for losses in (fixed, best)]
    before, after = (spread(losses) for losses in ends)
    ratios = [max(losses) / min(losses) for losses in ends]
    shows = (
        f"over {len(both)} gammas the gap between the largest and the smallest final loss is {before:.4g} at "
        f"eta {eta:g} and {after:.4g} with tuned eta; as a ratio {ratios[0]:.4g} and {ratios[1]:.4g}"
    )
    return Statement(task, claim, shows, after < before)


def norms_fall(task: str, swept: SweepResults, eta: float) -> Statement:
    """The norm of the update falls with gamma."""
    claim = "smaller client rates lead to larger model updates: ||q_t|| falls with gamma"
    cells = column(swept, eta)
    if len(cells) < 2:
        return Statement(task, claim, f"fewer than two gammas did not diverge at eta {eta:g}", None)
    means = [float(np.mean(cell.norm)) for cell in cells]
    shows = "mean ||q_t||: " + ", ".join(f"{m:.3g} (gamma {c.gamma:g})" for c, m in zip(cells, means, strict=True))
    return Statement(task, claim, shows, all(b <= a for a, b in itertools.pairwise(means)))


def tied_is_not_best(task: str, swept: SweepResults) -> Statement:
    """gamma = eta does not reach the best loss of the grid."""
    claim = "gamma = eta (vanilla FedAvg) does not result in the best performance"
    rounds = swept.sweep.run.rounds
    every = [final_loss(cell, rounds) for cell in swept.cells]
    tied = [final_loss(cell, rounds) for cell in swept.cells if math.isclose(cell.gamma, cell.eta)]
    tied = [loss for loss in tied if math.isfinite(loss)]
    if not tied:
        return Statement(task, claim, "no cell with gamma = eta is left", None)
    best = float(np.nanmin(every))
    shows = f"the best tied pair ends at {min(tied):.4g}, {min(tied) / best:.4g} times the best of the grid"
    return Statement(task, claim, shows, min(tied) > best)


def small_gamma_wins(task: str, swept: SweepResults) -> Statement:
    """With tuned eta, the smaller gamma ends lower, as the paper finds for tag prediction."""
    claim = "with tuned server rates the smaller gammas perform better (tag prediction)"
    rows = sorted((row for row in tune_server_lr(swept) if row.eta is not None), key=lambda row: row.gamma)
    if len(rows) < 2:
        return Statement(task, claim, "fewer than two gammas are left", None)
    shows = "final losses: " + ", ".join(
        f"{row.loss:.4g} (gamma {row.gamma:g}, eta {format_rate(row.eta or 0)})" for row in rows
    )
    return Statement(task, claim, shows, rows[0].loss < rows[-1].loss)


def large_gamma_wins(task: str, swept: SweepResults) -> Statement:
    """With tuned eta, the larger gamma is ahead at first and matched at the end."""
    claim = "with tuned server rates larger gammas may lead at first; eventually smaller ones are comparable or better"
    rows = sorted((row for row in tune_server_lr(swept) if row.eta is not None), key=lambda row: row.gamma)
    if len(rows) < 2:
        return Statement(task, claim, "fewer than two gammas are left", None)
    best = min(rows, key=lambda row: row.loss)
    least = rows[0]
    shows = (
        f"the smallest gamma ({least.gamma:g}) ends at {least.loss:.4g}, the best ({best.gamma:g}) at {best.loss:.4g}"
    )
    return Statement(task, claim, shows, rows[0].loss <= COMPARABLE * best.loss)


def decay_matches(task: str, swept: SweepResults, decayed: Any) -> Statement:
    """LocalUpdateDecay does as well as the best tuned gamma."""
    claim = "LocalUpdateDecay eventually does as well as LocalUpdate with tuned gamma, without tuning it"
    rows = [row for row in tune_server_lr(swept) if row.eta is not None]
    if decayed.cell is None or not rows:
        return Statement(task, claim, "no gamma trained under the decay rule", None)
    best = min(rows, key=lambda row: row.loss)
    final = final_loss(decayed.cell, swept.sweep.run.rounds)
    decays = int((np.diff(decayed.cell.gammas) < 0).sum())
    shows = (
        f"from gamma {decayed.gamma:g} with eta {format_rate(decayed.cell.eta)} and {decays} decays "
        f"it ends at {final:.4g}, {final / best.loss:.3g} times the best tuned ({best.loss:.4g} at gamma "
        f"{best.gamma:g}); comparable means up to {COMPARABLE:g}"
    )
    return Statement(task, claim, shows, final <= COMPARABLE * best.loss)


def etas_rise(task: str, swept: SweepResults) -> Statement:
    """Larger gammas allow larger etas."""
    claim = "choosing larger gamma enables higher values of eta"
    etas = [(row.gamma, row.eta) for row in sorted(tune_server_lr(swept), key=lambda r: r.gamma) if row.eta is not None]
    if len(etas) < 2:
        return Statement(task, claim, "fewer than two gammas are left", None)
    rises = all(b >= a for (_, a), (_, b) in itertools.pairwise(etas)) and etas[-1][1] > etas[0][1]
    shows = "tuned eta: " + ", ".join(f"{format_rate(eta)} (gamma {gamma:g})" for gamma, eta in etas)
    return Statement(task, claim, shows, rises)
