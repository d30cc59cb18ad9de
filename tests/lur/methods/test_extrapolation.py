"""Extrapolation in gamma from two client rates: limit points, order of the error, and shared mini-batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lur
import theory
from lur import tasks
from lur.methods import extrapolation
from tests.lur.problems import descent_batches, quadratic_loss, random_quadratic
from theory.extrapolation import combined_minimizer

pytestmark = pytest.mark.x64

A, c, p = random_quadratic(4, 4, 3)
PROBLEM = theory.Problem(A, c, p)
K = 3
BATCHES = descent_batches(A, c, K)


def limit_point(method, gamma, rounds=800):
    """Parameters after many rounds of full participation."""

    @jax.jit
    def run(state):
        return jax.lax.fori_loop(0, rounds, lambda _, s: method.round(s, BATCHES, p)[0], state)

    return run(method.init(jnp.zeros(3), gamma, 0.1)).params


def test_limit_points_are_the_predicted_ones_and_closer_to_the_minimiser():
    theta = lur.theta.fedavg(K)
    of_models, of_updates = (
        extrapolation.extrapolated_update(quadratic_loss, theta, extrapolate=what) for what in ("models", "updates")
    )
    minimizer = theory.minimizer(PROBLEM)
    errors = {"models": [], "updates": [], "local_update": []}
    for gamma in (0.04, 0.02):
        models = limit_point(of_models, gamma)
        np.testing.assert_allclose(models[0], theory.surrogate_minimizer(PROBLEM, gamma, theta), rtol=1e-10)
        extrapolated = extrapolation.extrapolated_model(models)
        np.testing.assert_allclose(extrapolated, theory.extrapolated_minimizer(PROBLEM, gamma, theta), rtol=1e-10)
        combined = limit_point(of_updates, gamma)
        np.testing.assert_allclose(combined, combined_minimizer(PROBLEM, gamma, theta), rtol=1e-10)
        for name, params in (("models", extrapolated), ("updates", combined), ("local_update", models[0])):
            errors[name].append(float(np.linalg.norm(params - minimizer)))
    orders = {name: np.log2(error / error_at_half) for name, (error, error_at_half) in errors.items()}
    assert abs(orders["local_update"] - 1) < 0.1
    assert abs(orders["models"] - 2) < 0.2
    assert abs(orders["updates"] - 2) < 0.2
    assert errors["models"][0] < errors["local_update"][0] / 5
    assert errors["updates"][0] < errors["local_update"][0] / 5


def test_both_models_see_the_same_clients_and_mini_batches():
    """The two models equal separate runs with gamma and with 2 gamma and the same seed."""
    task = tasks.load("quadratic", clients=6, d=3, dtype=jnp.float64)
    theta, start = lur.theta.fedavg(2), task.init(jax.random.key(0))
    sizes = {"rounds": 3, "clients_per_round": 2, "batch_size": 1, "view": task.view, "seed": 1}
    extrapolated = extrapolation.extrapolated_update(task.loss, theta)
    method = lur.local_update(task.loss, theta)
    models = lur.run(extrapolated, extrapolated.init(start, 0.1, 0.2), task.store, **sizes)[0].params
    for params, gamma in zip(models, (0.1, 0.2), strict=True):
        expected = lur.run(method, method.init(start, gamma, 0.2), task.store, **sizes)[0].params
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), params, expected)


def test_client_options_are_passed_on():
    method = extrapolation.extrapolated_update(quadratic_loss, (1.0, 1.0), prox=0.5, extrapolate="updates")
    state, _ = method.round(method.init(jnp.ones(3), 0.1, 1.0), BATCHES, p)
    q, q_2 = (
        jnp.einsum("n,nij,nj->i", p, theory.methods.prox_distortion(A, gamma, (1.0, 1.0), 0.5) @ A, 1 - c)
        for gamma in (0.1, 0.2)
    )
    np.testing.assert_allclose(state.params, 1 - (2 * q - q_2), rtol=1e-10)


def test_invalid_arguments_are_rejected():
    with pytest.raises(ValueError, match="extrapolate must be 'models' or 'updates'"):
        extrapolation.extrapolated_update(quadratic_loss, (1.0,), extrapolate="both")  # pyright: ignore
    with pytest.raises(ValueError, match="params must be the pair of models"):
        extrapolation.extrapolated_model(jnp.ones(3))  # pyright: ignore
