"""Exact second moments if examples differ in A_z, against every possible run; batch sizes; the stationary error."""

import itertools

import numpy as np
import pytest

import theory
from tests.lur.problems import random_quadratic
from theory import moments

pytestmark = pytest.mark.x64

A, c, _ = random_quadratic(3, 4, 2)
EXAMPLES = theory.StochasticProblem(
    A.reshape(2, 2, 2, 2), c.reshape(2, 2, 2), np.array([[0.3, 0.7], [0.5, 0.5]]), np.array([0.4, 0.6])
)


def outcomes(problem, x, gamma, theta, B):
    """Every update of every client from x with its probability, in numpy: Algorithm 2 on every draw."""
    A_z, c_z, p_z, p = (np.asarray(v) for v in (problem.A_z, problem.c_z, problem.p_z, problem.p))
    for i in range(len(p)):
        for draw in itertools.product(range(p_z.shape[1]), repeat=len(theta) * B):
            y, q = x, np.zeros_like(x)
            for k, theta_k in enumerate(theta):
                batch = draw[k * B : (k + 1) * B]
                g = np.mean([A_z[i, z] @ (y - c_z[i, z]) for z in batch], axis=0)
                q, y = q + theta_k * g, y - gamma * g
            yield i, q, p[i] * np.prod([p_z[i, z] for z in draw])


@pytest.mark.parametrize("B", [1, 2])
def test_examples_of_any_curvature_against_every_possible_run(B):
    gamma, theta, etas, x1 = 0.3, (1.0, 0.5), (0.2, 0.1), np.array([1.0, -2.0])
    runs = [(x1, 1.0)]
    for eta in etas:
        runs = [(x - eta * q, P * chance) for x, P in runs for _, q, chance in outcomes(EXAMPLES, x, gamma, theta, B)]
    x, P = np.array([x for x, _ in runs]), np.array([P for _, P in runs])
    found = moments.moments(EXAMPLES, x1, gamma, theta, np.array(etas), 2, B=B, about=np.zeros(2))
    np.testing.assert_allclose(found.mean[-1], P @ x, rtol=1e-12)
    np.testing.assert_allclose(found.second[-1], np.einsum("s,si,sj->ij", P, x, x), rtol=1e-12)


def test_two_independent_clients_halve_the_covariance():
    """M = 2 drawn iid, one round: Cov(x_2) is half that of M = 1, since both start at the same x."""
    options = {"gamma": 0.3, "theta": (1.0, 0.5), "eta": 0.1, "rounds": 1}
    one, two = (moments.moments(EXAMPLES, np.ones(2), M=M, **options).covariance[-1] for M in (1, 2))
    np.testing.assert_allclose(two, one / 2, rtol=1e-11)


def test_message_covariance_is_that_of_every_possible_update():
    x = np.array([1.0, -2.0])
    found = moments.message_covariance(EXAMPLES, x, 0.3, (1.0, 0.5, 2.0), 1)
    for i in range(2):
        rows = [(q, P) for j, q, P in outcomes(EXAMPLES, x, 0.3, (1.0, 0.5, 2.0), 1) if j == i]
        expected = np.cov(np.array([q for q, _ in rows]).T, aweights=[P for _, P in rows], ddof=0)
        np.testing.assert_allclose(found[i], expected, rtol=1e-12)


def test_examples_of_equal_curvature_are_additive_noise():
    """The recursions of `message_noise` and of the examples give the same number."""
    A = np.array([[2.0, 0.5], [0.5, 1.0]])
    c_z = np.array([[1.0, -1.0], [0.0, 2.0]])
    p_z = np.array([0.25, 0.75])
    alike = theory.StochasticProblem(np.broadcast_to(A, (1, 2, 2, 2)), c_z[None], p_z[None])
    g = (c_z - p_z @ c_z) @ A
    options = {"gamma": 0.3, "theta": (1.0, 0.5, 2.0), "eta": 0.1, "M": 2, "B": 3}
    for of in (moments.stationary_covariance, moments.stationary_mean_square_error):
        np.testing.assert_allclose(
            of(alike, **options), of(alike.problem, noise=(g.T * p_z) @ g, **options), rtol=1e-11
        )


@pytest.mark.parametrize("sampling", ["iid", "full"])
def test_moments_converge_to_the_stationary_error(sampling):
    options = {"gamma": 0.2, "theta": (1.0, 0.5), "eta": 0.2, "M": 2, "B": 2, "sampling": sampling}
    found = moments.mean_square_error(EXAMPLES, x=np.ones(2), rounds=400, **options)
    np.testing.assert_allclose(found[-1], moments.stationary_mean_square_error(EXAMPLES, **options), rtol=1e-10)


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="noise must be None for a StochasticProblem"):
        moments.moments(EXAMPLES, np.ones(2), 0.1, (1.0,), 0.1, 1, noise=np.eye(2))
    with pytest.raises(ValueError, match="B must be an integer >= 1, got 0"):
        moments.moments(EXAMPLES, np.ones(2), 0.1, (1.0,), 0.1, 1, B=0)
