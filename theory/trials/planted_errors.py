"""The falsifier on trial: true claims with a planted error must be refuted, and without it must not be.

Each planted error spoils one part of a claim that holds: a bound a tenth too small, an exponent off by one, a missing
square. The falsifier has to find a certified counterexample to each. `python -m theory.trials.planted_errors` prints
the table of `docs/falsifier.md`.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from theory.claims import find
from theory.claims.claim import Trial
from theory.trials import QUICK, Budget, try_trial
from theory.trials.implementation import REFERENCE, Implementation


class PlantedError(NamedTuple):
    """A true part of a claim and how it is spoilt.

    Attributes:
      id: the claim.
      error: the planted error, in words.
      spoil: makes the false trial from the true one.
      part: which part of the claim's trial.
      corrected: whether the part is one of the corrected form rather than of the printed one.
    """

    id: str
    error: str
    spoil: Callable[[Trial], Trial]
    part: int = 0
    corrected: bool = False

    @property
    def trial(self) -> Trial:
        """Return the part of the claim from which the error was made, which is true."""
        claim = find(self.id)
        part = (claim.correction if self.corrected else claim.trial)[self.part]
        assert isinstance(part, Trial)
        return part


def _bound_times_9_10(trial: Trial) -> Trial:
    """The right side times 9/10."""
    return trial._replace(right=lambda xp, I: 9 * trial.right(xp, I) / 10)


def _one_step_less(trial: Trial) -> Trial:
    """The right side with K - 1 for K: an exponent off by one."""
    return trial._replace(right=lambda xp, I: trial.right(xp, SimpleNamespace(**{**vars(I), "K": I.K - 1})))


def _square_root(trial: Trial) -> Trial:
    """The square root of the right side: a square forgotten."""
    return trial._replace(right=lambda xp, I: xp.sqrt(trial.right(xp, I)))


PLANTED_ERRORS = (
    PlantedError("D4", "square forgotten", lambda t: t._replace(left=lambda xp, I: t.left(xp, I) ** 2), corrected=True),
    PlantedError("D5", "exponent off by one", _one_step_less),
    PlantedError("E3d", "exponent off by one", _one_step_less, corrected=True),
    PlantedError("L5", "exponent off by one", _one_step_less, corrected=True),
    PlantedError("L6", "bound times 0.9", _bound_times_9_10, part=1),
    PlantedError("L8b", "bound times 0.9", _bound_times_9_10),
    PlantedError("L9", "exponent off by one", _one_step_less),
    PlantedError("L9", "bound times 0.9", _bound_times_9_10, part=1),
    PlantedError("L10", "bound times 0.9", _bound_times_9_10, part=1, corrected=True),
    PlantedError("C1", "bound times 0.9", _bound_times_9_10),
    PlantedError("C2", "bound times 0.9", _bound_times_9_10, corrected=True),
    PlantedError("S2", "square forgotten", _square_root, corrected=True),
    PlantedError("S2m", "bound times 0.9", _bound_times_9_10),
    PlantedError("S3", "bound times 0.9", _bound_times_9_10, corrected=True),
    PlantedError("T2", "exponent off by one", _one_step_less),
    PlantedError("T2w", "exponent off by one", _one_step_less, corrected=True),
)


class Outcome(NamedTuple):
    """How often the spoilt form and the true form were refuted.

    Attributes:
      planted: the planted error.
      seeds: the number of trials of each form.
      spoilt_refuted: how many of them refuted the spoilt form; all should.
      true_refuted: how many refuted the true form; none should.
    """

    planted: PlantedError
    seeds: int
    spoilt_refuted: int
    true_refuted: int


def try_planted_error(
    planted: PlantedError, seeds: int = 1, budget: Budget = QUICK, implementation: Implementation = REFERENCE
) -> Outcome:
    """Tries the spoilt and the true form, under several seeds."""

    def refuted(trial: Trial) -> int:
        generators = (np.random.default_rng([seed, 7]) for seed in range(seeds))
        return sum(try_trial(trial, budget, generator, implementation).outcome == "falls" for generator in generators)

    return Outcome(planted, seeds, refuted(planted.spoil(planted.trial)), refuted(planted.trial))


def table(outcomes: list[Outcome]) -> str:
    """Returns the outcomes as a Markdown table below a sentence with both rates."""
    tried = sum(o.seeds for o in outcomes)
    spoilt, true = sum(o.spoilt_refuted for o in outcomes), sum(o.true_refuted for o in outcomes)
    rows = [
        f"Planted errors refuted: {spoilt} of {tried} ({spoilt / tried:.0%}). True forms refuted: {true} of {tried}"
        f" ({true / tried:.0%}).",
        "",
        "| claim | label | planted error | refuted | true form refuted |",
        "|---|---|---|---|---|",
    ]
    for planted, seeds, spoilt_refuted, true_refuted in outcomes:
        label = find(planted.id).label + (" (corrected)" if planted.corrected else "")
        rows.append(f"| {planted.id} | {label} | {planted.error} | {spoilt_refuted}/{seeds} | {true_refuted}/{seeds} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(table([try_planted_error(planted, seeds=3) for planted in PLANTED_ERRORS]), end="")
