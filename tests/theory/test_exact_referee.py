"""What the trials do with a broken implementation, and the sizes that are tried beyond those listed."""

import numpy as np
import pytest

import theory
from theory.claims import find
from theory.claims.claim import Trial
from theory.claims.spaces import space
from theory.trials import QUICK, REFERENCE, try_claim, try_trial
from theory.trials.escalate import larger_sizes

pytestmark = [pytest.mark.x64, pytest.mark.promote]
SMALL = QUICK._replace(samples=64, restarts=4, steps=20, exact=4, climbs=8)


def test_a_broken_implementation_is_not_upheld():
    """An inner loop that is off by 0.1% is found, although the transcribed algorithm agrees exactly."""

    def broken(loss_fn, params, batches, gamma, theta):
        update, loss = REFERENCE.inner_loop(loss_fn, params, batches, gamma, theta)
        return update * 1.001, loss

    result = try_claim(find("A1"), SMALL, implementation=REFERENCE._replace(inner_loop=broken))
    assert result.verdict == "UNDECIDED"
    assert "implementation differs" in result.evidence.findings[0]
    assert try_claim(find("A1"), SMALL).verdict == "HOLDS"


def test_sizes_grow_together_and_only_where_they_may():
    listed = ({"d": 1, "n": 2, "K": 2}, {"d": 2, "n": 2, "K": 3})
    grown = larger_sizes(space("A c p gamma", listed))
    assert [(one["d"], one["n"], one["K"]) for one in grown] == [(3, 2, 10), (2, 2, 100), (2, 2, 400)]
    assert larger_sizes(space("A c p gamma", listed, grow="")) == []
    assert larger_sizes(space("A c p gamma", listed[:1])) == []
    assert [one["K"] for one in larger_sizes(space("A gamma", listed[:1], grow="K"))] == [10, 100, 400]
    batches = ({"d": 1, "m": 2, "K": 1, "B": 1}, {"d": 1, "m": 2, "K": 2, "B": 1})
    assert larger_sizes(space("A_z c_z p_z gamma", batches)) == []  # m^(K B) sequences


def test_a_statement_that_makes_no_sense_at_larger_sizes_keeps_its_own():
    coupled = space("p theta", ({"n": 2, "K": 2}, {"n": 3, "K": 3}))
    trial = Trial(coupled, lambda xp, I: xp.total(I.p * I.theta), lambda xp, I: xp.total(I.theta), "<=")
    evidence = try_trial(trial, SMALL, np.random.default_rng(0))
    assert evidence.outcome == "stands"
    assert [size["K"] for size in evidence.sizes] == [2, 3]


def test_a_condition_number_beyond_floating_point_is_decided():
    """kappa <= 10^9 holds wherever floating point searches, and fails in the exact stage."""
    pair = theory.space("A", sizes=[{"d": 2, "n": 1}])
    result = theory.trial(
        lambda xp, I: xp.eigvalsh(I.A[0])[-1], lambda xp, I: 10**9 * xp.eigvalsh(I.A[0])[0], "<=", pair, budget=SMALL
    )
    assert result.verdict == "FALSE"
