"""How a claim is tried: sampling, pursuit, certification, verdict (see `try_claim`).

1. Sampling: many random instances in one vmapped call, for each size of the claim's space.
2. Pursuit: gradient ascent on left / right with respect to the instance.
3. Certification: a violation is rounded to fractions and checked in exact arithmetic, so that FALSE is a proof;
   an equality that seems to hold is checked exactly on random rational instances.
4. Verdict: computed from this evidence. The verdict on record only decides the exit status of `lur verify`.
"""

import time
import zlib
from typing import Any, NamedTuple

import numpy as np

from theory.claims.claim import Claim, Finding, Inspection, Trial, Verdict
from theory.precision import float64
from theory.trials.certify import Counterexample, agrees_exactly, certify
from theory.trials.implementation import REFERENCE as REFERENCE
from theory.trials.implementation import Implementation as Implementation
from theory.trials.implementation import implementation_of as implementation_of
from theory.trials.numeric import arithmetic
from theory.trials.search import FULL as FULL
from theory.trials.search import QUICK as QUICK
from theory.trials.search import Budget, WorstInstance, search

VIOLATED = 1 + 1e-7  # a ratio above this is checked exactly
DISCREPANT = 1e-8  # and so is a relative discrepancy above this


class Evidence(NamedTuple):
    """The evidence of a trial.

    Attributes:
      outcome: "stands", "falls" or "unclear".
      ratio: the largest ratio of the sides of an inequality, or discrepancy of an equality.
      worst: the instance where it is attained, if the trial stands or is unclear.
      counterexample: a certified one, if the trial falls.
      exact_checks: the number of checks in exact arithmetic, or of an inspection's findings.
      findings: what inspections observed, in words.
    """

    outcome: str
    ratio: float
    worst: dict[str, Any] | None
    counterexample: dict[str, Any] | None
    exact_checks: int
    findings: tuple[str, ...] = ()


class Result(NamedTuple):
    """The verdict on one claim.

    Attributes:
      claim: the claim.
      verdict: the verdict that the evidence gives.
      evidence: that of the printed form; None for a definition without a trial.
      correction: that of the corrected form, if there is one.
      seconds: the time the trial took.
    """

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
def try_trial(
    trial: Trial, budget: Budget, generator: np.random.Generator, implementation: Implementation = REFERENCE
) -> Evidence:
    """Samples, pursues and certifies, from the smallest size on; the first certified violation ends the trial."""
    worst: WorstInstance | None = None
    checks = 0
    for dims in trial.space.dims:
        worst_of_size, sampled = search(trial, dims, budget, generator, implementation)
        if worst is None or worst_of_size.ratio > worst.ratio:
            worst = worst_of_size
        if worst_of_size.ratio > (VIOLATED if trial.relation == "<=" else DISCREPANT):
            certificate = certify(trial, worst_of_size)
            if certificate is not None:
                return Evidence("falls", worst_of_size.ratio, None, certificate._asdict(), checks + 1)
            if trial.relation == "<=" or not agrees_exactly(trial, dims, worst_of_size.instance, denominator=10**6):
                return Evidence("unclear", worst_of_size.ratio, _lists(worst_of_size), None, checks)
        if trial.relation == "==":
            agreed = _exact_agreement(trial, dims, budget, sampled)
            if isinstance(agreed, Counterexample):
                return Evidence("falls", worst_of_size.ratio, None, agreed._asdict(), checks + 1)
            checks += agreed
    assert worst is not None
    return Evidence("stands", worst.ratio, _lists(worst), None, checks)


def _exact_agreement(
    trial: Trial, dims: dict[str, int], budget: Budget, sampled: dict[str, np.ndarray]
) -> int | Counterexample:
    """The number of sampled instances that, rounded to fractions, agree exactly; a counterexample if one does not."""
    wanted = max(1, budget.exact // len(trial.space.dims))
    agreed = 0
    for index in range(10 * wanted):
        instance = {name: value[index] for name, value in sampled.items()}
        outcome = agrees_exactly(trial, dims, instance, denominator=6)
        if outcome is False:
            certificate = certify(trial, WorstInstance(np.inf, dims, instance))
            if certificate is not None:
                return certificate
        agreed += outcome is True
        if agreed == wanted:
            break
    return agreed


def _lists(worst: WorstInstance) -> dict[str, Any]:
    return {**worst.dims, **{name: np.asarray(value).tolist() for name, value in worst.instance.items()}}


@float64
def inspect(inspection: Inspection, implementation: Implementation = REFERENCE) -> Evidence:
    """The evidence of an inspection, which stands if all its findings agree with the claim."""
    findings: list[Finding] = inspection.look(arithmetic(implementation))
    disagreeing = [f for f in findings if not f.agrees]
    worst = max((f.discrepancy for f in findings), default=0.0)
    counterexample = {"found": disagreeing[0].what} if disagreeing else None
    outcome = "falls" if disagreeing else "stands"
    return Evidence(outcome, worst, None, counterexample, len(findings), tuple(f.what for f in findings))


def _combined_evidence(
    parts: tuple[Trial | Inspection, ...],
    budget: Budget,
    generator: np.random.Generator,
    implementation: Implementation,
) -> Evidence | None:
    """The evidence of all parts: that of the first part that does not stand, or of the tightest if all of them do."""
    if not parts:
        return None
    standing = []
    for part in parts:
        if isinstance(part, Inspection):
            evidence = inspect(part, implementation)
        else:
            evidence = try_trial(part, budget, generator, implementation)
        if evidence.outcome != "stands":
            return evidence
        standing.append(evidence)
    tightest = max(standing, key=lambda e: e.ratio)
    return tightest._replace(
        exact_checks=sum(e.exact_checks for e in standing), findings=tuple(w for e in standing for w in e.findings)
    )


_VERDICT_OF_REPAIR: dict[str, Verdict] = {"statement": "FALSE", "typo": "TYPO", "assumption": "NEEDS"}


def try_claim(
    claim: Claim, budget: Budget = QUICK, seed: int = 0, implementation: Implementation = REFERENCE
) -> Result:
    """Tries a claim, and its corrected form if it has one.

    HOLDS: no violation was found. FALSE, TYPO, NEEDS: a counterexample is certified, and the correction (another
    statement, a misprint corrected, an assumption added) stands. DEFINITION: there is nothing to decide, though a
    definition may carry a trial of what it entails. UNDECIDED: anything else, such as a violation that could not be
    certified.

    Args:
      claim: the claim.
      budget: how hard to look for a violation.
      seed: the seed of all sampling.
      implementation: the algorithms that the claim's formulas are compared with.
    """
    start = time.perf_counter()
    generator = np.random.default_rng([seed, zlib.crc32(claim.id.encode())])
    evidence = _combined_evidence(claim.trial, budget, generator, implementation)
    correction = _combined_evidence(claim.correction, budget, generator, implementation)
    verdict: Verdict = "UNDECIDED"
    corrected = correction is None or correction.outcome == "stands"
    if evidence is None or evidence.outcome == "stands":
        if corrected and (claim.definition or evidence is not None):
            verdict = "DEFINITION" if claim.definition else "HOLDS"
    elif evidence.outcome == "falls" and corrected:
        verdict = _VERDICT_OF_REPAIR[claim.repair]
    return Result(claim, verdict, evidence, correction, time.perf_counter() - start)
