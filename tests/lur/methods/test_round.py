"""A round compared with Algorithm 1 in numpy, limit points, and compilation while the rates change."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
import theory
from tests.lur.methods.test_inner_loop import numpy_inner_loop
from tests.lur.problems import (
    add,
    descent_batches,
    logistic_batches,
    logistic_loss,
    logistic_params,
    logistic_value,
    quadratic_loss,
    random_quadratic,
    take,
)

M, K, B = 4, 3, 2


def tree_norm(tree):
    return np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(tree)))


@pytest.mark.x64
@pytest.mark.parametrize("weights", [None, np.array([3.0, 1.0, 0.0, 2.0])])
def test_round_is_algorithm_1(weights):
    x, batches, gamma, eta = logistic_params(0), logistic_batches(1, M, K, B), 0.3, 0.7
    theta = (1.0, 0.0, 2.0)
    method = lur.local_update(logistic_loss, theta)
    state, info = method.round(method.init(x, gamma, eta), batches, weights)
    updates = [numpy_inner_loop(x, take(batches, i), gamma, theta)[0] for i in range(M)]
    p = np.full(M, 1 / M) if weights is None else weights / weights.sum()
    mean_update = {name: sum(p[i] * updates[i][name] for i in range(M)) for name in x}
    losses = [logistic_value(x, take(batches, i, 0)) for i in range(M)]
    chex.assert_trees_all_close(state.params, add(x, mean_update, -eta), rtol=1e-12)
    np.testing.assert_allclose(info.update_norm, tree_norm(mean_update), rtol=1e-12)
    np.testing.assert_allclose(info.client_norms, [tree_norm(update) for update in updates], rtol=1e-12)
    np.testing.assert_allclose(info.loss, p @ losses, rtol=1e-12)
    np.testing.assert_allclose(info.client_losses, losses, rtol=1e-12)
    assert (float(info.client_lr), float(info.server_lr), bool(info.decayed)) == (gamma, eta, False)
    assert int(state.round) == 1


def test_changing_the_rates_does_not_recompile():
    """gamma and eta change every round, explicitly and by decay, but the loss is traced in the first round only."""
    traces = []

    def loss_fn(x, batch):
        traces.append(1)
        return quadratic_loss(x, batch)

    A, c, _ = random_quadratic(0, M, 3)
    batches = descent_batches(A.astype(np.float32), c.astype(np.float32), K)
    method = lur.local_update(loss_fn, lur.theta.fedavg(K), decay=lur.decay.plateau(window=2, patience=1, cooldown=0))
    state = method.init(np.zeros(3, np.float32), 0.1, 0.1)
    state, _ = method.round(state, batches)
    traces_of_first_round = len(traces)
    for t in range(20):
        state = state._replace(client_lr=jnp.float32(0.1 / (t + 1)), server_lr=jnp.float32(0.2 / (t + 1)))
        state, _ = method.round(state, batches)
    assert len(traces) == traces_of_first_round
    assert int(state.round) == 21


@pytest.mark.x64
@pytest.mark.promote
def test_vmap_over_rates_equals_separate_runs():
    """One program computes all pairs (gamma, eta)."""
    A, c, _ = random_quadratic(1, M, 3)
    batches = descent_batches(A, c, K)
    method = lur.local_update(quadratic_loss, lur.theta.fedavg(K), server=optax.adam)
    gammas, etas = jnp.array([0.0, 0.1, 0.3]), jnp.array([0.01, 0.1, 1.0])

    def run(gamma, eta):
        state = method.init(jnp.zeros(3), gamma, eta)
        return jax.lax.scan(lambda s, _: (method.round(s, batches)[0], None), state, length=10)[0].params

    grid = jax.vmap(jax.vmap(run, (None, 0)), (0, None))(gammas, etas)
    for i, gamma in enumerate(gammas):
        for j, eta in enumerate(etas):
            np.testing.assert_allclose(grid[i, j], run(gamma, eta), rtol=1e-10)


SERVERS = {
    "sgd": (optax.sgd, 0.2, 400),
    "momentum": (lambda lr: optax.sgd(lr, momentum=0.9), 0.05, 1500),
    "adam": (lambda lr: optax.adam(lr, b2=0.9, eps=1e-2), 0.05, 4000),
    "yogi": (lambda lr: lur.optimizers.yogi(lr, eps=1e-2), 0.05, 4000),
    "adam built with rate 1": (optax.adam(1.0, b2=0.9, eps=1e-2), 0.05, 4000),
}
THETAS = {"fedavg": lur.theta.fedavg(4), "fomaml": lur.theta.fomaml(3), "random": (0.3, 0.0, 1.7, 0.4)}


@pytest.mark.x64
@pytest.mark.promote
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("theta", THETAS)
def test_limit_point_is_the_surrogate_minimiser(server, theta):
    """With full participation and weights p, every server optimiser converges to x*(gamma, Theta) rather than x*."""
    A, c, p = random_quadratic(5, 4, 3)
    gamma, weights = 0.3, THETAS[theta]
    optimizer, eta, rounds = SERVERS[server]
    method = lur.local_update(quadratic_loss, weights, server=optimizer)
    batches = descent_batches(A, c, len(weights))
    state = method.init(np.zeros(3), gamma, eta)

    @jax.jit
    def run(state):
        return jax.lax.scan(lambda s, _: (method.round(s, batches, p)[0], None), state, length=rounds)[0]

    problem = theory.Problem(A, c, p)
    expected = np.asarray(theory.surrogate_minimizer(problem, gamma, weights))
    np.testing.assert_allclose(run(state).params, expected, rtol=1e-8, atol=1e-9)
    assert np.linalg.norm(expected - theory.minimizer(problem)) > 1e-3


def test_training_a_flax_network_reduces_the_loss():
    """A flax network in float32."""

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(1)(nn.tanh(nn.Dense(8)(x)))[..., 0]

    net = Net()
    batches = logistic_batches(0, M, K, 16, dtype=np.float32)
    batches["y"] = (batches["x"][..., 0] > 0).astype(np.float32)

    def loss_fn(params, batch):
        z = net.apply(params, batch["x"])
        return jnp.mean(jax.nn.softplus(z) - batch["y"] * z)

    params = net.init(jax.random.key(0), batches["x"][0, 0])
    method = lur.local_update(loss_fn, lur.theta.fedavg(K), server=lur.optimizers.yogi)
    state = method.init(params, 0.1, 0.05)
    losses = []
    for _ in range(60):
        state, info = method.round(state, batches)
        losses.append(float(info.loss))
    assert losses[-1] < 0.3 * losses[0]
    assert info.loss.dtype == jnp.float32


@pytest.mark.x64
def test_a_round_uses_a_rate_per_local_step():
    x, batches, gamma = logistic_params(0), logistic_batches(1, M, K, B), np.array([0.5, 0.1, 0.0])
    method = lur.local_update(logistic_loss, lur.theta.fedavg(K))
    state, info = method.round(method.init(x, gamma, 1.0), batches)
    updates = [numpy_inner_loop(x, take(batches, i), gamma, (1,) * K)[0] for i in range(M)]
    mean_update = {name: sum(update[name] for update in updates) / M for name in x}
    chex.assert_trees_all_close(state.params, add(x, mean_update, -1.0), rtol=1e-12)
    np.testing.assert_array_equal(info.client_lr, gamma)
