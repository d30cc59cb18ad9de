"""The falsifier on trial: true claims with a planted error must be refuted, and without it must not be.

A planted error spoils one part of a claim that holds, or stands in a false statement beside a true one
(`theory.trials.planted_statements`). The falsifier has to find a certified counterexample to each.
`python -m theory.trials.planted_errors` prints the tables of `docs/falsifier.md`.
"""

import sys
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from theory.claims import find
from theory.claims.claim import Trial
from theory.trials import QUICK, Budget, try_trial
from theory.trials.implementation import REFERENCE, Implementation
from theory.trials.planted_statements import STATEMENTS
from theory.trials.search import scaled
from theory.trials.workers import results


class PlantedError(NamedTuple):
    """A true trial and a false one.

    Attributes:
      id: the claim that was spoilt, "" for a statement of its own.
      kind: what makes the error hard to find.
      error: the planted error, in words.
      true: the true trial.
      false: the false one.
      corrected: whether the claim's corrected form was spoilt rather than the printed one.
    """

    id: str
    kind: str
    error: str
    true: Trial
    false: Trial
    corrected: bool = False


def spoilt(
    id: str, kind: str, error: str, spoil: Callable[[Trial], Trial], part: int = 0, corrected: bool = False
) -> PlantedError:
    """Returns an error planted in a part of a claim that is true."""
    claim = find(id)
    true = (claim.correction if corrected else claim.trial)[part]
    assert isinstance(true, Trial)
    return PlantedError(id, kind, error, true, spoil(true), corrected)


def _bound_times(factor: str) -> Callable[[Trial], Trial]:
    """The right side times a number."""
    return lambda trial: trial._replace(right=lambda xp, I: xp.array([factor])[0] * trial.right(xp, I))


def _one_step_less(trial: Trial) -> Trial:
    """The right side with K - 1 for K: an exponent off by one."""
    return trial._replace(right=lambda xp, I: trial.right(xp, SimpleNamespace(**{**vars(I), "K": I.K - 1})))


def _square_root(trial: Trial) -> Trial:
    """The square root of the right side: a square forgotten."""
    return trial._replace(right=lambda xp, I: xp.sqrt(trial.right(xp, I)))


TIGHT = "9/10"
PLANTED_ERRORS = (
    spoilt("D4", "algebra", "square forgotten", lambda t: t._replace(left=lambda xp, I: t.left(xp, I) ** 2), 0, True),
    spoilt("S2", "algebra", "square forgotten", _square_root, 0, True),
    spoilt("D5", "off by one", "exponent off by one", _one_step_less),
    spoilt("E3d", "off by one", "exponent off by one", _one_step_less, 0, True),
    spoilt("L5", "off by one", "exponent off by one", _one_step_less, 0, True),
    spoilt("L9", "off by one", "exponent off by one", _one_step_less),
    spoilt("T2", "off by one", "exponent off by one", _one_step_less),
    spoilt("T2w", "off by one", "exponent off by one", _one_step_less, 0, True),
    *(
        spoilt(id, "tight", "bound times 0.9", _bound_times(TIGHT), part, corrected)
        for id, part, corrected in (
            ("L6", 1, False), ("L8b", 0, False), ("L9", 1, False), ("L10", 1, True), ("C1", 0, False), ("C2", 0, True),
            ("S2m", 0, False), ("S3", 0, True), ("L13", 0, False), ("L16", 0, False),
        )
    ),
    spoilt("T3", "loose", "bound times 0.09", _bound_times("9/100")),
    spoilt("T4", "loose", "bound times 0.1", _bound_times("1/10")),
    spoilt("T5", "loose", "bound times 0.1", _bound_times("1/10")),
    spoilt("C4", "loose", "bound times 0.043", _bound_times("43/1000")),
    spoilt("T4", "loose", "bound times 0.3", _bound_times("3/10"), 0, True),
    spoilt("C5t", "loose", "bound times 0.14", _bound_times("14/100"), 0, True),
    spoilt("C5t", "loose", "bound times 0.62", _bound_times("62/100")),
    *(PlantedError("", s.kind, s.error, s.true, s.false) for s in STATEMENTS),
)  # fmt: skip


class Outcome(NamedTuple):
    """How often the spoilt form and the true form were refuted.

    Attributes:
      planted: the planted error.
      seeds: the number of trials of each form.
      spoilt_refuted: how many of them refuted the spoilt form; all should.
      true_refuted: how many refuted the true form; none should.
      true_undecided: how many left the true form undecided.
    """

    planted: PlantedError
    seeds: int
    spoilt_refuted: int
    true_refuted: int
    true_undecided: int = 0


def try_planted_error(
    planted: PlantedError, seeds: int = 1, budget: Budget = QUICK, implementation: Implementation = REFERENCE
) -> Outcome:
    """Tries the spoilt and the true form, under several seeds."""

    def outcomes(trial: Trial) -> Counter[str]:
        generators = (np.random.default_rng([seed, 7]) for seed in range(seeds))
        return Counter(try_trial(trial, budget, generator, implementation).outcome for generator in generators)

    false, true = outcomes(planted.false), outcomes(planted.true)
    return Outcome(planted, seeds, false["falls"], true["falls"], true["unclear"])


def table(outcomes: list[Outcome]) -> str:
    """Returns the outcomes as Markdown: both rates, the power per kind, and every planted error."""

    def rates(some: list[Outcome]) -> tuple[str, str]:
        tried = sum(o.seeds for o in some)
        spoilt, true = (sum(getattr(o, name) for o in some) for name in ("spoilt_refuted", "true_refuted"))
        return f"{spoilt} of {tried} ({spoilt / tried:.0%})", f"{true} of {tried} ({true / tried:.0%})"

    spoilt, true = rates(outcomes)
    undecided = sum(o.true_undecided for o in outcomes)
    rows = [f"Planted errors refuted: {spoilt}. True forms refuted: {true}, left undecided: {undecided}.", ""]
    rows += ["| kind | planted errors | refuted | true forms refuted |", "|---|---:|---|---|"]
    for kind in dict.fromkeys(o.planted.kind for o in outcomes):
        some = [o for o in outcomes if o.planted.kind == kind]
        rows.append(f"| {kind} | {len(some)} | {' | '.join(rates(some))} |")
    rows += ["", "| claim | kind | planted error | refuted | true form refuted |", "|---|---|---|---|---|"]
    for planted, seeds, spoilt_refuted, true_refuted, _ in outcomes:
        name = planted.id + (" (corrected)" if planted.corrected else "") or "a statement"
        error = planted.error.replace("|", "\\|").replace("_", "\\_").replace("^", "\\^")
        rows.append(f"| {name} | {planted.kind} | {error} | {spoilt_refuted}/{seeds} | {true_refuted}/{seeds} |")
    return "\n".join(rows) + "\n"


def _try_one(index: int, seeds: int, factor: float) -> tuple[int, tuple[int, ...]]:
    outcome = try_planted_error(PLANTED_ERRORS[index], seeds, scaled(QUICK, factor))
    return index, outcome[1:]


if __name__ == "__main__":
    seeds, factor, jobs = (float(argument) for argument in (*sys.argv[1:], *("3", "1", "2")[len(sys.argv) - 1 :]))
    found = dict(results(_try_one, [(i, int(seeds), factor) for i in range(len(PLANTED_ERRORS))], int(jobs)))
    print(table([Outcome(planted, *found[i]) for i, planted in enumerate(PLANTED_ERRORS)]), end="")
