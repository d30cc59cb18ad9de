r"""The worked examples of Section 4 with their closed forms.

Two clients, f_1 with A = 1, c = 1 and f_2 with A = 2, c = 1/2, and the 1-D example of Figure 1: clients
i in [1/2, 2] with density 8i/15 and :math:`f_i(x) = \tfrac12 i x^2 - x`.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from theory.precision import float64
from theory.problems import Problem
from theory.spectrum import geometric_sum
from theory.surrogate import Gamma


class Worked(NamedTuple):
    """The two-client example at one (gamma, K).

    Attributes:
      Q: Q_1 and Q_2.
      hessian: the surrogate Hessian.
      argmin: the surrogate minimiser.
      distance: its distance from the true minimiser 2/3.
    """

    Q: Float[Array, "2"]
    hessian: Float[Array, ""]
    argmin: Float[Array, ""]
    distance: Float[Array, ""]


@float64
def two_clients() -> Problem:
    """A_z = z, c_z = 1/z for z = 1, 2, equally likely."""
    return Problem(jnp.array([[[1.0]], [[2.0]]]), jnp.array([[1.0], [0.5]]), jnp.array([0.5, 0.5]))


@float64
def vary_gamma(gamma: Gamma) -> Worked:
    """Theta_{1:2}: argmin (4 - 3g)/(6 - 5g), distance g / (3(6 - 5g)), for g < 6/5."""
    g = jnp.asarray(gamma, jnp.float64)
    return Worked(
        Q=jnp.stack([2 - g, 2 - 2 * g]),
        hessian=(6 - 5 * g) / 2,
        argmin=(4 - 3 * g) / (6 - 5 * g),
        distance=g / (3 * (6 - 5 * g)),
    )


@float64
def vary_steps(K: int) -> Worked:
    """gamma = 1/2, Theta_{1:K}: argmin (3 2^K - 2)/(2^{K+2} - 2), distance (2^K - 2)/(6(2^{K+1} - 1)) up to 1/12."""
    half = 0.5**K  # in powers of 2^-K, so that a large K does not overflow
    Q_1 = 2 - 2 * half
    return Worked(
        Q=jnp.asarray([Q_1, 1.0]),
        hessian=jnp.asarray((Q_1 + 2) / 2),
        argmin=jnp.asarray((3 - 2 * half) / (4 - 2 * half)),
        distance=jnp.asarray((1 - 2 * half) / (6 * (2 - half))),
    )


class Density(NamedTuple):
    """The 1-D example at one (gamma, K).

    Attributes:
      argmin: the surrogate's stationary point.
      hessian: the surrogate Hessian.
    """

    argmin: Float[Array, ""]
    hessian: Float[Array, ""]


TRUE_MINIMIZER = 5 / 7  # 1 / E[i]
AVERAGE_MINIMIZER = 4 / 5  # E[1 / i]


@float64
def density_closed_form(gamma: Gamma, K: int) -> Density:
    r"""x*(g, K) = N / D and Hessian D / g by the antiderivatives; g = 0 is the true loss times K.

    With v = 1 - g i the integrals over i in [1/2, 2] are elementary. As g -> 0, differences of nearly equal powers
    lose digits; `density_quadrature` does not.
    """
    g = jnp.asarray(gamma, jnp.float64)
    safe = jnp.where(g == 0, 1.0, g)
    low, high = 1 - 2 * safe, 1 - safe / 2
    N = 8 / 15 * (1.5 + (low ** (K + 1) - high ** (K + 1)) / (safe * (K + 1)))

    def antiderivative(u):
        return u ** (K + 1) / (K + 1) - u ** (K + 2) / (K + 2)

    D = 1 - 8 / (15 * safe**2) * (antiderivative(high) - antiderivative(low))
    return Density(jnp.where(g == 0, TRUE_MINIMIZER, N / D), jnp.where(g == 0, K * 1.4, D / safe))


@float64
def density_quadrature(gamma: Gamma, K: int) -> Density:
    """The same by Gauss-Legendre quadrature, exact here: the integrands are polynomials of degree K + 1."""
    nodes, mass = density_nodes(max(K // 2 + 2, 32))
    curvature = nodes * geometric_sum(1 - jnp.asarray(gamma, jnp.float64) * nodes, K)  # phi_{K,i}(gamma)
    hessian = mass @ curvature
    return Density(mass @ (curvature / nodes) / hessian, hessian)


def density_nodes(count: int) -> tuple[Float[Array, "q"], Float[Array, "q"]]:
    """Clients i and their probabilities: a quadrature of the density 8i/15 on [1/2, 2]."""
    nodes, mass = np.polynomial.legendre.leggauss(count)
    clients = 1.25 + 0.75 * nodes
    return jnp.asarray(clients), jnp.asarray(mass * 0.75 * 8 * clients / 15)


@float64
def density_variance(gamma: Gamma, K: int) -> Float[Array, ""]:
    """Var_i of the update at the surrogate minimiser: the noise with M = 1."""
    nodes, mass = density_nodes(K + 3)
    x, _ = density_quadrature(gamma, K)
    curvature = nodes * geometric_sum(1 - jnp.asarray(gamma, jnp.float64) * nodes, K)
    update = curvature * (x - 1 / nodes)
    return mass @ update**2 - (mass @ update) ** 2
