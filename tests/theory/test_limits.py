"""The limits of affine rounds: exact, from the start, with what no round changes."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

import theory
from theory.limits import krylov_limit, limit_of, minimal_polynomial, nearest_fraction

F = Fraction


def test_the_limit_of_two_coupled_numbers_is_exact():
    """x <- (x + y) / 3 + 1, y <- y / 2 + 1/5: y = 2/5, x = (2/5 + 3) / 2."""
    found = limit_of(lambda s: ((s[0] + s[1]) / 3 + 1, s[1] / 2 + 0.2), (0.0, 0.0))
    assert list(found.exact) == [F(17, 10), F(2, 5)]
    assert found.radius == pytest.approx(1 / 2)
    assert found.residual < 1e-15
    np.testing.assert_allclose(found.state, [1.7, 0.4])


def test_what_no_round_changes_is_kept():
    """A rate in the state, a counter, and a mean that stays the mean of two others: the eigenvalue 1, three times."""

    def round_fn(state):
        own = state["own"]
        new = own - state["rate"] * (own - jnp.array([1.0, 3.0])) + (state["mean"] - own.mean())
        return {"own": new, "mean": new.mean(), "rate": state["rate"], "t": state["t"] + 1}

    start = {"own": jnp.array([0.0, 4.0]), "mean": jnp.array(2.0), "rate": jnp.array(0.25), "t": jnp.array(3)}
    found = limit_of(round_fn, start)
    assert list(found.exact) == [2, 1, 3, F(1, 4)]
    assert int(found.state["t"]) == 3
    with pytest.raises(ValueError, match="affine"):
        theory.fixed_point_of(round_fn, start)


def test_a_divergent_round_has_its_fixed_point_and_a_drift_has_none():
    found = limit_of(lambda x: 3 * x - 1, 0.0)
    assert (list(found.exact), found.radius) == ([F(1, 2)], pytest.approx(3))
    with pytest.raises(ValueError, match="a drift"):
        limit_of(lambda x: x + 1, 0.0)
    at_rest = limit_of(lambda x: 3 * x - 1, 0.5)
    assert (list(at_rest.exact), at_rest.radius) == ([F(1, 2)], 0)


def test_a_round_that_is_not_affine_shows_in_the_residual():
    assert limit_of(lambda x: x**2 / 4 + 1 / 8, 0.0).residual > 1e-3
    assert limit_of(lambda x: x - x**3 / 2, 0.5).residual > 1e-3


def test_random_rational_systems_are_solved_exactly():
    rng = np.random.default_rng(0)
    for n in (1, 2, 5):
        J = [[F(int(rng.integers(-9, 10)), int(rng.integers(1, 12)) * n) for _ in range(n)] for _ in range(n)]
        r = [F(int(rng.integers(1, 10)), 7) for _ in range(n)]
        y, radius = krylov_limit(J, r)
        after = [sum(a * b for a, b in zip(row, y, strict=True)) + own for row, own in zip(J, r, strict=True)]
        assert after == y
        powers, polynomial = minimal_polynomial(J, r)
        assert (len(powers), polynomial[-1]) == (n, 1)
        spectrum = np.linalg.eigvals(np.array(J, float))
        assert radius == pytest.approx(np.abs(spectrum).max(), rel=1e-6)


def test_fractions_of_floats():
    assert nearest_fraction(1 / 3) == F(1, 3)
    assert nearest_fraction(-0.1) == F(-1, 10)
    assert nearest_fraction(2.0**-40) == F(1, 2**40)
    assert nearest_fraction(np.pi) == F(np.pi)
    assert nearest_fraction(1e-17, scale=1.0) == 0
