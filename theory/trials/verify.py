"""The record of `lur verify`: one row per claim, tried over several processes."""

from collections.abc import Callable, Iterator
from typing import Any

from theory.claims import find
from theory.trials import FULL, QUICK, try_claim
from theory.trials.implementation import REFERENCE, Implementation
from theory.trials.search import scaled
from theory.trials.workers import do_nothing, results


def try_by_id(
    id: str, full: bool, seed: int, budget: float = 1.0, implementation: Implementation = REFERENCE
) -> dict[str, Any]:
    """Tries one claim and returns its row of the record, ready for JSON."""
    result = try_claim(find(id), scaled(FULL if full else QUICK, budget), seed, implementation)
    claim, evidence, correction = result.claim, result.evidence, result.correction
    return {
        "id": claim.id,
        "label": claim.label,
        "line": claim.line,
        "verdict": result.verdict,
        "expected": claim.expected,
        "ratio": evidence.ratio if evidence else None,
        "counterexample": evidence.counterexample if evidence else None,
        "worst": evidence.worst if evidence else None,
        "exact_checks": evidence.exact_checks if evidence else 0,
        "findings": list(evidence.findings) if evidence else [],
        "statement": claim.statement,
        "assumptions": list(claim.assumptions),
        "corrected": claim.corrected,
        "correction": None if correction is None else {"outcome": correction.outcome, "ratio": correction.ratio},
        "note": claim.note,
        "seconds": round(result.seconds, 3),
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
) -> Iterator[dict[str, Any]]:
    """Yields the rows of the claims as they are decided.

    Args:
      ids: the claims.
      full: the exhaustive budget instead of the quick one.
      seed: the seed of all sampling.
      jobs: the number of processes.
      budget: a factor of the budget.
      implementation: the algorithms on trial; its functions must be functions of modules if `jobs` > 1.
      prepare: called once in each process before the first trial, such as `lur.jax_setup.keep_compiled`.
    """
    yield from results(try_by_id, [(id, full, seed, budget, implementation) for id in ids], jobs, prepare)
