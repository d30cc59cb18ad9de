"""The evidence of one trial: what was searched, what was checked exactly, and what came of it."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from theory import plain
from theory.claims.claim import Finding, Inspection, Trial
from theory.precision import float64
from theory.trials.arithmetic import arithmetic
from theory.trials.certify import (
    Counterexample,
    Fractions,
    Ruling,
    as_computed,
    certify,
    check,
    is_long,
    rounded,
    rule,
    simplified,
)
from theory.trials.compare import ratio_of
from theory.trials.escalate import KAPPAS, built_plainly, climb, is_plain, larger_sizes, raw_points, stretched
from theory.trials.implementation import REFERENCE, Implementation
from theory.trials.search import CANDIDATES, Budget, WorstInstance, search, sides

SUSPECT = -1e-9  # an inequality's instances with an excess above this are judged exactly
VIOLATED = 1e-7  # above this, what exact arithmetic leaves in doubt leaves the trial in doubt
DISCREPANT = 1e-8  # and so for an equality
ROUNDINGS = (6, 100, 10**5)  # denominators: the next one where an instance is outside of the space once rounded
FAITHFUL = 1e-8  # sides of a right implementation differ less from the transcribed ones, relative to all numbers

Outcome = Literal["stands", "falls", "unclear"]


class Evidence(NamedTuple):
    """The evidence of a trial.

    Attributes:
      outcome: "stands", "falls" or "unclear".
      ratio: the largest left / right of an inequality, or discrepancy of an equality; infinite if a right side of 0 or
        of the other sign is exceeded.
      worst: the instance where it is attained, if the trial stands; the one in doubt, if it is unclear.
      counterexample: a certified one, if the trial falls.
      exact_checks: the number of instances that were checked in exact arithmetic, or of an inspection's findings.
      findings: what inspections observed, in words.
      moving_checks: how many of the exact checks had a positive rate and more than one local step.
      sizes: the sizes that were tried, with the largest condition number as kappa.
      ratios: the largest ratio or discrepancy that a search reached at each size; None where nothing was searched.
    """

    outcome: Outcome
    ratio: float
    worst: dict[str, Any] | None
    counterexample: dict[str, Any] | None
    exact_checks: int
    findings: tuple[str, ...] = ()
    moving_checks: int = 0
    sizes: tuple[dict[str, Any], ...] = ()
    ratios: tuple[float | None, ...] = ()


class _Doubt(NamedTuple):
    """An instance that exact arithmetic cannot decide, and why."""

    instance: WorstInstance
    why: str


class _Court:
    """One trial as it proceeds: counts exact checks and remembers the sizes and the worst instance."""

    def __init__(self, trial: Trial, implementation: Implementation):
        self.trial, self.implementation = trial, implementation
        self.checks = self.moving = 0
        self.sizes: list[dict[str, Any]] = []
        self.reached: list[float | None] = []
        self.worst: WorstInstance | None = None

    def visit(self, dims: Mapping[str, int], kappa: float | None = None) -> None:
        """Note a size, and the largest condition number tried there if there are matrices."""
        conditioned = any(field.kind == "symmetric" for field in self.trial.space.fields.values())
        kappa = kappa if conditioned else None
        for size in self.sizes:
            if all(size.get(name) == value for name, value in dims.items()):
                if kappa:
                    size["kappa"] = max(size.get("kappa", 0.0), kappa)
                return
        self.sizes.append({**dims, **({"kappa": kappa} if kappa else {})})
        self.reached.append(None)

    def note(self, one: WorstInstance) -> None:
        """Remember the worst instance, of all and of its size."""
        level = ratio_of(one.excess) if self.trial.relation == "<=" else one.excess
        for index, size in enumerate(self.sizes):
            if all(size.get(name) == value for name, value in one.dims.items()):
                self.reached[index] = max(level, self.reached[index] or 0.0)
        if self.worst is None or one.excess > self.worst.excess:
            self.worst = one

    def judge(self, suspects: Iterable[WorstInstance]) -> Counterexample | _Doubt | None:
        """Put instances before exact arithmetic until one is a counterexample; otherwise return the first in doubt.

        A violation that exact arithmetic denies at the very same numbers is a rounding error of floating point.
        """
        trial = self.trial
        limit, doubtful = (SUSPECT, VIOLATED) if trial.relation == "<=" else (DISCREPANT, DISCREPANT)
        doubt: _Doubt | None = None
        for one in suspects:
            if one.excess <= limit:
                self.note(one)
                break
            ruling, fractions = as_computed(trial, one)
            if ruling == "holds":
                self.count(fractions, one.dims)
                if not self.is_faithful(one):
                    doubt = doubt or _Doubt(one, "the implementation differs from the algorithm as transcribed")
                self.note(one._replace(excess=min(one.excess, 0.0) if trial.relation == "<=" else one.excess))
                continue
            if not np.isnan(one.excess) and (certificate := certify(trial, one)) is not None:
                self.checks += 1
                self.note(one)
                return certificate
            if ruling == "violated":
                self.note(one)
                return simplified(trial, one.dims, fractions)
            if ruling in ("undecided", "undefined") and not one.excess <= doubtful:
                doubt = doubt or _Doubt(one, f"exact arithmetic finds it {ruling}")
        return doubt

    def is_faithful(self, one: WorstInstance) -> bool:
        """Whether the implementation on trial computes the same sides as the transcribed algorithms, up to rounding."""
        if not is_plain(self.trial):
            return True
        with np.errstate(all="ignore"):
            expected = [np.asarray(side, float) for side in sides(self.trial, plain, one.instance, one.dims)]
            got = sides(self.trial, arithmetic(self.implementation), one.instance, one.dims)
        fields = [value for value in one.instance.values() if np.size(value)]
        largest = max(float(np.abs(np.asarray(value, float)).max()) for value in (*expected, *fields))
        gaps = [float(np.abs(np.asarray(a, float) - b).max()) for a, b in zip(got, expected, strict=True)]
        return not max(gaps) > FAITHFUL * largest

    def count(self, fractions: Fractions, dims: Mapping[str, int]) -> None:
        """Count an exact check."""
        rates = [name for name, field in self.trial.space.fields.items() if field.kind == "rate"]
        self.checks += 1
        self.moving += dims.get("K", 1) > 1 and any(fractions[name][()] > 0 for name in rates)

    def check_exactly(
        self, instances: Iterable[Mapping[str, Any]], dims: dict[str, int], wanted: int
    ) -> Counterexample | None:
        """Check instances, rounded to fractions, in exact arithmetic until enough of them agree or one does not."""
        agreed = 0
        for values in instances:
            ruling, fractions = self.rule_rounded(values, dims)
            if ruling == "violated" and check(self.trial, dims, fractions) is not None:
                self.checks += 1
                return simplified(self.trial, dims, fractions)
            if ruling == "holds":
                self.count(fractions, dims)
                agreed += 1
            if agreed >= wanted:
                break
        return None

    def rule_rounded(self, values: Mapping[str, Any], dims: dict[str, int]) -> tuple[Ruling, Fractions]:
        """Judge an instance rounded as coarsely as keeps it in the space."""
        for denominator in ROUNDINGS:
            fractions = rounded(self.trial.space, values, dims, denominator, "unit")
            ruling = rule(self.trial, dims, fractions, balls=is_long(dims))[0]
            if ruling != "illegal":
                return ruling, fractions
        return "illegal", {}

    def evidence(self, outcome: Outcome, found: Counterexample | _Doubt | None = None) -> Evidence:
        """Return the evidence so far."""
        worst, counterexample, findings = self.worst, None, ()
        if isinstance(found, Counterexample):
            counterexample, worst = found._asdict(), None
        if isinstance(found, _Doubt):
            worst, findings = found.instance, (found.why,)
        reached = self.worst or worst
        level = 0.0 if reached is None else reached.excess
        ratio = ratio_of(level) if self.trial.relation == "<=" else level
        return Evidence(outcome, ratio, None if worst is None else _lists(worst), counterexample, self.checks,
                        findings, self.moving, tuple(self.sizes), tuple(self.reached))  # fmt: skip


def _lists(worst: WorstInstance) -> dict[str, Any]:
    return {**worst.dims, **{name: np.asarray(value).tolist() for name, value in worst.instance.items()}}


@float64
def try_trial(
    trial: Trial, budget: Budget, generator: np.random.Generator, implementation: Implementation = REFERENCE
) -> Evidence:
    """Samples, pursues, escalates and certifies; the first certified violation ends the trial."""
    court = _Court(trial, implementation)
    wanted = max(1, budget.exact // len(trial.space.dims))
    for dims in trial.space.dims:
        court.visit(dims, KAPPAS[1])
        found = search(trial, dims, budget, generator, implementation)
        verdict = court.judge(found.worst[: 2 * CANDIDATES]) or court.judge(found.undefined)
        if verdict is None:
            samples = (
                {name: v[i] for name, v in found.sampled.items()} for i in range(min(10 * wanted, budget.samples))
            )
            verdict = court.check_exactly(samples, dims, wanted)
        if verdict is not None:
            return court.evidence("falls" if isinstance(verdict, Counterexample) else "unclear", verdict)
    verdict = _escalate(court, budget, generator)
    if verdict is not None:
        return court.evidence("falls" if isinstance(verdict, Counterexample) else "unclear", verdict)
    return court.evidence("stands")


def _escalate(court: _Court, budget: Budget, generator: np.random.Generator) -> Counterexample | _Doubt | None:
    """Try larger sizes and worse condition numbers."""
    trial, space = court.trial, court.trial.space
    if not is_plain(trial):
        return None
    conditioned = any(field.kind == "symmetric" for field in space.fields.values())
    kappas = (KAPPAS[0], KAPPAS[-1]) if conditioned else (KAPPAS[0],)
    for dims in larger_sizes(space):
        if not is_plain(trial, dims):
            continue
        court.visit(dims, KAPPAS[1])
        if trial.relation == "<=":
            verdict = court.judge([climb(trial, dims, KAPPAS[1], budget.climbs, generator)])
            if verdict is not None:
                return verdict
        verdict = _at_condition_numbers(court, dims, kappas, budget, generator)
        if verdict is not None:
            return verdict
    if not conditioned:
        return None
    if trial.relation == "<=":
        court.visit(space.dims[-1], KAPPAS[2])
        verdict = court.judge([climb(trial, space.dims[-1], KAPPAS[2], budget.climbs, generator)])
        if verdict is not None:
            return verdict
    return _at_condition_numbers(court, space.dims[-1], KAPPAS[2:], budget, generator)


def _at_condition_numbers(
    court: _Court, dims: dict[str, int], kappas: Iterable[float], budget: Budget, generator: np.random.Generator
) -> Counterexample | None:
    """Check a few instances exactly at each condition number; every other one attains it."""
    wanted = 2 * max(1, budget.exact // 12)
    for kappa in kappas:
        court.visit(dims, kappa)
        points = raw_points(court.trial.space, dims, generator, 2 * wanted)
        points = [stretched(raw) if index % 2 else raw for index, raw in enumerate(points)]
        instances = (built_plainly(court.trial.space, raw, dims, kappa) for raw in points)
        verdict = court.check_exactly(instances, dims, wanted)
        if verdict is not None:
            return verdict
    return None


@float64
def inspect(inspection: Inspection, implementation: Implementation = REFERENCE) -> Evidence:
    """The evidence of an inspection, which stands if all its findings agree with the claim."""
    findings: list[Finding] = inspection.look(arithmetic(implementation))
    disagreeing = [f for f in findings if not f.agrees]
    worst = max((f.discrepancy for f in findings), default=0.0)
    counterexample = {"found": disagreeing[0].what} if disagreeing else None
    outcome: Outcome = "falls" if disagreeing else "stands"
    return Evidence(outcome, worst, None, counterexample, len(findings), tuple(f.what for f in findings))
