r"""Richardson extrapolation of the surrogate minimiser in gamma.

:math:`x^*(\gamma, \Theta) = x^* + \gamma x' + O(\gamma^2)`, so that two client rates give
:math:`2x^*(\gamma, \Theta) - x^*(2\gamma, \Theta) = x^* + O(\gamma^2)`. Dieuleveut, Durmus and Bach (2020) do this
for SGD with constant steps, Mangold et al. (2025, arXiv:2412.01389) for FedAvg.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from theory.distance import minimizer_shift
from theory.precision import float64
from theory.problems import Problem
from theory.surrogate import Gamma, Theta, client_hessians, minimizer, weights


@float64
def extrapolated_minimizer(problem: Problem, gamma: Gamma, theta: Theta) -> Float[Array, "d"]:
    """2 x*(gamma, Theta) - x*(2 gamma, Theta): the extrapolation of two runs."""
    return minimizer(problem) + extrapolated_shift(problem, gamma, theta)


@float64
def extrapolated_shift(problem: Problem, gamma: Gamma, theta: Theta) -> Float[Array, "d"]:
    """`extrapolated_minimizer` minus x*, the remaining error, to full precision."""
    gamma = jnp.asarray(gamma, jnp.float64)
    return 2 * minimizer_shift(problem, gamma, theta) - minimizer_shift(problem, 2 * gamma, theta)


@float64
def combined_minimizer(problem: Problem, gamma: Gamma, theta: Theta) -> Float[Array, "d"]:
    """Where the mean of 2 q(gamma) - q(2 gamma), two updates from one model, vanishes: also x* + O(gamma^2)."""
    gamma = jnp.asarray(gamma, jnp.float64)
    H_i = 2 * client_hessians(problem, gamma, theta) - client_hessians(problem, 2 * gamma, theta)
    pull = jnp.einsum("n,nij,nj->i", problem.p, H_i, problem.c)
    return jnp.linalg.solve(jnp.einsum("n,nij->ij", problem.p, H_i), pull)


@float64
def minimizer_slope(problem: Problem, theta: Theta) -> Float[Array, "d"]:
    r""":math:`\frac{dx^*(\gamma, \Theta)}{d\gamma}\big|_0 =
    \frac{\sum_k (k-1)\theta_k}{\sum_k \theta_k} A^{-1} E[A_i^2(x^* - c_i)]`, which extrapolation removes."""
    theta = weights(theta)
    A = jnp.einsum("n,nij->ij", problem.p, problem.A)
    pull = jnp.einsum("n,nij,njk,nk->i", problem.p, problem.A, problem.A, minimizer(problem) - problem.c)
    lag = jnp.arange(len(theta), dtype=jnp.float64) @ theta / theta.sum()
    return lag * jnp.linalg.solve(A, pull)
