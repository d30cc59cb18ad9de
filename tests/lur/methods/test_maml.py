"""K-MAML by autodiff compared with Theta_{2K+1} and the chain rule, and its bias with SGD clients."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
import theory
import theory.maml
from tests.lur.problems import descent_batches, quadratic_loss, random_quadratic
from theory.enumeration import batch_sequences

pytestmark = pytest.mark.x64


@pytest.mark.parametrize("K", range(1, 9))
def test_maml_gradient_is_the_update_of_theta_2K_plus_1(K):
    """Autodiff, `inner_loop` and the closed form on 100 random problems for each K, with d up to 50.

    gamma L <= 1/2 keeps the gradient well above the rounding errors of the iterates.
    """

    def gradients(A, c, x, gamma):
        batches = tuple(jnp.broadcast_to(v, (2 * K + 1, 1, *v.shape)) for v in (A, c))
        autodiff = lur.maml.maml_gradient(quadratic_loss, x, batches, gamma, K)
        return autodiff, lur.inner_loop(quadratic_loss, x, batches, gamma, lur.theta.maml(K))[0]

    for d, problems in ((1, 20), (2, 20), (3, 20), (5, 20), (10, 10), (50, 10)):
        A, c, _ = random_quadratic(100 * K + d, problems, d)
        generator = np.random.default_rng(d)
        x, gamma = generator.standard_normal((problems, d)), generator.uniform(0, 0.25, problems)
        autodiff, inner_loop = jax.jit(jax.vmap(gradients))(A, c, x, gamma)
        for i in range(problems):
            closed_form = theory.maml.maml_gradient(A[i], c[i], x[i], gamma[i], K)
            for gradient in (autodiff[i], inner_loop[i]):
                assert np.linalg.norm(gradient - closed_form) <= 1e-10 * np.linalg.norm(closed_form), (d, i)


def test_maml_gradient_on_mini_batches_follows_the_chain_rule():
    """The outer gradient is multiplied by prod_k (I - gamma A_k), transposed."""
    A, c, _ = random_quadratic(0, 4, 3)
    x, gamma = np.ones(3), 0.2
    gradient = lur.maml.maml_gradient(quadratic_loss, x, (A[:, None], c[:, None]), gamma, 3)
    y, jacobian = x, np.eye(3)
    for k in range(3):
        y, jacobian = y - gamma * A[k] @ (y - c[k]), (np.eye(3) - gamma * A[k]) @ jacobian
    np.testing.assert_allclose(gradient, jacobian.T @ A[3] @ (y - c[3]), rtol=1e-12)


@pytest.mark.parametrize(("K", "B"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_stochastic_maml_gradient_has_the_predicted_bias(K, B):
    """The expectation over all mini-batches is the closed form in theory.maml, not the update of Theta_{2K+1}."""
    A_z = np.array([[[2.0, 1.0], [1.0, 3.0]], [[1.0, 0.0], [0.0, 0.5]]])
    c_z, p_z = np.array([[1.0, 0.0], [-1.0, 2.0]]), np.array([1 / 3, 2 / 3])
    stochastic = theory.StochasticProblem(A_z[None], c_z[None], p_z[None])
    client = stochastic.problem
    x, gamma = np.array([1.0, 2.0]), 0.2
    draws, probability = batch_sequences(p_z, K, B)

    def gradient(draw):
        # the outer loss is the client's loss, whose gradient is that of (A_i, c_i)
        A = jnp.concatenate([A_z[draw], jnp.broadcast_to(client.A[0], (1, B, 2, 2))])
        c = jnp.concatenate([c_z[draw], jnp.broadcast_to(client.c[0], (1, B, 2))])
        return lur.maml.maml_gradient(quadratic_loss, x, (A, c), gamma, K)

    A_z, c_z = jnp.asarray(A_z), jnp.asarray(c_z)
    expectation = probability @ jax.vmap(gradient)(draws)
    np.testing.assert_allclose(
        expectation, theory.maml.stochastic_maml_gradient(stochastic, 0, x, gamma, K, B), rtol=1e-12
    )
    deterministic = theory.maml.maml_gradient(client.A[0], client.c[0], x, gamma, K)
    assert np.abs(expectation - deterministic).max() > 1e-3


def test_maml_converges_to_the_surrogate_minimiser():
    A, c, _ = random_quadratic(3, 4, 2)
    K, gamma = 2, 0.3
    method = lur.maml.maml(quadratic_loss, K, server=optax.sgd)
    state = method.init(np.zeros(2), gamma, 0.5)
    batches = descent_batches(A, c, K + 1)
    for _ in range(300):
        state, info = method.round(state, batches)
    expected = theory.surrogate_minimizer(theory.Problem(A, c), gamma, lur.theta.maml(K))
    np.testing.assert_allclose(state.params, expected, rtol=1e-9)
    np.testing.assert_allclose(info.loss, theory.loss(theory.Problem(A, c), state.params), rtol=1e-6)


def test_maml_without_steps_is_the_gradient():
    A, c, _ = random_quadratic(0, 1, 2)
    gradient = lur.maml.maml_gradient(quadratic_loss, np.ones(2), (A[:, None], c[:, None]), 0.3, 0)
    np.testing.assert_allclose(gradient, A[0] @ (np.ones(2) - c[0]), rtol=1e-13)


def test_K_batches_serve_both_loops():
    A, c, _ = random_quadratic(0, 2, 2)
    batches = A[:, None], c[:, None]
    gradient = lur.maml.maml_gradient(quadratic_loss, np.ones(2), batches, 0.3, 2)
    extended = [jnp.concatenate([v, v[k : k + 1]]) for k in range(2) for v in batches]
    halves = [
        lur.maml.maml_gradient(quadratic_loss, np.ones(2), (extended[2 * k], extended[2 * k + 1]), 0.3, 2)
        for k in range(2)
    ]
    chex.assert_trees_all_close(gradient, (halves[0] + halves[1]) / 2, rtol=1e-12)


@pytest.mark.parametrize("steps", [-1, 1.5, True])
def test_steps_other_than_a_non_negative_integer_are_rejected(steps):
    with pytest.raises(ValueError, match="steps must be an integer"):
        lur.maml.maml_gradient(quadratic_loss, np.ones(1), (np.ones((1, 1, 1, 1)), np.ones((1, 1, 1))), 0.1, steps)


def test_too_few_batches_are_rejected():
    with pytest.raises(ValueError, match="at least 3 along the K axis"):
        lur.maml.maml_gradient(quadratic_loss, np.ones(1), (np.ones((2, 1, 1, 1)), np.ones((2, 1, 1))), 0.1, 3)
