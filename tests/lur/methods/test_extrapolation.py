"""Two client rates: where both ways end, their order in gamma, and that clients and mini-batches are shared."""

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


def limit(algorithm, gamma, rounds=800):
    """Where full participation ends."""

    @jax.jit
    def run(state):
        return jax.lax.fori_loop(0, rounds, lambda _, s: algorithm.round(s, BATCHES, p)[0], state)

    return run(algorithm.init(jnp.zeros(3), gamma, 0.1)).params


def test_both_ways_end_where_theory_says_and_nearer_than_plain():
    theta = lur.theta.fedavg(K)
    pair, one = (
        extrapolation.extrapolated_update(quadratic_loss, theta, extrapolate=way) for way in ("models", "updates")
    )
    x = theory.minimizer(PROBLEM)
    errors = {"models": [], "updates": [], "plain": []}
    for gamma in (0.04, 0.02):
        models = limit(pair, gamma)
        np.testing.assert_allclose(models[0], theory.surrogate_minimizer(PROBLEM, gamma, theta), rtol=1e-10)
        found = extrapolation.extrapolated_model(models)
        np.testing.assert_allclose(found, theory.extrapolated_minimizer(PROBLEM, gamma, theta), rtol=1e-10)
        together = limit(one, gamma)
        np.testing.assert_allclose(together, combined_minimizer(PROBLEM, gamma, theta), rtol=1e-10)
        for name, value in (("models", found), ("updates", together), ("plain", models[0])):
            errors[name].append(float(np.linalg.norm(value - x)))
    orders = {name: np.log2(far / near) for name, (far, near) in errors.items()}
    assert abs(orders["plain"] - 1) < 0.1
    assert abs(orders["models"] - 2) < 0.2
    assert abs(orders["updates"] - 2) < 0.2
    assert errors["models"][0] < errors["plain"][0] / 5
    assert errors["updates"][0] < errors["plain"][0] / 5


def test_a_run_over_a_store_shares_clients_and_mini_batches():
    """The two models of a pair are the runs with gamma and with 2 gamma, draw for draw."""
    task = tasks.load("quadratic", clients=6, d=3, dtype=jnp.float64)
    theta, params = lur.theta.fedavg(2), task.init(jax.random.key(0))
    sizes = {"rounds": 3, "clients_per_round": 2, "batch_size": 1, "view": task.view, "seed": 1}
    pair = extrapolation.extrapolated_update(task.loss, theta)
    plain = lur.local_update(task.loss, theta)
    both = lur.run(pair, pair.init(params, 0.1, 0.2), task.store, **sizes)[0].params
    for found, gamma in zip(both, (0.1, 0.2), strict=True):
        alone = lur.run(plain, plain.init(params, gamma, 0.2), task.store, **sizes)[0].params
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), found, alone)


def test_options_reach_the_client():
    pulled = extrapolation.extrapolated_update(quadratic_loss, (1.0, 1.0), prox=0.5, extrapolate="updates")
    state, _ = pulled.round(pulled.init(jnp.ones(3), 0.1, 1.0), BATCHES, p)
    q, q_2 = (
        jnp.einsum("n,nij,nj->i", p, theory.methods.prox_distortion(A, gamma, (1.0, 1.0), 0.5) @ A, 1 - c)
        for gamma in (0.1, 0.2)
    )
    np.testing.assert_allclose(state.params, 1 - (2 * q - q_2), rtol=1e-10)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="extrapolate must be 'models' or 'updates'"):
        extrapolation.extrapolated_update(quadratic_loss, (1.0,), extrapolate="both")  # pyright: ignore
    with pytest.raises(ValueError, match="params must be the pair of models"):
        extrapolation.extrapolated_model(jnp.ones(3))  # pyright: ignore
