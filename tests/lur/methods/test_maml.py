"""K-MAML by autodiff against Theta_{2K+1}, against the chain rule by hand, and its bias with SGD clients."""

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
def test_maml_is_theta_2K_plus_1(K):
    """100 random problems for each K, d up to 50: autodiff, InnerLoop and closed form, 1e-10 relative.

    gamma L <= 1/2 keeps the gradient well above the rounding of the iterates, which is all that limits it.
    """

    def both(A, c, x, gamma):
        batches = tuple(jnp.broadcast_to(v, (2 * K + 1, 1, *v.shape)) for v in (A, c))
        by_autodiff = lur.maml.maml_gradient(quadratic_loss, x, batches, gamma, K)
        return by_autodiff, lur.inner_loop(quadratic_loss, x, batches, gamma, lur.theta.maml(K))[0]

    for d, problems in ((1, 20), (2, 20), (3, 20), (5, 20), (10, 10), (50, 10)):
        A, c, _ = random_quadratic(100 * K + d, problems, d)
        generator = np.random.default_rng(d)
        x, gamma = generator.standard_normal((problems, d)), generator.uniform(0, 0.25, problems)
        by_autodiff, by_theta = jax.jit(jax.vmap(both))(A, c, x, gamma)
        for i in range(problems):
            closed = theory.maml.maml_gradient(A[i], c[i], x[i], gamma[i], K)
            for found in (by_autodiff[i], by_theta[i]):
                assert np.linalg.norm(found - closed) <= 1e-10 * np.linalg.norm(closed), (d, i)


def test_mini_batches_by_the_chain_rule():
    """prod_k (I - gamma A_k), in reverse, times the outer gradient."""
    A, c, _ = random_quadratic(0, 4, 3)
    x, gamma = np.ones(3), 0.2
    found = lur.maml.maml_gradient(quadratic_loss, x, (A[:, None], c[:, None]), gamma, 3)
    y, jacobian = x, np.eye(3)
    for k in range(3):
        y, jacobian = y - gamma * A[k] @ (y - c[k]), (np.eye(3) - gamma * A[k]) @ jacobian
    np.testing.assert_allclose(found, jacobian.T @ A[3] @ (y - c[3]), rtol=1e-12)


@pytest.mark.parametrize(("K", "B"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_stochastic_clients_are_biased_as_predicted(K, B):
    """The expectation over all mini-batches: not Theta_{2K+1}'s, but the closed form of theory.maml."""
    A_z = np.array([[[2.0, 1.0], [1.0, 3.0]], [[1.0, 0.0], [0.0, 0.5]]])
    c_z, p_z = np.array([[1.0, 0.0], [-1.0, 2.0]]), np.array([1 / 3, 2 / 3])
    stochastic = theory.StochasticProblem(A_z[None], c_z[None], p_z[None])
    client = stochastic.problem
    x, gamma = np.array([1.0, 2.0]), 0.2
    draws, probability = batch_sequences(p_z, K, B)

    def gradient(draw):
        # the outer loss is the client's own: (A_i, c_i) has its gradient
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


def test_maml_algorithm_converges_to_the_surrogate_minimiser():
    A, c, _ = random_quadratic(3, 4, 2)
    K, gamma = 2, 0.3
    algorithm = lur.maml.maml(quadratic_loss, K, server=optax.sgd)
    state = algorithm.init(np.zeros(2), gamma, 0.5)
    batches = descent_batches(A, c, K + 1)
    for _ in range(300):
        state, info = algorithm.round(state, batches)
    expected = theory.surrogate_minimizer(theory.Problem(A, c), gamma, lur.theta.maml(K))
    np.testing.assert_allclose(state.params, expected, rtol=1e-9)
    np.testing.assert_allclose(info.loss, theory.loss(theory.Problem(A, c), state.params), rtol=1e-6)


def test_zero_steps_is_the_gradient():
    A, c, _ = random_quadratic(0, 1, 2)
    found = lur.maml.maml_gradient(quadratic_loss, np.ones(2), (A[:, None], c[:, None]), 0.3, 0)
    np.testing.assert_allclose(found, A[0] @ (np.ones(2) - c[0]), rtol=1e-13)


def test_exactly_K_batches_reuse_the_data():
    A, c, _ = random_quadratic(0, 2, 2)
    batches = A[:, None], c[:, None]
    found = lur.maml.maml_gradient(quadratic_loss, np.ones(2), batches, 0.3, 2)
    longer = [jnp.concatenate([v, v[k : k + 1]]) for k in range(2) for v in batches]
    halves = [
        lur.maml.maml_gradient(quadratic_loss, np.ones(2), (longer[2 * k], longer[2 * k + 1]), 0.3, 2) for k in range(2)
    ]
    chex.assert_trees_all_close(found, (halves[0] + halves[1]) / 2, rtol=1e-12)


@pytest.mark.parametrize("steps", [-1, 1.5, True])
def test_steps_must_be_a_count(steps):
    with pytest.raises(ValueError, match="steps must be an integer"):
        lur.maml.maml_gradient(quadratic_loss, np.ones(1), (np.ones((1, 1, 1, 1)), np.ones((1, 1, 1))), 0.1, steps)


def test_too_few_batches():
    with pytest.raises(ValueError, match="at least 3 along the K axis"):
        lur.maml.maml_gradient(quadratic_loss, np.ones(1), (np.ones((2, 1, 1, 1)), np.ones((2, 1, 1))), 0.1, 3)
