"""The best Theta as a linear programme against closed forms and search; the best rates against a grid."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import theory
from theory import methods
from theory.optimal import worst_condition
from theory.rates import grid_errors
from theory.reports import best_rates

pytestmark = pytest.mark.x64


@settings(max_examples=30, deadline=None)
@given(kappa=st.floats(1.5, 200), share=st.floats(0.05, 1.0))
def test_two_steps_have_a_closed_form(kappa, share):
    mu, L, gamma = 1.0, kappa, share / kappa
    programme, closed = theory.optimal_theta(mu, L, gamma, 2), theory.optimal_theta_two(mu, L, gamma)
    np.testing.assert_allclose(programme.condition_number, closed.condition_number, rtol=1e-5)
    np.testing.assert_allclose(programme.theta, closed.theta, atol=2e-3)  # the minimum is flat in Theta
    assert closed.condition_number >= float(methods.chebyshev_condition(mu, L, 2)) * (1 - 1e-12)


@settings(max_examples=30, deadline=None)
@given(
    K=st.integers(1, 8), kappa=st.floats(1.5, 50), share=st.floats(0.0, 1.0),
    theta=st.lists(st.floats(0, 1), min_size=8, max_size=8),
)  # fmt: skip
@example(K=5, kappa=2.0, share=1.0, theta=[0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])  # lambda s(lambda) decreases
@example(K=3, kappa=2.0, share=1e-300, theta=[1.0, 0.5, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
def test_no_theta_is_better_than_the_best(K, kappa, share, theta):
    """Nor better than Chebyshev; kappa~ >= kappa chi_mu for all, with equality if lambda s(lambda) increases."""
    mu, L, gamma = 1.0, kappa, share / kappa
    best = theory.optimal_theta(mu, L, gamma, K)
    assert best.condition_number >= float(methods.chebyshev_condition(mu, L, K)) * (1 - 1e-9)
    other = np.array(theta[:K]) + 1e-3
    found = worst_condition(gamma, other, mu, L)
    assert best.condition_number <= found * (1 + 1e-5)
    law = kappa * float(theory.chi_mu(gamma, other, mu, L))
    assert found >= law * (1 - 1e-9)
    if not len(methods.turns(gamma, other, mu, L)) and law >= 1:  # without turns, and L s(L) >= mu s(mu)
        np.testing.assert_allclose(found, law, rtol=1e-9)


def test_optimal_theta_is_not_unique_with_a_bound():
    """mu = 1, L = 10, gamma = 1/20, K = 5, chi_mu >= 1/2: kappa chi_mu = 5 is reached by a whole family of Theta,
    by the published one and by ours, which differ in the fourth digit."""
    ours = theory.optimal_theta(1.0, 10.0, 0.05, 5, chi_mu_min=0.5)
    published = np.array([0.0166909, 0.8942545, 0.0, 0.0, 0.0890545])
    other = 0.5 * (ours.theta + published)
    for theta in (ours.theta, published, other / other.sum()):
        np.testing.assert_allclose(worst_condition(0.05, theta, 1.0, 10.0), 5.0, rtol=1e-6)
        np.testing.assert_allclose(theory.chi_mu(0.05, theta, 1.0, 10.0), 0.5, rtol=1e-6)
    np.testing.assert_allclose(ours.theta, published, atol=1e-4)


@pytest.mark.parametrize("floor", [0.3, 0.5, 0.9])
def test_a_bound_on_chi_mu_gives_the_condition_number_of_the_law(floor):
    found = theory.optimal_theta(1.0, 10.0, 0.05, 5, chi_mu_min=floor)
    assert found.chi_mu >= floor * (1 - 1e-9)
    np.testing.assert_allclose(found.condition_number, 10 * floor, rtol=1e-5)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="K must be an integer >= 1"):
        theory.optimal_theta(1.0, 2.0, 0.1, 0)
    with pytest.raises(ValueError, match="chi_mu_min must be in"):
        theory.optimal_theta(1.0, 2.0, 0.1, 2, chi_mu_min=2.0)
    with pytest.raises(ValueError, match="mu and L must satisfy"):
        theory.optimal_theta(2.0, 1.0, 0.1, 1)
    with pytest.raises(ValueError, match="gamma must be >= 0"):
        theory.optimal_theta(1.0, 2.0, -0.1, 2)


def check_gradient_beats_grid(problem):
    """Asserts that none of the three optimised settings is worse than the best of 25 x 25 cells."""
    found = best_rates.compare(problem)
    noise = best_rates.NOISE * np.eye(problem.c.shape[1])
    for answer in (found.fedavg, found.best, found.unlimited):
        assert answer.error <= found.grid
        again = grid_errors(problem, 8, 3, 2, [answer.gamma], [answer.eta], answer.theta, noise=noise)
        np.testing.assert_allclose(again[0, 0], answer.error, rtol=1e-9)
    assert found.best.error <= found.fedavg.error * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_beats_the_grid(seed):
    check_gradient_beats_grid(best_rates.random_problem(seed))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(50))
def test_the_gradient_beats_the_grid_on_all_problems(seed):
    check_gradient_beats_grid(best_rates.random_problem(seed))


def test_the_best_rates_are_a_local_minimum():
    """No small change of gamma or eta lowers the error, computed independently."""
    problem = best_rates.one_dimensional()
    found = theory.optimal_rates(problem, 8, 3, 2, theta=(1.0,) * 5, noise=[[0.05]])

    def error(gamma, eta):
        errors = theory.mean_square_error(problem, [0.0], gamma, (1.0,) * 5, eta, 8, M=3, B=2, noise=[[0.05]])
        return float(errors[-1])

    np.testing.assert_allclose(error(found.gamma, found.eta), found.error, rtol=1e-12)
    for factor in (0.99, 1.01):
        assert error(found.gamma * factor, found.eta) > found.error
        assert error(found.gamma, found.eta * factor) > found.error
