r"""K-MAML in closed form on quadratics (Section 3.1, Theorem 2), with gradient descent and with SGD clients.

Gradient descent: :math:`\nabla m_K(x) = (I-\gamma A)^{2K} A (x - c)`, which is Theta_{2K+1}.

SGD with mini-batches of B, the same ones in iterate and Hessian, and the population outer loss: with

.. math:: T(M) = M - \gamma (A M + M A) + \gamma^2 \big[A M A + \tfrac1B (\mathbb{E}_z[A_z M A_z] - A M A)\big]

the expectation is :math:`T^K(A)(x-c) - \tfrac{\gamma^2}{B} \sum_{k=1}^K (I-\gamma A)^{k-1}
\mathbb{E}_z[A_z T^{K-k}(A) A_z (c_z - c)]`: biased unless A_z = A almost surely.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from theory.precision import float64
from theory.problems import Problem, StochasticProblem, mean_problem
from theory.surrogate import Gamma, client_hessians, client_rate


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


class MamlEquivalence(NamedTuple):
    """Whether K-MAML is LocalUpdate with Theta_{2K+1} on a problem (Theorem 2).

    Attributes:
      holds: whether all clients agree up to rounding.
      gap: the largest relative difference of Hessian or gradient at 0 of the two losses, for each client.
      tolerance: what rounding can explain of it.
      maml_hessians: the Jacobians of grad m_K^i, by automatic differentiation.
      surrogate_hessians: Q_i A_i with Theta_{2K+1}.
      maml_minimizer: the stationary point of the mean MAML loss.
      surrogate_minimizer: x*(gamma, Theta_{2K+1}).
    """

    holds: bool
    gap: Float[np.ndarray, "n"]
    tolerance: Float[np.ndarray, "n"]
    maml_hessians: Float[Array, "n d d"]
    surrogate_hessians: Float[Array, "n d d"]
    maml_minimizer: Float[Array, "d"]
    surrogate_minimizer: Float[Array, "d"]


@float64
def check_maml_equivalence(problem: Problem, gamma: Gamma, K: int, query: Problem | None = None) -> MamlEquivalence:
    """Compares grad m_K^i, by differentiating through K gradient steps, with the surrogate of Theta_{2K+1}.

    Both are affine in x, so agreement of Jacobian and value at 0 is agreement everywhere.

    Args:
      problem: the clients; without `query` their losses are differentiated through steps on themselves.
      gamma: the client learning rate.
      K: the number of gradient steps.
      query: the losses after the steps, of the same clients with the same weights, where MAML adapts on a support set
        (`problem`) and differentiates the loss of a query set. The equivalence then fails, unless A and c agree.
    """
    if isinstance(K, bool) or int(K) != K or K < 0:
        raise ValueError(f"K must be an integer >= 0, got {K!r}")
    outer = problem if query is None else query
    if outer.c.shape != problem.c.shape or not np.array_equal(outer.p, problem.p):
        raise ValueError(
            f"query must have the clients and weights of problem, got c of shape {outer.c.shape} for {problem.c.shape} "
            f"and p = {outer.p} for {problem.p}"
        )
    gamma = client_rate(gamma)

    def loss_after(x: Array, A: Array, c: Array, A_query: Array, c_query: Array) -> Array:
        x = jax.lax.scan(lambda x, _: (x - gamma * (A @ (x - c)), None), x, length=K)[0]
        return 0.5 * (x - c_query) @ A_query @ (x - c_query)

    def affine(A: Array, c: Array, A_query: Array, c_query: Array) -> tuple[Array, Array]:
        gradient = jax.grad(loss_after)
        zero = jnp.zeros_like(c)
        return jax.jacfwd(gradient)(zero, A, c, A_query, c_query), gradient(zero, A, c, A_query, c_query)

    hessians, at_zero = jax.vmap(affine)(problem.A, problem.c, outer.A, outer.c)
    expected = client_hessians(problem, gamma, (0.0,) * (2 * K) + (1.0,))
    expected_at_zero = -(expected @ problem.c[..., None])[..., 0]
    norms = np.linalg.norm(problem.A, 2, axis=(-2, -1))
    growth = np.maximum(1, np.abs(1 - float(gamma) * np.linalg.eigvalsh(problem.A)).max(-1)) ** (2 * K) * norms
    reach = growth * np.maximum(1, np.linalg.norm(problem.c, axis=-1))  # what the terms of either side can amount to
    size = np.maximum(np.abs(expected).max((-2, -1)), np.abs(hessians).max((-2, -1)))
    size = np.maximum(np.maximum(size, np.abs(expected_at_zero).max(-1)), np.abs(at_zero).max(-1))
    size = np.where(size > 0, size, 1.0)
    gap = np.maximum(np.abs(hessians - expected).max((-2, -1)), np.abs(at_zero - expected_at_zero).max(-1)) / size
    d = problem.c.shape[-1]
    tolerance = 8 * (2 * K + 2) * d * np.finfo(float).eps * reach / size
    minimizers = [
        jnp.linalg.solve(jnp.einsum("n,nij->ij", problem.p, H), -problem.p @ b)
        for H, b in ((hessians, at_zero), (expected, expected_at_zero))
    ]
    return MamlEquivalence(bool((gap <= tolerance).all()), gap, tolerance, hessians, expected, *minimizers)
