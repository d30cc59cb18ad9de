"""How two sides are compared: no sign, infinity or NaN is misread, and a large entry hides nothing."""

import numpy as np
import pytest

from theory.claims.claim import Trial
from theory.claims.fields import between, function, integer, round_field, vector
from theory.claims.spaces import space
from theory.trials import QUICK, try_trial
from theory.trials.compare import excess, judge, ratio_of

SMALL = QUICK._replace(samples=64, restarts=4, steps=20, exact=4, climbs=8)
LINE = space("A gamma x", ({"d": 1, "n": 1, "K": 2},))

pytestmark = [pytest.mark.x64, pytest.mark.promote]


def outcome(left, right, relation="<=", instances=LINE, budget=SMALL):
    return try_trial(Trial(instances, left, right, relation), budget, np.random.default_rng(0))


def const(value):
    return lambda xp, I: xp.array(value) if isinstance(value, list) else xp.array([value])[0]


ABSURD = {
    "1 <= -1": (const("1"), const("-1")),
    "0 <= -1": (const("0"), const("-1")),
    "1/1000000000000 <= 0": (const("1/1000000000000"), const("0")),
    "-x^2 <= -2 x^2": (lambda xp, I: -(I.x @ I.x), lambda xp, I: -2 * (I.x @ I.x)),
    "x^2 <= x": (lambda xp, I: I.x @ I.x, lambda xp, I: I.x[0]),
    "x <= 0": (lambda xp, I: I.x[0], const("0")),
    "x + 1 <= x": (lambda xp, I: I.x + 1, lambda xp, I: I.x),
    "infinity <= 1": (lambda xp, I: float("inf"), const("1")),
    "1/0 <= 1": (lambda xp, I: 1 / (0 * I.gamma), const("1")),
    "0 <= -infinity": (const("0"), lambda xp, I: -float("inf")),
    "entry by entry": (const(["1", "1"]), const(["1000000", "999999/1000000"])),
    "a bound too small by 1e-9": (
        lambda xp, I: I.A[0, 0, 0] * 1000000000,
        lambda xp, I: xp.eigvalsh(I.A[0])[-1] * 999999999,
    ),
}
TRUE = {
    "-2 x^2 <= -x^2": (lambda xp, I: -2 * (I.x @ I.x), lambda xp, I: -(I.x @ I.x)),
    "-1 <= 0": (const("-1"), const("0")),
    "0 <= 0": (const("0"), const("0")),
    "-1 <= 1": (const("-1"), const("1")),
    "1 <= infinity": (const("1"), lambda xp, I: float("inf")),
    "x <= |x|": (lambda xp, I: I.x[0], lambda xp, I: xp.norm(I.x)),
    "rounding": (lambda xp, I: (1 + I.gamma) - 1, lambda xp, I: I.gamma),
    "exp overflows on both sides": (lambda xp, I: xp.exp(700 + 0 * I.gamma), lambda xp, I: xp.exp(701 + 0 * I.gamma)),
}


@pytest.mark.parametrize("name", ABSURD)
def test_an_absurd_inequality_falls(name):
    evidence = outcome(*ABSURD[name])
    assert evidence.outcome == "falls", evidence
    assert evidence.counterexample is not None


@pytest.mark.parametrize("name", TRUE)
def test_a_true_inequality_stands(name):
    evidence = outcome(*TRUE[name])
    assert evidence.outcome == "stands", evidence
    assert evidence.exact_checks > 0
    assert evidence.ratio <= 1


@pytest.mark.parametrize("relation", ["<=", "=="])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_side_that_is_not_a_number_leaves_the_instance_in_doubt(side, relation):
    def undefined(xp, I):
        return xp.log(-1 - I.gamma)

    sides = (undefined, const("1")) if side == "left" else (const("1"), undefined)
    evidence = outcome(*sides, relation)
    assert evidence.outcome == "unclear"
    assert set(evidence.worst) >= {"A", "gamma", "x", "d"}


def test_an_equality_is_compared_entry_by_entry():
    """The second entry is wrong by 1e-6, the first is 1e12."""
    evidence = outcome(const(["1000000000000", "1"]), const(["1000000000000", "1000001/1000000"]), "==")
    assert evidence.outcome == "falls"
    assert outcome(const(["1000000000000", "1"]), const(["1000000000000", "1"]), "==").outcome == "stands"


def test_a_violation_of_the_bound_beyond_the_listed_sizes_is_found():
    """(1 - gamma L)^{K-1} >= 1/1000 holds for K = 2, 3 with gamma L <= 9/10, not for larger K."""
    listed = ({"d": 1, "n": 1, "K": 2}, {"d": 1, "n": 1, "K": 3})

    def sides(xp, I):
        return (1 - 9 * I.gamma * I.A[0, 0, 0] / 10) ** (I.K - 1)

    found = outcome(const("1/1000"), sides, instances=space("A gamma", listed))
    assert found.outcome == "falls"
    assert found.counterexample["instance"]["K"] > 3
    kept = outcome(const("1/1000"), sides, instances=space("A gamma", listed, grow=""))
    assert kept.outcome == "stands"
    assert [size["K"] for size in kept.sizes] == [2, 3]


def test_exact_checks_have_positive_rates():
    evidence = outcome(lambda xp, I: I.gamma * I.A[0, 0, 0], const("1"))
    assert 0 < evidence.moving_checks <= evidence.exact_checks
    assert evidence.moving_checks >= 0.7 * evidence.exact_checks
    assert max(size["kappa"] for size in evidence.sizes) == 1e12


def test_excess_is_scale_free_and_signed():
    for a, b, expected in (
        (1, 2, -0.5),
        (2, 1, 0.5),
        (-1, -2, 0.5),
        (-2, -1, -0.5),
        (1, -1, 2),
        (-1, 1, -2),
        (0, 0, 0),
    ):
        assert float(excess(a, b, "<=")) == pytest.approx(expected)
        assert float(excess(1e-200 * a, 1e-200 * b, "<=")) == pytest.approx(expected)
    assert np.isnan(float(excess(np.nan, 1, "<=")))
    assert float(excess(np.inf, 1, "<=")) > 1
    assert float(excess(np.inf, np.inf, "<=")) == 0
    assert ratio_of(-0.5) == 0.5
    assert ratio_of(0.5) == 2
    assert ratio_of(1.0) == np.inf
    with pytest.raises(ValueError, match="same shape"):
        excess(np.ones(2), np.ones(3), "<=")


def test_judge_needs_certainty():
    from flint import arb, fmpq

    third = arb(1) / 3
    assert judge(third, fmpq(1, 3), "==") == "holds"  # equal to forty digits
    assert judge(arb(1, 0.1), 1, "<=") == "undecided"
    assert judge(arb("nan"), 1, "<=") == "undecided"
    assert judge([1, 2], [1, 1], "<=") == "violated"


def test_fields_are_rounded_by_type():
    values = np.array([0.30001, 0.69999])
    assert [str(v) for v in round_field(vector("d"), values, 10)] == ["3/10", "7/10"]
    assert str(round_field(integer(1, 9), np.array(3.7), 100)) == "4"
    from theory.claims.fields import positive_definite, rate, simplex

    assert sum(round_field(simplex("n"), values, 3)) == 1
    turned = round_field(positive_definite(), np.array([[2.0, 0.123456], [0.123457, 1.0]]), 1000)
    assert turned[0, 1] == turned[1, 0]
    small = round_field(rate(), np.array(0.9e-9), 6, "unit", unit=1e9)
    assert 0 < small * 10**9 <= 1  # a small rate does not vanish


def test_functions_of_fields_are_exact_and_integers_are_integers():
    instances = space(
        "x",
        ({"d": 2},),
        extra={"k": integer(1, 5), "s": function(lambda xp, I: I.k * xp.norm(I.x) ** 2), "t": between(0, 0.5)},
    )
    evidence = outcome(lambda xp, I: I.s - I.k * (I.x @ I.x), const("0"), "==", instances)
    assert evidence.outcome == "stands"
    wrong = outcome(lambda xp, I: I.k, const("4"), "<=", instances)
    assert wrong.counterexample["instance"]["k"] == "5"
