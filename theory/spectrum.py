r"""Eigenvalues of Q_i and Q_i A_i as scalar functions (Section 5).

An eigenvalue lambda of A_i becomes :math:`s(\lambda) = \sum_k \theta_k (1-\gamma\lambda)^{k-1}` in Q_i
and :math:`s(\lambda)\lambda` in Q_i A_i; for Theta_{1:K} the latter is
:math:`\phi_{K,\lambda}(\gamma) = \gamma^{-1}(1 - (1-\gamma\lambda)^K)` (eq:phi).
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from theory.precision import float64
from theory.problems import check_client_rate, check_curvatures, is_concrete
from theory.surrogate import Gamma, Theta, horner, weights

Curvature = Float[ArrayLike, ""]


def geometric_sum(v, K: int):
    """1 + v + ... + v^(K-1) in O(log K) products and no division: smooth in v, also at v = 1.

    Works for anything that can be added and multiplied: arrays (elementwise) and exact fractions.
    """
    if isinstance(K, bool) or int(K) != K or K < 0:
        raise ValueError(f"K must be an integer >= 0, got {K!r}")
    total, power = v * 0, v * 0 + 1  # sum and power of zero terms
    for bit in bin(int(K))[2:]:
        total, power = total * (power + 1), power * power
        if bit == "1":
            total, power = total * v + 1, power * v
    return total


@float64
def phi(K: int, lam: Float[ArrayLike, "..."], gamma: Gamma) -> Float[Array, "..."]:
    r""":math:`\phi_{K,\lambda}(\gamma) = \sum_{k \le K} (1-\gamma\lambda)^{k-1}\lambda` (eq:phi_alt), K lambda at 0."""
    lam, gamma = jnp.asarray(lam, jnp.float64), jnp.asarray(gamma, jnp.float64)
    return lam * geometric_sum(1 - gamma * lam, K)


@float64
def distortion_eigenvalue(lam: Float[ArrayLike, "..."], gamma: Gamma, theta: Theta) -> Float[Array, "..."]:
    r"""s(lambda) = sum_k theta_k (1 - gamma lambda)^{k-1}: what lambda becomes in Q (Lemma Q_structure)."""
    v = 1 - jnp.asarray(gamma, jnp.float64) * jnp.asarray(lam, jnp.float64)
    return horner(v, weights(theta), jnp.ones_like(v), jnp.multiply)


@float64
def chi(gamma: Gamma, theta: Theta, L: Float[ArrayLike, ""]) -> Float[Array, ""]:
    r""":math:`\chi(\gamma,\Theta) = s(L) / s(0)` (eq:chi), 1 without local progress, down to 0 with more of it."""
    array = weights(theta)
    if not isinstance(array, Tracer) and not np.asarray(array).any():
        raise ValueError("theta must have a positive weight (Assumption 0), got zeros only")
    return distortion_eigenvalue(L, gamma, array) / array.sum()


@float64
def chi_mu(gamma: Gamma, theta: Theta, mu: Curvature, L: Curvature) -> Float[Array, ""]:
    r""":math:`\chi_\mu(\gamma,\Theta) = s(L) / s(\mu) \ge \chi(\gamma,\Theta)`, of the sharper Theorem 3."""
    return distortion_eigenvalue(L, gamma, theta) / distortion_eigenvalue(mu, gamma, theta)


@partial(jax.jit, static_argnames="times")
def divided_difference(u, v, theta: Float[Array, "K"], one, times=jnp.multiply):
    r""":math:`\sum_k \theta_k \frac{u^{k-1} - v^{k-1}}{u - v}` without the division, smooth also at u = v.

    For u, v >= 0 it is a sum of nonnegative terms, so that small differences of s and of Q stay accurate. It is
    elementwise, or for commuting matrices if `one` is the identity and `times` the matrix product.
    """

    def step(carry, theta_k):
        total, power, difference = carry  # sum so far, u^{k-1}, (u^{k-1} - v^{k-1}) / (u - v)
        return (total + theta_k * difference, times(power, u), power + times(v, difference)), None

    one = jnp.broadcast_to(one, jnp.broadcast_shapes(jnp.shape(u), jnp.shape(v)))
    return jax.lax.scan(step, (jnp.zeros_like(one), one, jnp.zeros_like(one)), theta)[0][0]


@float64
def phi_drop(K: int, lam: Float[ArrayLike, "..."], gamma: Gamma, start: Gamma = 0.0) -> Float[Array, "..."]:
    r""":math:`\phi_{K,\lambda}(\gamma_0) - \phi_{K,\lambda}(\gamma)`, :math:`\gamma_0` = start, to full precision.

    From 0 it is :math:`K\lambda - \phi_{K,\lambda}(\gamma)`, the discrepancy of Theorem 4.
    """
    lam, gamma, start = (jnp.asarray(value, jnp.float64) for value in (lam, gamma, start))
    slope = divided_difference(1 - start * lam, 1 - gamma * lam, jnp.ones(K), jnp.float64(1))
    return (gamma - start) * lam**2 * slope


class Interval(NamedTuple):
    """Bounds on a quantity.

    Attributes:
      lower: the lower bound.
      upper: the upper bound.
    """

    lower: Float[Array, ""]
    upper: Float[Array, ""]


@float64
def client_hessian_bounds(gamma: Gamma, theta: Theta, mu: Curvature, L: Curvature) -> Interval:
    r""":math:`s(L)\mu \preceq Q_i A_i \preceq s(\mu)L` for :math:`0 \le \gamma < 1/L` (lem:QA_structure)."""
    check_curvatures(mu, L)
    check_client_rate(gamma, L)
    mu, L = jnp.asarray(mu, jnp.float64), jnp.asarray(L, jnp.float64)
    return Interval(distortion_eigenvalue(L, gamma, theta) * mu, distortion_eigenvalue(mu, gamma, theta) * L)


@float64
def fedavg_condition_bound(K: int, mu: Curvature, L: Curvature, gamma: Gamma) -> Float[Array, ""]:
    r"""Of the surrogate of Theta_{1:K}: :math:`\phi_{K,L}(\gamma) / \phi_{K,\mu}(\gamma)` (cor:cond_fedavg).

    It holds for :math:`0 \le \gamma \le 1/L`, where it is at most :math:`L/\mu` (lem:cond_number).
    """
    check_curvatures(mu, L)
    check_client_rate(gamma, L, closed=True)
    return phi(K, L, gamma) / phi(K, mu, gamma)


@float64
def fomaml_condition_bound(K: int, mu: Curvature, L: Curvature, gamma: Gamma) -> Float[Array, ""]:
    r"""Of the surrogate of Theta_K: :math:`\big(\frac{1-\gamma L}{1-\gamma\mu}\big)^{K-1} \frac L\mu` (cor:cond_maml).

    It holds for :math:`0 \le \gamma \le 1/(KL)`.
    """
    check_curvatures(mu, L)
    check_client_rate(gamma, L, steps=K, closed=True)
    mu, L, gamma = (jnp.asarray(value, jnp.float64) for value in (mu, L, gamma))
    return ((1 - gamma * L) / (1 - gamma * mu)) ** (K - 1) * L / mu


@float64
def client_rate_limit(K: int, lam: Curvature, eps: Float[ArrayLike, ""]) -> Float[Array, ""]:
    r""":math:`\ln(1/(1-\epsilon)) / (K\lambda)` with :math:`0 \le \epsilon \le 1 - e^{-K}` (lem:gamma_cond).

    Up to this gamma :math:`\phi_{K,\lambda}(\gamma) \ge (1-\epsilon)K\lambda`.
    """
    check_eps(eps, K)
    return -jnp.log1p(-jnp.asarray(eps, jnp.float64)) / (K * jnp.asarray(lam, jnp.float64))


def check_eps(eps: Float[ArrayLike, ""], K: int) -> None:
    """Refuses eps outside [0, 1 - e^{-K}]."""
    if is_concrete(eps) and not 0 <= np.asarray(eps) <= -np.expm1(-K):
        raise ValueError(f"eps must be in [0, 1 - e^(-K)] = [0, {-np.expm1(-K):.6g}] for K = {K}, got {eps}")
