r"""The distance of the surrogate's minimiser from the true one, and bounds on it (Section 6).

Distances and bounds that vanish with gamma are computed from differences
:math:`Q_i(\gamma_0) - Q_i(\gamma)` in a form without cancellation, so that they stay accurate for
arbitrarily small gamma. All bounds are for :math:`0 \le \gamma < 1/L` under Assumptions 0 to 2.
"""

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from theory.precision import float64
from theory.problems import Problem, check_client_rate, check_positive_definite, constants, is_concrete
from theory.spectrum import check_eps, distortion_eigenvalue, divided_difference, phi, phi_drop
from theory.surrogate import (
    Gamma,
    Theta,
    client_hessians,
    client_rate,
    surrogate_hessian,
    surrogate_minimizer,
    weights,
)


@float64
def limit_loss(problem: Problem, x: Float[ArrayLike, "d"], gamma: Gamma) -> Float[Array, ""]:
    r""":math:`\frac1{2\gamma} E\|x - c_i\|^2`: the surrogate loss of Theta_{1:K} as K grows, and above it for
    every K while :math:`0 < \gamma \le 1/L` (lem:asymptotic)."""
    gamma = client_rate(gamma)
    if is_concrete(gamma) and not gamma > 0:
        raise ValueError(f"gamma must be > 0 for the limit to exist, got {gamma}")
    return problem.p @ jnp.sum((jnp.asarray(x, jnp.float64) - problem.c) ** 2, -1) / (2 * gamma)


@float64
def inverse_gap(problem: Problem) -> Float[Array, "d d"]:
    r""":math:`E[A_i^{-1}] - E[A_i]^{-1} \succeq 0` (lemma:expect_inverse), computed as
    :math:`E[(A_i^{-1} - A^{-1}) A_i (A_i^{-1} - A^{-1})]`, which also proves it."""
    check_positive_definite("A", problem.A)
    gap = jnp.linalg.inv(problem.A) - jnp.linalg.inv(jnp.einsum("n,nij->ij", problem.p, problem.A))
    return jnp.einsum("n,nij,njk,nkl->il", problem.p, gap, problem.A, gap)


@float64
def hessian_gaps(problem: Problem, gamma: Gamma, theta: Theta, start: Gamma = 0.0) -> Float[Array, "n d d"]:
    r""":math:`Q_i(\gamma_0)A_i - Q_i(\gamma)A_i` for every client, :math:`\gamma_0` = start, to full precision.

    For Theta_{1:K} and :math:`\gamma_0 \le \gamma \le 1/L` it is between 0 and
    :math:`\phi_{K,L}(\gamma_0) - \phi_{K,L}(\gamma)` (lem:diff_qa_structure, and from 0 lem:diff_qa_a).
    """
    A, gamma, start = problem.A, client_rate(gamma), client_rate(start)
    identity = jnp.eye(A.shape[-1])
    slope = divided_difference(identity - start * A, identity - gamma * A, weights(theta), identity, jnp.matmul)
    return (gamma - start) * A @ slope @ A


@float64
def minimizer_shift(problem: Problem, gamma: Gamma, theta: Theta, start: Gamma = 0.0) -> Float[Array, "d"]:
    r""":math:`x^*(\gamma, \Theta) - x^*(\gamma_0, \Theta)` with :math:`\gamma_0` = start, where 0 stands for x* itself.

    As :math:`E[H_i]^{-1} E[(H_i^0 - H_i)(x^*(\gamma_0) - c_i)]` it stays accurate when it is small.
    """
    x = surrogate_minimizer(problem, start, theta)
    hessian = surrogate_hessian(problem, gamma, theta)
    check_positive_definite("the surrogate Hessian E[Q_i A_i]", hessian)
    pull = jnp.einsum("n,nij,nj->i", problem.p, hessian_gaps(problem, gamma, theta, start), x - problem.c)
    return jnp.linalg.solve(hessian, pull)


@float64
def minimizer_distance(problem: Problem, gamma: Gamma, theta: Theta, start: Gamma = 0.0) -> Float[Array, ""]:
    r""":math:`\|x^*(\gamma, \Theta) - x^*\|`, or from :math:`x^*(\gamma_0, \Theta)` with :math:`\gamma_0` = start."""
    return jnp.linalg.norm(minimizer_shift(problem, gamma, theta, start))


@float64
def minimizer_distance_bound(problem: Problem, gamma: Gamma, theta: Theta) -> Float[Array, ""]:
    r""":math:`\frac{L\sigma_c}\mu \big(1 + \frac{\sigma_A}\mu\big) \frac{1-\chi}\chi` (eq:optima_distance)."""
    return _general_bound(problem, gamma, theta, 0.0)


@float64
def sharper_distance_bound(problem: Problem, gamma: Gamma, theta: Theta) -> Float[Array, ""]:
    r"""Theorem 3 with :math:`\frac12 \frac{1-\chi_\mu}{\chi_\mu}` for :math:`\frac{1-\chi}\chi`, never above it.

    The same proof with :math:`\tilde A_i = \tau Q_i A_i` scaled by :math:`\tau = 2/(s(\mu) + s(L))`: then
    :math:`\|\tilde A_i - A_i\| \le L \frac{s(\mu)-s(L)}{s(\mu)+s(L)}` and :math:`\tilde A_i \succeq \tau s(L)\mu`.
    """
    return _general_bound(problem, gamma, theta, constants(problem).mu) / 2


def _general_bound(problem, gamma, theta, from_curvature):
    """(L sigma_c / mu) (1 + sigma_A / mu) (s(from_curvature) - s(L)) / s(L)."""
    mu, L, sigma_A, sigma_c = constants(problem)
    gamma, theta = client_rate(gamma), weights(theta)
    check_client_rate(gamma, L)
    u, v = 1 - gamma * from_curvature, 1 - gamma * L
    gap = gamma * (L - from_curvature) * divided_difference(u, v, theta, jnp.float64(1))
    return L * sigma_c / mu * (1 + sigma_A / mu) * gap / distortion_eigenvalue(L, gamma, theta)


@float64
def instance_optimal_distance_bound(
    problem: Problem, gamma: Gamma, theta: Theta, start: Gamma = 0.0
) -> Float[Array, ""]:
    r""":math:`\sigma_c \|E[W_i W_i^\top]\|^{1/2}`, the least bound that the A_i, p and sigma_c allow.

    :math:`W_i = E[H_i]^{-1} H_i - E[H_i^0]^{-1} H_i^0` with :math:`H_i = Q_i(\gamma)A_i` and
    :math:`H_i^0 = Q_i(\gamma_0)A_i`, :math:`\gamma_0` = start. Since :math:`E[W_i] = 0`, the shift is
    :math:`E[W_i (c_i - c)]`; minimisers :math:`c_i - c \propto W_i^\top u`, u the top eigenvector, attain the bound.
    """
    first, gaps = client_hessians(problem, start, theta), hessian_gaps(problem, gamma, theta, start)
    hessian_0, hessian = surrogate_hessian(problem, start, theta), surrogate_hessian(problem, gamma, theta)
    for matrix in (hessian_0, hessian):
        check_positive_definite("the surrogate Hessian E[Q_i A_i]", matrix)
    gap = jnp.einsum("n,nij->ij", problem.p, gaps)
    W = jnp.linalg.solve(hessian, gap @ jnp.linalg.solve(hessian_0, first) - gaps)
    spread = jnp.einsum("n,nij,nkj->ik", problem.p, W, W)
    return constants(problem).sigma_c * jnp.sqrt(jnp.maximum(jnp.linalg.eigvalsh(spread)[-1], 0))


@float64
def fedavg_distance_bound(problem: Problem, gamma: Gamma, K: int) -> Float[Array, ""]:
    r""":math:`\sigma_c \big(1 + \frac{\sigma_A}\mu\big) \frac{KL - \phi_{K,L}(\gamma)}{\phi_{K,\mu}(\gamma)}`
    (thm:optima_distance_fedavg), never above `minimizer_distance_bound` of Theta_{1:K}."""
    mu, L, sigma_A, sigma_c = constants(problem)
    check_client_rate(gamma, L, closed=True)
    return sigma_c * (1 + sigma_A / mu) * phi_drop(K, L, gamma) / phi(K, mu, gamma)


@float64
def fedavg_heterogeneity_bound(problem: Problem, gamma: Gamma, K: int) -> Float[Array, ""]:
    r""":math:`\sigma_c \sigma_A \frac{K}{\phi_{K,\mu}(\gamma)} \big(1 - \frac{\phi_{K,L}(\gamma)}{KL}\big)
    \big(2 + \frac L\mu\big)`: it vanishes with sigma_A, as the distance does and Theorem 4 does not."""
    mu, L, sigma_A, sigma_c = constants(problem)
    check_client_rate(gamma, L, closed=True)
    return sigma_c * sigma_A * phi_drop(K, L, gamma) / (L * phi(K, mu, gamma)) * (2 + L / mu)


@float64
def fedavg_eps_distance_bound(problem: Problem, eps: Float[ArrayLike, ""], K: int) -> Float[Array, ""]:
    r""":math:`\sigma_c \big(1 + \frac{\sigma_A}\mu\big) \frac L\mu \frac\epsilon{1-\epsilon}` for gamma up to
    `client_rate_limit(K, L, eps)` (cor:optima_distance_fedavg)."""
    check_eps(eps, K)
    mu, L, sigma_A, sigma_c = constants(problem)
    eps = jnp.asarray(eps, jnp.float64)
    return sigma_c * (1 + sigma_A / mu) * L / mu * eps / (1 - eps)


@float64
def one_shot_bound(problem: Problem, gamma: Gamma, K: int) -> Float[Array, ""]:
    r"""A bound on :math:`\|x^*(\gamma, \Theta_{1:K}) - c\|`: how far K local steps are from one-shot averaging.

    :math:`\tfrac12 \sigma_c (t^{1/2} - t^{-1/2})` with :math:`t = \phi_L / \phi_\mu` (claim L11b, corrected). It falls
    to 0 as K grows; at K = 1 it bounds :math:`\|x^* - c\|`.
    """
    mu, L, _, sigma_c = constants(problem)
    check_client_rate(gamma, L, closed=True)
    ratio = phi(K, L, gamma) / phi(K, mu, gamma)
    return sigma_c * (ratio - 1) / (2 * jnp.sqrt(ratio))


@float64
def gamma_distance_bound(problem: Problem, gamma1: Gamma, gamma2: Gamma, K: int) -> Float[Array, ""]:
    r""":math:`\sigma_c \big(1 + \frac{\phi_{K,L}(\gamma_2)}{\phi_{K,\mu}(\gamma_2)}\big)
    \frac{\phi_{K,L}(\gamma_1) - \phi_{K,L}(\gamma_2)}{\phi_{K,\mu}(\gamma_1)}` on
    :math:`\|x^*(\gamma_1, \Theta_{1:K}) - x^*(\gamma_2, \Theta_{1:K})\|` (thm:distance_optima_gamma)."""
    mu, L, _, sigma_c = constants(problem)
    _check_order(gamma1, gamma2, L)
    kappa = phi(K, L, gamma2) / phi(K, mu, gamma2)
    return sigma_c * (1 + kappa) * phi_drop(K, L, gamma2, gamma1) / phi(K, mu, gamma1)


@float64
def gamma_distance_linear_bound(problem: Problem, gamma1: Gamma, gamma2: Gamma, K: int) -> Float[Array, ""]:
    r""":math:`K \sigma_c \frac{L^3}{\mu^2} (\gamma_2 - \gamma_1)`: cor:distance_optima_gamma with K for its 2.

    From `gamma_distance_bound`, :math:`\phi_L / \phi_\mu \le L/\mu` and
    :math:`\phi_L(\gamma_1) - \phi_L(\gamma_2) \le \frac K2 L \phi_L(\gamma_1)(\gamma_2 - \gamma_1)`; the last since
    :math:`\sum_{j<K} j v^{j-1} \le \frac K2 \sum_{j<K} v^j` on [0, 1], whose partial sums of coefficients are
    nonnegative.
    """
    mu, L, _, sigma_c = constants(problem)
    _check_order(gamma1, gamma2, L)
    return K * sigma_c * L**3 / mu**2 * (jnp.asarray(gamma2, jnp.float64) - jnp.asarray(gamma1, jnp.float64))


def _check_order(gamma1, gamma2, L):
    for gamma in (gamma1, gamma2):
        check_client_rate(gamma, L, closed=True)
    if is_concrete(gamma1, gamma2) and not np.asarray(gamma1) <= np.asarray(gamma2):
        raise ValueError(f"gamma1 must be <= gamma2, got {gamma1} > {gamma2}")
