r"""The surrogate loss that a local update method really descends (Section 3).

.. math::
    Q_i(\gamma, \Theta) = \sum_{k=1}^{K(\Theta)} \theta_k (I - \gamma A_i)^{k-1}, \qquad
    \tilde f_i(x, \gamma, \Theta) = \tfrac12 (x - c_i)^\top Q_i A_i (x - c_i), \qquad
    \tilde f = \mathbb{E}_i[\tilde f_i]

(eq:Q_matrix, eq:surrogate_i with its missing square, eq:surrogate_loss) and their minimisers (Lemma opt_point).
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from theory.precision import float64
from theory.problems import Problem, check_positive_definite, check_symmetric, is_concrete

Theta = Sequence[float] | Float[ArrayLike, "K"]
Gamma = Float[ArrayLike, ""]


def weights(theta: Theta) -> Float[Array, "K"]:
    """Theta as an array of nonnegative weights."""
    array = jnp.asarray(theta, jnp.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"theta must be a non-empty sequence of weights, got shape {array.shape}")
    if is_concrete(array) and not (np.isfinite(array).all() and (np.asarray(array) >= 0).all()):
        raise ValueError(f"theta must be finite and >= 0, got {np.asarray(array)}")
    return array


def client_rate(gamma: Gamma) -> Float[Array, ""]:
    """gamma as a float64 scalar. Theorem 1 holds for every real gamma, so only NaN and infinity are refused."""
    array = jnp.asarray(gamma, jnp.float64)
    if array.shape != ():
        raise ValueError(f"gamma must be a scalar, got shape {array.shape}")
    if is_concrete(array) and not np.isfinite(array):
        raise ValueError(f"gamma must be finite, got {gamma}")
    return array


@partial(jax.jit, static_argnames="times")
def horner(v: Array, theta: Float[Array, "K"], one: Array, times: Callable[[Array, Array], Array]) -> Array:
    """sum_k theta_k v^{k-1}, elementwise or for matrices: `one` is the unit and `times` the product."""

    def step(total, theta_k):
        return theta_k * one + times(v, total), None

    return jax.lax.scan(step, jnp.zeros_like(v), theta, reverse=True)[0]


@float64
def distortion(A: Float[ArrayLike, "*n d d"], gamma: Gamma, theta: Theta) -> Float[Array, "*n d d"]:
    """Q(gamma, Theta) of one A (d, d) or of a stack (n, d, d), by Horner's rule."""
    A, gamma, theta = jnp.asarray(A, jnp.float64), client_rate(gamma), weights(theta)
    check_symmetric("A", A)
    identity = jnp.broadcast_to(jnp.eye(A.shape[-1]), A.shape)
    return horner(identity - gamma * A, theta, identity, jnp.matmul)


@float64
def client_hessians(problem: Problem, gamma: Gamma, theta: Theta) -> Float[Array, "n d d"]:
    """Q_i A_i for every client: symmetric, since Q_i is a polynomial in A_i."""
    return distortion(problem.A, gamma, theta) @ problem.A


@float64
def surrogate_hessian(problem: Problem, gamma: Gamma, theta: Theta) -> Float[Array, "d d"]:
    """E[Q_i A_i], the Hessian of the surrogate loss."""
    return jnp.einsum("n,nij->ij", problem.p, client_hessians(problem, gamma, theta))


@float64
def client_surrogate_losses(
    problem: Problem, x: Float[ArrayLike, "d"], gamma: Gamma, theta: Theta
) -> Float[Array, "n"]:
    """f~_i(x, gamma, Theta) = (x - c_i)^T Q_i A_i (x - c_i) / 2."""
    gap = jnp.asarray(x, jnp.float64) - problem.c
    return 0.5 * jnp.einsum("ni,nij,nj->n", gap, client_hessians(problem, gamma, theta), gap)


@float64
def surrogate_loss(problem: Problem, x: Float[ArrayLike, "d"], gamma: Gamma, theta: Theta) -> Float[Array, ""]:
    """f~(x, gamma, Theta) = E_i[f~_i(x, gamma, Theta)]."""
    return problem.p @ client_surrogate_losses(problem, x, gamma, theta)


@float64
def surrogate_gradient(problem: Problem, x: Float[ArrayLike, "d"], gamma: Gamma, theta: Theta) -> Float[Array, "d"]:
    """E[Q_i A_i (x - c_i)], the expected mean update (Theorem 1)."""
    gap = jnp.asarray(x, jnp.float64) - problem.c
    return jnp.einsum("n,nij,nj->i", problem.p, client_hessians(problem, gamma, theta), gap)


@float64
def surrogate_minimizer(problem: Problem, gamma: Gamma, theta: Theta) -> Float[Array, "d"]:
    """x*(gamma, Theta) = E[Q_i A_i]^{-1} E[Q_i A_i c_i]: where the method converges, if it does.

    Raises:
      ValueError: if the surrogate Hessian is not positive definite, so that there is no minimiser.
    """
    hessians = client_hessians(problem, gamma, theta)
    hessian = jnp.einsum("n,nij->ij", problem.p, hessians)
    check_positive_definite("the surrogate Hessian E[Q_i A_i]", hessian)
    return jnp.linalg.solve(hessian, jnp.einsum("n,nij,nj->i", problem.p, hessians, problem.c))


@float64
def minimizer(problem: Problem) -> Float[Array, "d"]:
    """x* = E[A_i]^{-1} E[A_i c_i], the minimiser of the true loss."""
    A = jnp.einsum("n,nij->ij", problem.p, problem.A)
    check_positive_definite("E[A_i]", A)
    return jnp.linalg.solve(A, jnp.einsum("n,nij,nj->i", problem.p, problem.A, problem.c))


@float64
def average_minimizer(problem: Problem) -> Float[Array, "d"]:
    """c = E[c_i], the limit of x*(gamma, Theta_{1:K}) as K grows (Lemma asymptotic)."""
    return problem.p @ problem.c
