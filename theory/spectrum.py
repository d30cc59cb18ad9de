r"""Eigenvalues of Q_i and Q_i A_i as scalar functions (Section 5).

An eigenvalue lambda of A_i becomes :math:`s(\lambda) = \sum_k \theta_k (1-\gamma\lambda)^{k-1}` in Q_i
and :math:`s(\lambda)\lambda` in Q_i A_i; for Theta_{1:K} the latter is
:math:`\phi_{K,\lambda}(\gamma) = \gamma^{-1}(1 - (1-\gamma\lambda)^K)` (eq:phi).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from theory.precision import float64
from theory.surrogate import Gamma, Theta, weights


def geometric_sum(v, K: int):
    """1 + v + ... + v^(K-1) in O(log K) products and no division: smooth in v, also at v = 1.

    Works on anything that adds and multiplies: arrays (elementwise) and exact fractions.
    """
    if isinstance(K, bool) or int(K) != K or K < 0:
        raise ValueError(f"K must be an integer >= 0, got {K!r}")
    total, power = v * 0, v * 0 + 1  # of zero terms
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

    def horner(total, theta_k):
        return theta_k + v * total, None

    return jax.lax.scan(horner, jnp.zeros_like(v), weights(theta), reverse=True)[0]


@float64
def chi(gamma: Gamma, theta: Theta, L: Float[ArrayLike, ""]) -> Float[Array, ""]:
    r""":math:`\chi(\gamma,\Theta) = s(L) / s(0)` (eq:chi), 1 without local progress and 0 with too much of it."""
    array = weights(theta)
    if not isinstance(array, Tracer) and not np.asarray(array).any():
        raise ValueError("theta must have a positive weight (Assumption 0), got zeros only")
    return distortion_eigenvalue(L, gamma, array) / array.sum()
