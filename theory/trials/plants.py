"""The falsifier on trial: true claims with a planted error must be refuted, and without it must not be.

Each plant takes one part of a claim that holds and spoils it: a bound a tenth too small, an exponent off by one, a
missing square. A falsifier worth its name finds a certified counterexample to every one of them.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from theory.claims import find
from theory.claims.claim import Trial
from theory.trials import QUICK, Budget, try_trial


class Plant(NamedTuple):
    """A true part of a claim and how it is spoilt."""

    id: str
    error: str
    spoil: Callable[[Trial], Trial]
    part: int = 0
    corrected: bool = False

    @property
    def trial(self) -> Trial:
        """The part as it should be."""
        claim = find(self.id)
        found = (claim.correction if self.corrected else claim.trial)[self.part]
        assert isinstance(found, Trial)
        return found


def tenth_off(trial: Trial) -> Trial:
    """The right side times 9/10."""
    return trial._replace(right=lambda xp, I: 9 * trial.right(xp, I) / 10)


def one_step_less(trial: Trial) -> Trial:
    """The right side with K - 1 for K: an exponent off by one."""
    return trial._replace(right=lambda xp, I: trial.right(xp, SimpleNamespace(**{**vars(I), "K": I.K - 1})))


def root_taken(trial: Trial) -> Trial:
    """The square root of the right side: a square forgotten."""
    return trial._replace(right=lambda xp, I: xp.sqrt(trial.right(xp, I)))


PLANTS = (
    Plant("D4", "square forgotten", lambda t: t._replace(left=lambda xp, I: t.left(xp, I) ** 2), corrected=True),
    Plant("D5", "exponent off by one", one_step_less),
    Plant("E3d", "exponent off by one", one_step_less, corrected=True),
    Plant("L5", "exponent off by one", one_step_less, corrected=True),
    Plant("L6", "bound times 0.9", tenth_off, part=1),
    Plant("L8b", "bound times 0.9", tenth_off),
    Plant("L9", "exponent off by one", one_step_less),
    Plant("L9", "bound times 0.9", tenth_off, part=1),
    Plant("L10", "bound times 0.9", tenth_off, part=1, corrected=True),
    Plant("C1", "bound times 0.9", tenth_off),
    Plant("C2", "bound times 0.9", tenth_off, corrected=True),
    Plant("S2", "square forgotten", root_taken, corrected=True),
    Plant("S2m", "bound times 0.9", tenth_off),
    Plant("S3", "bound times 0.9", tenth_off, corrected=True),
    Plant("T2", "exponent off by one", one_step_less),
    Plant("T2w", "exponent off by one", one_step_less, corrected=True),
)


class Outcome(NamedTuple):
    """How often, over the seeds, the spoilt form was refuted and the right form was."""

    plant: Plant
    seeds: int
    spoilt_refuted: int
    right_refuted: int


def try_plant(plant: Plant, seeds: int = 1, budget: Budget = QUICK) -> Outcome:
    """Both forms on trial under several seeds."""

    def refuted(trial: Trial) -> int:
        return sum(
            try_trial(trial, budget, np.random.default_rng([seed, 7])).outcome == "falls" for seed in range(seeds)
        )

    return Outcome(plant, seeds, refuted(plant.spoil(plant.trial)), refuted(plant.trial))


def table(outcomes: list[Outcome]) -> str:
    """The outcomes as a Markdown table, with both rates on top."""
    tried = sum(o.seeds for o in outcomes)
    caught, accused = sum(o.spoilt_refuted for o in outcomes), sum(o.right_refuted for o in outcomes)
    rows: list[Any] = [
        f"Planted errors refuted: {caught} of {tried} ({caught / tried:.0%}). Right forms refuted: {accused} of {tried}"
        f" ({accused / tried:.0%}).",
        "",
        "| claim | label | planted error | refuted | right form refuted |",
        "|---|---|---|---|---|",
    ]
    for o in outcomes:
        label = find(o.plant.id).label + (" (corrected)" if o.plant.corrected else "")
        rows.append(
            f"| {o.plant.id} | {label} | {o.plant.error} | {o.spoilt_refuted}/{o.seeds} | {o.right_refuted}/{o.seeds} |"
        )
    return "\n".join(rows) + "\n"


def main() -> None:
    """Print the table for three seeds, as Markdown."""
    from lur.jax_setup import keep_compiled

    keep_compiled()
    print(table([try_plant(plant, seeds=3) for plant in PLANTS]), end="")


if __name__ == "__main__":
    main()
