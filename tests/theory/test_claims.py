"""Every claim on trial, quick budget; the exhaustive one behind `-m full`."""

import numpy as np
import pytest

from theory.claims import CLAIMS, find
from theory.claims.claim import Claim, Trial
from theory.claims.spaces import space
from theory.trials import FULL, QUICK, try_claim


@pytest.mark.promote
@pytest.mark.parametrize("id", [claim.id for claim in CLAIMS])
def test_verdict(id):
    result = try_claim(find(id), QUICK)
    assert result.as_recorded, (result.verdict, result.evidence, result.correction)


@pytest.mark.full
@pytest.mark.promote
@pytest.mark.parametrize("id", [claim.id for claim in CLAIMS])
def test_verdict_full_budget(id):
    result = try_claim(find(id), FULL, seed=1)
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
    A, gamma = np.array(found["instance"]["A"]).ravel()[0], found["instance"]["gamma"]
    assert "/" in gamma
    assert A.isdigit()


@pytest.mark.promote
def test_the_true_form_of_it_is_not():
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
