"""`lur.inner_loop` compared with Algorithm 2 in numpy."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lur
from tests.lur.problems import (
    add,
    logistic_batches,
    logistic_gradient,
    logistic_loss,
    logistic_params,
    logistic_value,
    take,
)

pytestmark = pytest.mark.x64


def numpy_inner_loop(x, batches, gamma, theta, prox=0.0, send="gradients"):
    """Algorithm 2 with the proximal term of FedProx; returns the update and the final model."""
    y, update = x, add(x, x, -1.0)
    for k, theta_k in enumerate(theta):
        loss_gradient = logistic_gradient(y, take(batches, k))
        g = {name: loss_gradient[name] + prox * (y[name] - x[name]) for name in loss_gradient}
        update = add(update, loss_gradient if send == "loss_gradients" else g, theta_k)
        y = add(y, g, -(gamma[k] if np.ndim(gamma) else gamma))
    return update, y


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=6).filter(any),
    st.floats(0, 2),
    st.sampled_from([0.0, 0.7]),
    st.sampled_from(["gradients", "loss_gradients"]),
    st.integers(0, 10**6),
)
def test_inner_loop_is_algorithm_2(theta, gamma, prox, send, seed):
    x, batches = logistic_params(seed), logistic_batches(seed + 1, len(theta), 4)
    update, loss = lur.inner_loop(logistic_loss, x, batches, gamma, theta, prox=prox, send=send)
    expected, _ = numpy_inner_loop(x, batches, gamma, theta, prox, send)
    chex.assert_trees_all_close(update, expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(loss, logistic_value(x, take(batches, 0)), rtol=1e-13)


@pytest.mark.parametrize("theta", [[1.0] * 5, [0.5] * 4, [2.0]])
@pytest.mark.parametrize("gamma", [0.0, 0.3, [0.3, 0.1, 0.0, 0.2, 0.4]])
def test_equal_weights_give_algorithm_2_for_one_or_several_rates(theta, gamma):
    """With a single gamma and equal weights the model follows from the update; with several gammas it does not."""
    x, batches = logistic_params(0), logistic_batches(1, len(theta), 4)
    gamma = np.array(gamma[: len(theta)]) if np.ndim(gamma) else gamma
    update, _ = lur.inner_loop(logistic_loss, x, batches, gamma, theta)
    expected, _ = numpy_inner_loop(x, batches, gamma, theta)
    chex.assert_trees_all_close(update, expected, rtol=1e-12, atol=1e-13)


def test_loss_on_all_is_the_mean_loss_before_training():
    x, batches = logistic_params(0), logistic_batches(1, 5, 4)
    _, loss = lur.inner_loop(logistic_loss, x, batches, 0.3, lur.theta.fedavg(4), loss_on="all")
    np.testing.assert_allclose(loss, np.mean([logistic_value(x, take(batches, k)) for k in range(4)]), rtol=1e-13)


def test_gamma_zero_sums_gradients_at_the_initial_model():
    x, batches = logistic_params(0), logistic_batches(1, 3, 4)
    update, _ = lur.inner_loop(logistic_loss, x, batches, 0.0, [1, 1, 1])
    gradients = [logistic_gradient(x, take(batches, k)) for k in range(3)]
    chex.assert_trees_all_close(update, add(add(gradients[0], gradients[1]), gradients[2]), rtol=1e-12)


def test_each_step_uses_its_own_rate():
    x, batches = logistic_params(0), logistic_batches(1, 4, 2)
    gamma = np.array([0.5, 0.25, 0.125, 0.0])
    update, _ = lur.inner_loop(logistic_loss, x, batches, gamma, lur.theta.fedavg(4))
    chex.assert_trees_all_close(update, numpy_inner_loop(x, batches, gamma, (1,) * 4)[0], rtol=1e-12)


def test_update_is_the_model_delta_over_gamma():
    """For Theta_{1:K}, the gradients including the proximal term sum to (x - x_{K+1}) / gamma."""
    x, batches, gamma = logistic_params(0), logistic_batches(1, 5, 2), 0.3
    update, _ = lur.inner_loop(logistic_loss, x, batches, gamma, lur.theta.fedavg(5), prox=0.4)
    _, last = numpy_inner_loop(x, batches, gamma, (1,) * 5, prox=0.4)
    chex.assert_trees_all_close(update, {name: (x[name] - last[name]) / gamma for name in x}, rtol=1e-11)


@pytest.mark.parametrize("optimizer", [functools.partial(optax.sgd, momentum=0.9), optax.sgd(1.0, momentum=0.9)])
def test_client_optimizer_is_a_factory_or_a_transform(optimizer):
    """Momentum as a function of the learning rate, and as a transform with learning rate 1."""
    x, batches, gamma = logistic_params(0), logistic_batches(1, 4, 3), 0.2
    update, _ = lur.inner_loop(
        logistic_loss, x, batches, gamma, lur.theta.fedavg(4), client=optimizer, send="gradients"
    )
    y, velocity, expected = x, add(x, x, -1.0), add(x, x, -1.0)
    for k in range(4):
        g = logistic_gradient(y, take(batches, k))
        velocity = {name: 0.9 * velocity[name] + g[name] for name in g}
        y, expected = add(y, velocity, -gamma), add(expected, g)
    chex.assert_trees_all_close(update, expected, rtol=1e-12)


def test_batches_beyond_the_last_step_are_ignored():
    x, batches = logistic_params(0), logistic_batches(1, 6, 2)
    first_three = {name: value[:3] for name, value in batches.items()}
    update = lur.inner_loop(logistic_loss, x, batches, 0.3, [1, 0, 2])[0]
    chex.assert_trees_all_equal(update, lur.inner_loop(logistic_loss, x, first_three, 0.3, [1, 0, 2])[0])


def test_differentiable_and_vmappable_in_gamma():
    x, batches = logistic_params(0), logistic_batches(1, 3, 2)

    def update_norm(gamma):
        return optax.tree.norm(lur.inner_loop(logistic_loss, x, batches, gamma, [1, 1, 1])[0])

    gammas = jnp.array([0.0, 0.1, 0.5])
    slopes = jax.vmap(jax.grad(update_norm))(gammas)
    np.testing.assert_allclose(
        slopes,
        [(update_norm(g + 1e-6) - update_norm(g - 1e-6 if g else g)) / (2e-6 if g else 1e-6) for g in gammas.tolist()],
        rtol=1e-4,
    )
