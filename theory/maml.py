r"""K-MAML in closed form on quadratics (Section 3.1, Theorem 2), with gradient descent and with SGD clients.

Gradient descent: :math:`\nabla m_K(x) = (I-\gamma A)^{2K} A (x - c)`, which is Theta_{2K+1}.

SGD with mini-batches of B, the same ones in iterate and Hessian, and the population outer loss: with

.. math:: T(M) = M - \gamma (A M + M A) + \gamma^2 \big[A M A + \tfrac1B (\mathbb{E}_z[A_z M A_z] - A M A)\big]

the expectation is :math:`T^K(A)(x-c) - \tfrac{\gamma^2}{B} \sum_{k=1}^K (I-\gamma A)^{k-1}
\mathbb{E}_z[A_z T^{K-k}(A) A_z (c_z - c)]`: biased unless A_z = A almost surely.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from theory.precision import float64
from theory.problems import StochasticProblem, mean_problem
from theory.surrogate import Gamma


@float64
def maml_gradient(
    A: Float[ArrayLike, "d d"], c: Float[ArrayLike, "d"], x: Float[ArrayLike, "d"], gamma: Gamma, K: int
) -> Float[Array, "d"]:
    """grad m_K(x) = (I - gamma A)^{2K} A (x - c)."""
    A, c, x = (jnp.asarray(value, jnp.float64) for value in (A, c, x))
    step = jnp.eye(A.shape[-1]) - gamma * A
    return jnp.linalg.matrix_power(step, 2 * K) @ A @ (x - c)


@float64
def maml_loss(
    A: Float[ArrayLike, "d d"], c: Float[ArrayLike, "d"], x: Float[ArrayLike, "d"], gamma: Gamma, K: int
) -> Float[Array, ""]:
    """m_K(x) = f(X_K(x)), the loss after K steps of gradient descent."""
    A, c, x = (jnp.asarray(value, jnp.float64) for value in (A, c, x))
    gap = jnp.linalg.matrix_power(jnp.eye(A.shape[-1]) - gamma * A, K) @ (x - c)
    return 0.5 * gap @ A @ gap


@float64
def stochastic_maml_gradient(
    stochastic: StochasticProblem, client: int, x: Float[ArrayLike, "d"], gamma: Gamma, K: int, B: int
) -> Float[Array, "d"]:
    """E[grad m_K(x)] of an SGD client, by the closed form in the module's documentation."""
    problem = mean_problem(stochastic)
    A, c = problem.A[client], problem.c[client]
    A_z, p_z = stochastic.A_z[client], stochastic.p_z[client]
    gap_z = stochastic.c_z[client] - c
    step = jnp.eye(A.shape[-1]) - gamma * A

    def transfer(M, _):
        spread = jnp.einsum("m,mij,jk,mkl->il", p_z, A_z, M, A_z)
        return M - gamma * (A @ M + M @ A) + gamma**2 * (A @ M @ A + (spread - A @ M @ A) / B), M

    last, powers = jax.lax.scan(transfer, A, length=K)  # T^K(A), and T^0(A) .. T^{K-1}(A)
    gradient = last @ (jnp.asarray(x, jnp.float64) - c)
    for k in range(1, K + 1):
        pull = jnp.einsum("m,mij,jk,mkl,ml->i", p_z, A_z, powers[K - k], A_z, gap_z)
        gradient = gradient - gamma**2 / B * jnp.linalg.matrix_power(step, k - 1) @ pull
    return gradient
