"""The record of `lur verify`: one row per claim, tried over several processes."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from theory.claims import CLAIMS, claims_of_file, find
from theory.claims.claim import Trial
from theory.trials import FULL, QUICK, Evidence, try_claim
from theory.trials.implementation import REFERENCE, Implementation
from theory.trials.search import scaled
from theory.trials.workers import do_nothing, results


def try_by_id(
    id: str,
    full: bool,
    seed: int,
    budget: float = 1.0,
    implementation: Implementation = REFERENCE,
    file: Path | None = None,
) -> dict[str, Any]:
    """Tries one claim, of this project or of a file, and returns its row of the record, ready for JSON."""
    known = CLAIMS if file is None else claims_of_file(file)
    result = try_claim(find(id, known), scaled(FULL if full else QUICK, budget), seed, implementation)
    claim, evidence, correction = result.claim, result.evidence, result.correction
    return {
        "id": claim.id,
        "label": claim.label,
        "line": claim.line,
        "verdict": result.verdict,
        "expected": claim.expected,
        "ratio": evidence.ratio if evidence and math.isfinite(evidence.ratio) else None,
        "unbounded": evidence is not None and math.isinf(evidence.ratio),
        "counterexample": evidence.counterexample if evidence else None,
        "worst": evidence.worst if evidence else None,
        "exact_checks": evidence.exact_checks if evidence else 0,
        "moving_checks": evidence.moving_checks if evidence else 0,
        "sizes": list(evidence.sizes) if evidence else [],
        "relations": sorted({part.relation for part in claim.trial if isinstance(part, Trial)}),
        "findings": list(evidence.findings) if evidence else [],
        "statement": claim.statement,
        "assumptions": list(claim.assumptions),
        "corrected": claim.corrected,
        "correction": None if correction is None else _of_correction(correction),
        "note": claim.note,
        "seconds": round(result.seconds, 3),
    }


def _of_correction(evidence: Evidence) -> dict[str, Any]:
    return {
        "outcome": evidence.outcome,
        "ratio": evidence.ratio if math.isfinite(evidence.ratio) else None,
        "counterexample": evidence.counterexample,
        "exact_checks": evidence.exact_checks,
        "moving_checks": evidence.moving_checks,
        "sizes": list(evidence.sizes),
    }


def rows(
    ids: list[str],
    full: bool,
    seed: int,
    jobs: int,
    budget: float = 1.0,
    *,
    implementation: Implementation = REFERENCE,
    prepare: Callable[[], None] = do_nothing,
    file: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """Yields the rows of the claims as they are decided.

    Args:
      ids: the claims.
      full: the exhaustive budget instead of the quick one.
      seed: the seed of all sampling.
      jobs: the number of processes.
      budget: a factor of the budget.
      implementation: the algorithms on trial; its functions must be functions of modules if `jobs` > 1.
      file: a Python file with claims of its own, see `theory.claims.claims_of_file`.
      prepare: called once in each process before the first trial, such as `lur.jax_setup.keep_compiled`.
    """
    yield from results(try_by_id, [(id, full, seed, budget, implementation, file) for id in ids], jobs, prepare)
