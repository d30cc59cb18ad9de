"""Every claim on trial with the quick budget; with the exhaustive one under `-m full`."""

from fractions import Fraction

import numpy as np
import pytest

import lur
from theory.claims import CLAIMS, find
from theory.claims.claim import Claim, Trial
from theory.claims.spaces import space
from theory.trials import FULL, QUICK, implementation_of, try_claim

LUR = implementation_of(lur)

# The largest ratios known of the printed and of the corrected bounds (random search and gradient ascent in the box
# L/mu <= 10, d, n <= 3): pursuit must come within 2% of each, with no hint of the instance.
PRINTED = {
    "L8b": 1.0, "C1": 1.0, "L11": 1.0, "L13": 1.0, "T3": 0.10021, "T4": 0.11243, "C4": 0.047598, "T5": 0.11126,
    "T5q": 1.0,
}  # fmt: skip
CORRECTED = {"T3": 0.99989, "T4": 0.3333, "T4a": 1.0, "L17": 1.0, "L19": 1.0}


@pytest.mark.promote
@pytest.mark.parametrize("id", [claim.id for claim in CLAIMS])
def test_verdict(id):
    result = try_claim(find(id), QUICK, implementation=LUR)
    assert result.as_recorded, (result.verdict, result.evidence, result.correction)
    assert result.evidence is not None
    assert result.evidence.ratio >= 0.98 * PRINTED.get(id, 0.0)
    if id in CORRECTED:
        assert result.correction.ratio >= 0.98 * CORRECTED[id]


@pytest.mark.full
@pytest.mark.promote
@pytest.mark.parametrize("id", [claim.id for claim in CLAIMS])
def test_verdict_full_budget(id):
    result = try_claim(find(id), FULL, seed=1, implementation=LUR)
    assert result.as_recorded, (result.verdict, result.evidence, result.correction)


def test_ids_are_unique_and_lines_are_given():
    ids = [claim.id for claim in CLAIMS]
    assert len(ids) == len(set(ids))
    assert all(claim.line > 0 and claim.statement and claim.label for claim in CLAIMS)


def test_unknown_claim_suggests_the_nearest():
    with pytest.raises(ValueError, match="got 'L55'; did you mean L5"):
        find("L55")
    assert find("t1").id == "T1"


def _claim(left, right, relation, **options):
    trial = Trial(space("A gamma", ({"d": 1, "n": 1, "K": 2}, {"d": 2, "n": 1, "K": 2})), left, right, relation)
    return Claim("X", "a planted claim", 1, "", (trial,), "HOLDS", **options)


def _largest(xp, I):
    return xp.eigvalsh(I.A[0])[-1]


@pytest.mark.promote
def test_a_planted_falsehood_is_refuted_exactly():
    """gamma L <= 9/10, where the range only promises gamma L < 1: found by pursuit, certified in fractions."""
    result = try_claim(_claim(lambda xp, I: I.gamma * _largest(xp, I), lambda xp, I: xp.array("9/10")[()], "<="))
    assert result.verdict == "FALSE"
    found = result.evidence.counterexample
    assert found["right"] == "9/10"
    A, gamma = (Fraction(str(np.ravel(found["instance"][name])[0])) for name in ("A", "gamma"))
    assert Fraction(9, 10) < A * gamma < 1
    assert A.denominator <= 10


@pytest.mark.promote
def test_the_true_form_is_not_refuted():
    result = try_claim(_claim(lambda xp, I: I.gamma * _largest(xp, I), lambda xp, I: xp.array("1")[()], "<="))
    assert result.verdict == "HOLDS"
    assert 0.99 < result.evidence.ratio <= 1


@pytest.mark.promote
def test_an_equality_off_by_a_rounding_error_is_false():
    """Wrong by 1e-10, which no float tolerance would catch: the exact check does."""
    result = try_claim(_claim(lambda xp, I: I.gamma, lambda xp, I: I.gamma * (1 + xp.array("1/10000000000")[()]), "=="))
    assert result.verdict == "FALSE"


@pytest.mark.promote
def test_a_correction_that_fails_leaves_the_claim_undecided():
    wrong = Trial(space("A gamma", ({"d": 1, "n": 1, "K": 2},)), lambda xp, I: 2 * I.gamma, lambda xp, I: I.gamma, "<=")
    result = try_claim(_claim(lambda xp, I: 2 * I.gamma, lambda xp, I: I.gamma, "<=", correction=(wrong,)))
    assert result.verdict == "UNDECIDED"


@pytest.mark.promote
def test_the_same_seed_gives_the_same_verdict():
    first, second = (try_claim(find("E1a"), QUICK, seed=3) for _ in range(2))
    assert first.evidence.ratio == second.evidence.ratio
    assert first.evidence.worst == second.evidence.worst


def test_all_claims_of_the_published_list_are_on_trial(published):
    claims, _ = published
    assert {claim.id for claim in CLAIMS} == {id for id in claims if not id.startswith("B")}
    assert {claim.id: claim.line for claim in CLAIMS} == {id: claims[id]["line"] for id in {c.id for c in CLAIMS}}


def test_verdicts_on_record_are_the_published_ones(published):
    """By their first words; OPEN ones have no published verdict, and a few words translate to one of ours."""
    claims, _ = published
    ours = {"OFF": "FALSE", "For": "NEEDS", "TRUE": "HOLDS", "INCONSISTENT": "FALSE", "UNDEFINED": "DEFINITION"}
    ours |= {"BEYOND": "FALSE", "REFERENCE": "DEFINITION", "definition": "DEFINITION"}
    for claim in CLAIMS:
        word = claims[claim.id]["verdict"].split()[0].rstrip(":;,")
        if word != "OPEN":
            assert claim.expected == ours.get(word, word), claim.id


def test_every_false_claim_has_a_correction_on_trial():
    for claim in CLAIMS:
        if claim.expected in ("FALSE", "TYPO", "NEEDS"):
            assert claim.corrected, claim.id
            assert claim.correction or claim.id == "D7e", claim.id
