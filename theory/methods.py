r"""Surrogate Hessians of other local methods in closed form, most of them polynomials in :math:`A_i`.

An independent check of what `theory.surrogate_of` finds by automatic differentiation for the clients of
`theory.clients`.
"""

import itertools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from theory.clients import Send
from theory.precision import float64
from theory.problems import Problem, check_curvatures
from theory.surrogate import Gamma, Theta, client_rate, distortion, weights

Matrix = Float[ArrayLike, "*n d d"]


def _identity_like(A: Float[Array, "*n d d"]) -> Float[Array, "*n d d"]:
    return jnp.broadcast_to(jnp.eye(A.shape[-1]), A.shape)


@float64
def prox_distortion(A: Matrix, gamma: Gamma, theta: Theta, rho: float, *, raw: bool = False) -> Float[Array, "*n d d"]:
    r"""Q of FedProx: :math:`\sum_k \theta_k M^{k-1}`, :math:`M = I - \gamma(A + \rho I)`; the Hessian is Q A.

    With `raw` gradients :math:`\sum_k \theta_k [I - (I - M^{k-1})(A + \rho I)^{-1} A]`.
    """
    A = jnp.asarray(A, jnp.float64)
    one = _identity_like(A)
    stiff = A + rho * one
    Q = distortion(stiff, gamma, theta)
    if not raw:
        return Q
    total = weights(theta).sum()
    return total * one - (total * one - Q) @ jnp.linalg.solve(stiff, A)


@float64
def moreau_hessian(A: Matrix, rho: float) -> Float[Array, "*n d d"]:
    r""":math:`(A + \rho I)^{-1} A`, the Hessian of the Moreau envelope over rho: FedProx solved exactly."""
    A = jnp.asarray(A, jnp.float64)
    return jnp.linalg.solve(A + rho * _identity_like(A), A)


@float64
def decayed(problem: Problem, weight_decay: float) -> Problem:
    """The clients with local weight decay w: A_i + w I and (A_i + w I)^{-1} A_i c_i."""
    A = problem.A + weight_decay * _identity_like(problem.A)
    return Problem(A, jnp.linalg.solve(A, problem.A @ problem.c[..., None])[..., 0], problem.p)


@float64
def varying_distortion(A: Matrix, gammas: Float[ArrayLike, "K"], theta: Theta) -> Float[Array, "*n d d"]:
    r""":math:`\sum_k \theta_k \prod_{j<k} (I - \gamma_j A)`: Q of client rates that vary within the local loop."""
    A, gammas = jnp.asarray(A, jnp.float64), jnp.asarray(gammas, jnp.float64)
    Q, product = jnp.zeros_like(A), _identity_like(A)
    for theta_k, gamma_k in zip(weights(theta), gammas, strict=True):
        Q, product = Q + theta_k * product, product - gamma_k * A @ product
    return Q


@float64
def chebyshev_steps(mu: float, L: float, K: int) -> Float[Array, "K"]:
    r""":math:`1/(\frac{L+\mu}2 + \frac{L-\mu}2 \cos\frac{\pi(2k-1)}{2K})`: the K rates whose model delta is best
    conditioned."""
    check_curvatures(mu, L)
    k = jnp.arange(1.0, K + 1)
    return 1 / ((L + mu) / 2 + (L - mu) / 2 * jnp.cos(jnp.pi * (2 * k - 1) / (2 * K)))


@float64
def chebyshev_condition(mu: float, L: float, K: int) -> Float[Array, ""]:
    r""":math:`(1+\epsilon)/(1-\epsilon)`, :math:`\epsilon = 1/T_K(\frac{\kappa+1}{\kappa-1})`: no client that sends
    a polynomial of degree K in A, times x - c, has a better surrogate for all spectra in [mu, L]."""
    check_curvatures(mu, L)
    eps = 1 / jnp.cosh(K * jnp.arccosh(jnp.float64(L + mu) / (L - mu)))
    return (1 + eps) / (1 - eps)


@float64
def momentum_hessian(
    A: Matrix, gamma: Gamma, beta: float, theta: Theta, *, nesterov: bool = False, send: Send = "gradients"
) -> Float[Array, "*n d d"]:
    r"""With :math:`y_k - c = p_k(A)(x - c)`: heavy ball :math:`p_{k+1} = (1+\beta-\gamma\lambda) p_k - \beta p_{k-1}`,
    Nesterov :math:`(1-\gamma\lambda)((1+\beta) p_k - \beta p_{k-1})`, :math:`p_0 = p_1 = 1`.

    A delta is :math:`I - p_{K+1}(A)`; the sum of gradients :math:`A \sum_k \theta_k p_k(A)`, with Nesterov those of
    the points ahead, :math:`(1+\beta) p_k - \beta p_{k-1}`.
    """
    A, gamma = jnp.asarray(A, jnp.float64), client_rate(gamma)
    before = now = _identity_like(A)
    total = jnp.zeros_like(A)
    for theta_k in weights(theta):
        ahead = (1 + beta) * now - beta * before
        total = total + theta_k * (ahead if nesterov else now)
        later = ahead - gamma * A @ (ahead if nesterov else now)
        before, now = now, later
    return A @ total if send == "gradients" else _identity_like(A) - now


@float64
def preconditioned_hessian(
    A: Matrix, gamma: Gamma, theta: Theta, D: Float[ArrayLike, "d d"], *, send: Send = "gradients"
) -> Float[Array, "*n d d"]:
    r""":math:`\sum_k \theta_k A(I - \gamma DA)^{k-1}`, symmetric; of the delta over gamma
    :math:`\sum_k DA(I - \gamma DA)^{k-1}`, which is not unless D and A commute."""
    A, D, gamma = jnp.asarray(A, jnp.float64), jnp.asarray(D, jnp.float64), client_rate(gamma)
    total, power = jnp.zeros_like(A), _identity_like(A)
    for theta_k in weights(theta) if send == "gradients" else jnp.ones(len(weights(theta))):
        total, power = total + theta_k * power, power - gamma * D @ A @ power
    return A @ total if send == "gradients" else D @ A @ total


class Epoch(NamedTuple):
    """The expected update of a client after one epoch, hessian x - pull.

    Attributes:
      hessian: its Jacobian.
      pull: its negative value at 0.
    """

    hessian: Float[Array, "d d"]
    pull: Float[Array, "d"]


@float64
def epoch(A_z: Float[ArrayLike, "m d d"], c_z: Float[ArrayLike, "m d"], gamma: Gamma, *, reshuffled: bool) -> Epoch:
    r"""One epoch over single examples with Theta_{1:m}, in the given order or averaged over all orders:
    :math:`E_\pi[I - \prod_k (I - \gamma A_{\pi_k})]/\gamma`."""
    A_z, c_z, gamma = jnp.asarray(A_z, jnp.float64), jnp.asarray(c_z, jnp.float64), client_rate(gamma)
    m, d = c_z.shape
    orders = list(itertools.permutations(range(m))) if reshuffled else [tuple(range(m))]
    hessian, pull = jnp.zeros((d, d)), jnp.zeros(d)
    for order in orders:
        later = jnp.eye(d)  # prod of the steps after this one
        for z in reversed(order):
            hessian, pull = hessian + later @ A_z[z], pull + later @ A_z[z] @ c_z[z]
            later = later - gamma * later @ A_z[z]
    return Epoch(hessian / len(orders), pull / len(orders))


def turns(gamma: float, theta: Theta, mu: float, L: float) -> Float[np.ndarray, "r"]:
    r"""Returns the stationary points of :math:`\lambda s(\lambda)` inside (mu, L)."""
    if gamma == 0:
        return np.zeros(0)
    s = np.polynomial.Polynomial(np.asarray(theta))  # of v = 1 - gamma lambda
    roots = (s - np.polynomial.Polynomial([1.0, -1.0]) * s.deriv()).roots()
    v = roots.real[np.abs(roots.imag) < 1e-9]
    points = (1 - v[(v > 1 - gamma * L) & (v < 1 - gamma * mu)]) / gamma
    return points[(points > mu * (1 + 1e-12)) & (points < L * (1 - 1e-12))]  # without the ends themselves


@float64
def polynomial_range(gamma: Gamma, theta: Theta, mu: float, L: float) -> tuple[float, float]:
    r"""The least and the largest :math:`\lambda s(\lambda)` for :math:`\lambda` in [mu, L]."""
    check_curvatures(mu, L)
    rate, theta = float(client_rate(gamma)), np.asarray(weights(theta))
    points = np.concatenate([[mu, L], turns(rate, theta, mu, L)])
    values = points * np.polynomial.Polynomial(theta)(1 - rate * points)
    return float(values.min()), float(values.max())
