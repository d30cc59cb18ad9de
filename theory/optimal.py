r"""The best weights Theta in the worst case.

Over all spectra in [mu, L] the surrogate Hessian has eigenvalues :math:`\lambda s(\lambda)`,
:math:`s(\lambda) = \sum_k \theta_k (1-\gamma\lambda)^{k-1}`, so the best conditioned surrogate is a linear programme,

.. math:: \min R \quad \text{s.t.} \quad 1 \le \lambda s(\lambda) \le R \text{ on } [\mu, L], \quad \theta \ge 0,

and so is a floor on :math:`\chi_\mu = s(L)/s(\mu)`, which bounds how far the minimiser moves (Theorem 3). Always
:math:`\tilde\kappa \ge \kappa\chi_\mu`, with equality where :math:`\lambda s(\lambda)` is least at mu and largest at L.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from theory.methods import polynomial_range, turns
from theory.precision import float64
from theory.problems import check_curvatures
from theory.surrogate import Gamma, Theta, client_rate


class BestTheta(NamedTuple):
    """Weights and what they guarantee.

    Attributes:
      theta: the weights; they sum to 1.
      condition_number: the worst condition number of the surrogate.
      chi_mu: s(L)/s(mu), which bounds how far the minimiser moves.
    """

    theta: Float[np.ndarray, "K"]
    condition_number: float
    chi_mu: float


@float64
def worst_condition(gamma: Gamma, theta: Theta, mu: float, L: float) -> float:
    """Returns kappa~ = max / min of lambda s(lambda) on [mu, L], the worst condition number over all such spectra."""
    least, largest = polynomial_range(gamma, theta, mu, L)
    return largest / least if least > 0 else float("inf")


@float64
def optimal_theta(
    mu: float,
    L: float,
    gamma: Gamma,
    K: int,
    *,
    chi_mu_min: float | None = None,
    points: int = 801,
    tolerance: float = 1e-6,
) -> BestTheta:
    """The nonnegative theta_1, ..., theta_K with the least worst-case condition number, by HiGHS.

    The constraints are imposed on a Chebyshev grid and then also at the stationary points of the solution's
    polynomial, until the condition number over the whole interval is that of the grid. The best Theta need not be
    unique.

    Args:
      mu: the smallest curvature.
      L: the largest curvature.
      gamma: the client learning rate.
      K: the number of local steps.
      chi_mu_min: a lower bound on s(L)/s(mu), at most 1: less bias for a worse condition number.
      points: size of the grid.
      tolerance: by how much, relatively, the condition number may exceed that on the grid.
    """
    from scipy.optimize import linprog

    check_curvatures(mu, L)
    rate = float(client_rate(gamma))
    if isinstance(K, bool) or int(K) != K or K < 1:
        raise ValueError(f"K must be an integer >= 1, got {K!r}")
    if not rate >= 0:
        raise ValueError(f"gamma must be >= 0, got {rate}")
    if chi_mu_min is not None and not 0 < chi_mu_min <= 1:
        raise ValueError(f"chi_mu_min must be in (0, 1], got {chi_mu_min}")
    grid = (L + mu) / 2 - (L - mu) / 2 * np.cos(np.pi * np.arange(points) / (points - 1))

    def powers(lam):
        return (1 - rate * np.asarray(lam)[..., None]) ** np.arange(K)

    for _ in range(30):
        rows = grid[:, None] * powers(grid)
        ones, zeros = np.ones((len(grid), 1)), np.zeros((len(grid), 1))
        A, b = [np.hstack([-rows, zeros]), np.hstack([rows, -ones])], [-np.ones(len(grid)), np.zeros(len(grid))]
        if chi_mu_min is not None:
            A.append(np.append(chi_mu_min * powers(mu) - powers(L), 0.0)[None])
            b.append(np.zeros(1))
        solution = linprog(
            np.eye(K + 1)[K],
            A_ub=np.vstack(A),
            b_ub=np.concatenate(b),
            method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if solution.status != 0:
            raise ValueError(
                f"mu, L, gamma, K and chi_mu_min must allow a positive definite surrogate: {solution.message}"
            )
        theta = np.maximum(solution.x[:K], 0.0)
        theta[theta < 1e-12 * theta.max()] = 0.0
        if worst_condition(rate, theta, mu, L) <= (1 + tolerance) * solution.fun:
            break
        grid = np.sort(np.concatenate([grid, turns(rate, theta, mu, L)]))
    else:
        raise ValueError(f"tolerance must be large enough for the solver to reach it, got {tolerance}")
    theta = theta / theta.sum()
    chi = float((powers(L) @ theta) / (powers(mu) @ theta))
    return BestTheta(theta, worst_condition(rate, theta, mu, L), chi)


@float64
def optimal_theta_two(mu: float, L: float, gamma: float) -> BestTheta:
    r"""K = 2 in closed form: :math:`\theta_2/\theta_1 = 1/(\gamma(L+\mu) - 1)`, which is kappa at gamma = 1/L, and
    :math:`\tilde\kappa = (\kappa+1)^2/(4\kappa)`, the Chebyshev optimum; for :math:`\gamma \le 1/(L+\mu)` Theta_2."""
    check_curvatures(mu, L)
    excess = gamma * (L + mu) - 1
    theta = np.array([excess, 1.0]) if excess > 0 else np.array([0.0, 1.0])
    chi = float((theta @ [1, 1 - gamma * L]) / (theta @ [1, 1 - gamma * mu]))
    kappa = L / mu
    condition = (kappa + 1) ** 2 / (4 * kappa) if excess > 0 else worst_condition(gamma, theta, mu, L)
    return BestTheta(theta / theta.sum(), condition, chi)
