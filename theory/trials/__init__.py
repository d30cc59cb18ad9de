"""How a claim is tried: sampling, pursuit, escalation, certification, verdict (see `try_claim`).

1. Sampling: many random instances in one vmapped call, for each size of the claim's space.
2. Pursuit: gradient ascent on the violation with respect to the instance.
3. Escalation: a random climb at larger sizes and worse condition numbers (`theory.trials.escalate`).
4. Certification: the worst instances are rounded to fractions and checked in exact arithmetic, so that FALSE is a
   proof; random rational instances of every size are checked exactly as well.
5. Verdict: computed from this evidence; the kind of a falsehood (a false statement, a misprint, a missing assumption)
   is on record. The verdict on record decides the exit status of `lur verify`.
"""

import time
import zlib
from typing import NamedTuple

import numpy as np

from theory.claims.claim import Claim, Inspection, Trial, Verdict
from theory.trials.evidence import Evidence as Evidence
from theory.trials.evidence import inspect as inspect
from theory.trials.evidence import try_trial as try_trial
from theory.trials.implementation import REFERENCE as REFERENCE
from theory.trials.implementation import Implementation as Implementation
from theory.trials.implementation import implementation_of as implementation_of
from theory.trials.search import FULL as FULL
from theory.trials.search import QUICK as QUICK
from theory.trials.search import Budget as Budget


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
        exact_checks=sum(e.exact_checks for e in standing),
        moving_checks=sum(e.moving_checks for e in standing),
        findings=tuple(w for e in standing for w in e.findings),
        sizes=tuple(size for e in standing for size in e.sizes),
        ratios=tuple(ratio for e in standing for ratio in e.ratios),
    )


_VERDICT_OF_REPAIR: dict[str, Verdict] = {"statement": "FALSE", "typo": "TYPO", "assumption": "NEEDS"}


def try_claim(
    claim: Claim, budget: Budget = QUICK, seed: int = 0, implementation: Implementation = REFERENCE
) -> Result:
    """Tries a claim, and its corrected form if it has one.

    HOLDS: no violation was found. FALSE, TYPO, NEEDS: a counterexample is certified, and the correction stands; which
    of the three (another statement, a misprint corrected, an assumption added) is the claim's `repair`, on record.
    DEFINITION: there is nothing to decide, though a definition may carry a trial of what it entails. UNDECIDED:
    anything else, such as a violation that could not be certified.

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
