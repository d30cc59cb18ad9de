"""How a claim is tried: sampling, pursuit, certification, verdict (see `try_claim`).

1. Sampling: many random instances in one vmapped call, for each size in the claim's schedule.
2. Pursuit: gradient ascent on left / right through the instance itself.
3. Certification: a violation is rounded to fractions and checked in exact arithmetic, so that FALSE is a proof;
   an equality that seems to hold is checked exactly on random rational instances.
4. Verdict: computed from what was found. The recorded expectation only decides the exit status.
"""

import time
import zlib
from typing import Any, NamedTuple

import numpy as np

from theory.claims.claim import Claim, Finding, Inspection, Trial, Verdict
from theory.precision import float64
from theory.trials import numeric
from theory.trials.certify import Counterexample, agrees_exactly, certify
from theory.trials.search import FULL as FULL
from theory.trials.search import QUICK as QUICK
from theory.trials.search import Budget, Found, search

VIOLATED = 1 + 1e-7  # a ratio above this is worth an exact check
DISCREPANT = 1e-8  # and so is a relative discrepancy above this


class Evidence(NamedTuple):
    """What a trial found: the outcome, the largest ratio or discrepancy, and the exact checks behind it."""

    outcome: str  # "stands", "falls" or "unclear"
    ratio: float
    worst: dict[str, Any] | None
    counterexample: dict[str, Any] | None
    exact_checks: int
    findings: tuple[str, ...] = ()


class Result(NamedTuple):
    """The verdict on one claim."""

    claim: Claim
    verdict: Verdict
    evidence: Evidence | None
    correction: Evidence | None
    seconds: float

    @property
    def as_recorded(self) -> bool:
        """Whether the verdict is the one on record."""
        return self.verdict == self.claim.expected


@float64
def try_trial(trial: Trial, budget: Budget, generator: np.random.Generator) -> Evidence:
    """Sampling, pursuit and certification, from the smallest size on; the first certified violation ends it."""
    worst: Found | None = None
    checks = 0
    for dims in trial.space.dims:
        found, sampled = search(trial, dims, budget, generator)
        if worst is None or found.ratio > worst.ratio:
            worst = found
        if found.ratio > (VIOLATED if trial.relation == "<=" else DISCREPANT):
            certificate = certify(trial, found)
            if certificate is not None:
                return Evidence("falls", found.ratio, None, certificate._asdict(), checks + 1)
            if trial.relation == "<=" or not agrees_exactly(trial, dims, found.instance, denominator=10**6):
                return Evidence("unclear", found.ratio, _plain(found), None, checks)
        if trial.relation == "==":
            agreed = exact_agreement(trial, dims, budget, sampled)
            if isinstance(agreed, Counterexample):
                return Evidence("falls", found.ratio, None, agreed._asdict(), checks + 1)
            checks += agreed
    assert worst is not None
    return Evidence("stands", worst.ratio, _plain(worst), None, checks)


def exact_agreement(
    trial: Trial, dims: dict[str, int], budget: Budget, sampled: dict[str, np.ndarray]
) -> int | Counterexample:
    """How many sampled instances, rounded to fractions, agree exactly; a counterexample if one does not."""
    wanted = max(1, budget.exact // len(trial.space.dims))
    agreed = 0
    for index in range(10 * wanted):
        instance = {name: value[index] for name, value in sampled.items()}
        outcome = agrees_exactly(trial, dims, instance, denominator=6)
        if outcome is False:
            certificate = certify(trial, Found(np.inf, dims, instance))
            if certificate is not None:
                return certificate
        agreed += outcome is True
        if agreed == wanted:
            break
    return agreed


def _plain(found: Found) -> dict[str, Any]:
    return {**found.dims, **{name: np.asarray(value).tolist() for name, value in found.instance.items()}}


@float64
def inspect(inspection: Inspection) -> Evidence:
    """All findings of an inspection; it stands if every one agrees."""
    findings: list[Finding] = inspection.look(numeric)
    bad = [f for f in findings if not f.agrees]
    worst = max((f.discrepancy for f in findings), default=0.0)
    counterexample = {"found": bad[0].what} if bad else None
    outcome = "falls" if bad else "stands"
    return Evidence(outcome, worst, None, counterexample, len(findings), tuple(f.what for f in findings))


def gather(parts: tuple[Trial | Inspection, ...], budget: Budget, generator: np.random.Generator) -> Evidence | None:
    """The evidence of all parts of a trial as one: the first part that does not stand, or the tightest that does."""
    if not parts:
        return None
    found = []
    for part in parts:
        evidence = inspect(part) if isinstance(part, Inspection) else try_trial(part, budget, generator)
        if evidence.outcome != "stands":
            return evidence
        found.append(evidence)
    tightest = max(found, key=lambda e: e.ratio)
    return tightest._replace(
        exact_checks=sum(e.exact_checks for e in found), findings=tuple(w for e in found for w in e.findings)
    )


REPAIRED: dict[str, Verdict] = {"statement": "FALSE", "typo": "TYPO", "assumption": "NEEDS"}


def try_claim(claim: Claim, budget: Budget = QUICK, seed: int = 0) -> Result:
    """Put a claim, and its corrected form if it has one, on trial.

    HOLDS: nothing above 1 found. FALSE, TYPO, NEEDS: a counterexample is certified, and the correction (another
    statement, a misprint mended, an assumption added) stands. DEFINITION: nothing to decide, though a definition
    may carry a trial of what it entails. UNDECIDED: anything else, such as a violation that could not be certified.
    """
    start = time.perf_counter()
    generator = np.random.default_rng([seed, zlib.crc32(claim.id.encode())])
    evidence = gather(claim.trial, budget, generator)
    correction = gather(claim.correction, budget, generator)
    verdict: Verdict = "UNDECIDED"
    mended = correction is None or correction.outcome == "stands"
    if evidence is None or evidence.outcome == "stands":
        if mended and (claim.definition or evidence is not None):
            verdict = "DEFINITION" if claim.definition else "HOLDS"
    elif evidence.outcome == "falls" and mended:
        verdict = REPAIRED[claim.repair]
    return Result(claim, verdict, evidence, correction, time.perf_counter() - start)
