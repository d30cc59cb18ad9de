"""The bounds of Section 6 on how far surrogate minimisers are from x* and from one another, printed and sharper.

Each is a small function of the constants (mu, L, sigma_A, sigma_c), the rates and Theta, in either arithmetic. A
distance and its bound vanish with gamma, so both are written without differences of near equals: `slope` for numbers,
`hessian_and_drop` for matrices.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from theory.claims.outsized_importance.properties import phi


class Constants(NamedTuple):
    """The tightest constants of Assumptions 1 and 2.

    Attributes:
      mu: the smallest eigenvalue of all A_i.
      L: the largest eigenvalue of all A_i.
      sigma_A: root mean square of ||A_i - E[A_i]||.
      sigma_c: root mean square of ||c_i - E[c_i]||.
    """

    mu: Any
    L: Any
    sigma_A: Any
    sigma_c: Any


def spectrum(xp: Any, I: Any) -> tuple[Any, Any]:
    """mu and L: the extreme eigenvalues over all clients."""
    eigenvalues = xp.eigvalsh(I.A)
    return xp.minimum(*eigenvalues[:, 0]), xp.maximum(*eigenvalues[:, -1])


def spread(xp: Any, I: Any) -> Any:
    """sigma_c^2 = E||c_i - c||^2."""
    return xp.mean(I.p, xp.stack([xp.total(gap**2) for gap in centred(xp, I)]))


def constants(xp: Any, I: Any) -> Constants:
    """mu, L, sigma_A = (E||A_i - A||^2)^{1/2} and sigma_c."""
    deviations = xp.eigvalsh(I.A - xp.mean(I.p, I.A))
    norms = xp.stack([xp.maximum(deviation[0] ** 2, deviation[-1] ** 2) for deviation in deviations])
    return Constants(*spectrum(xp, I), xp.sqrt(xp.mean(I.p, norms)), xp.sqrt(spread(xp, I)))


def series(theta: Sequence[Any], v: Any) -> Any:
    """sum_k theta_k v^{k-1}: at v = 1 - gamma lambda an eigenvalue of Q, at v = 1 the sum of weights."""
    value = 0 * v
    for weight in reversed(theta):
        value = weight + v * value
    return value


def slope(theta: Sequence[Any], u: Any, v: Any) -> Any:
    """(series(u) - series(v)) / (u - v) without the division, by Horner's rule; sums and products of positive terms."""
    value = quotient = 0 * u
    for weight in reversed(theta):
        value, quotient = weight + u * value, value + v * quotient
    return quotient


def drop(theta: Sequence[Any], lam: Any, gamma1: Any, gamma2: Any) -> Any:
    """s_1(lambda) lambda - s_2(lambda) lambda, what an eigenvalue of Q_i A_i loses from gamma1 to gamma2."""
    return (gamma2 - gamma1) * lam**2 * slope(theta, 1 - gamma1 * lam, 1 - gamma2 * lam)


def hessian_and_drop(xp: Any, A: Any, theta: Sequence[Any], gamma1: Any, gamma2: Any) -> tuple[Any, Any]:
    """B_1 = Q(gamma1) A and C = Q(gamma1) A - Q(gamma2) A of one matrix or a stack: `series` and `drop` of matrices."""
    one = xp.eye(A.shape[-1])
    u, v = one - gamma1 * A, one - gamma2 * A
    value, quotient = theta[-1] * one + 0 * A, 0 * A
    for weight in reversed(theta[:-1]):
        value, quotient = weight * one + u @ value, value + v @ quotient
    return value @ A, (gamma2 - gamma1) * A @ quotient @ A


def hessians(xp: Any, I: Any, gamma: Any, theta: Sequence[Any]) -> Any:
    """Q_i A_i of every client."""
    return xp.distortion(I.A, gamma, theta) @ I.A


def centred(xp: Any, I: Any) -> Any:
    """c_i - c."""
    return I.c - xp.mean(I.p, I.c)


def mean_product(xp: Any, p: Any, W: Any, c: Any) -> Any:
    """E[W_i c_i]."""
    return xp.mean(p, (W @ c[..., None])[..., 0])


def minimizer(xp: Any, p: Any, H: Any, c: Any) -> Any:
    """E[H_i]^{-1} E[H_i c_i]: x* for H_i = A_i, x*(gamma, Theta) for H_i = Q_i A_i (Lemma opt_point)."""
    return xp.solve(xp.mean(p, H), mean_product(xp, p, H, c))


def displacement(xp: Any, I: Any, gamma1: Any, gamma2: Any, theta: Sequence[Any]) -> Any:
    """W_i with x*(gamma1) - x*(gamma2) = E[W_i (c_i - c)]; W_i = B_1^{-1} B_{i,1} - B_2^{-1} B_{i,2}.

    Written as B_2^{-1} (C_i - C B_1^{-1} B_{i,1}) with C_i = B_{i,1} - B_{i,2}, which is small where W_i is.
    """
    B1, C = hessian_and_drop(xp, I.A, theta, gamma1, gamma2)
    mean_B1, mean_C = xp.mean(I.p, B1), xp.mean(I.p, C)
    return xp.inverse(mean_B1 - mean_C) @ (C - mean_C @ xp.inverse(mean_B1) @ B1)


def shift(xp: Any, I: Any, gamma1: Any, gamma2: Any, theta: Sequence[Any]) -> Any:
    """x*(gamma1, Theta) - x*(gamma2, Theta)."""
    return mean_product(xp, I.p, displacement(xp, I, gamma1, gamma2, theta), centred(xp, I))


def condition_number(mu: Any, L: Any, gamma: Any, K: int) -> Any:
    """kappa_gamma = phi_{K,L}(gamma) / phi_{K,mu}(gamma), the surrogate's under Theta_{1:K} (Corollary cond_fedavg)."""
    return phi(K, L, gamma) / phi(K, mu, gamma)


def chi(theta: Sequence[Any], gamma: Any, L: Any) -> Any:
    """chi(gamma, Theta) = s(L) / s(0) (eq:chi)."""
    return series(theta, 1 - gamma * L) / series(theta, 1 + 0 * gamma)


def minimizer_distance_bound(const: Constants, gamma: Any, theta: Sequence[Any]) -> Any:
    """(L sigma_c / mu)(1 + sigma_A / mu)(1 - chi) / chi (Theorem optima_distance)."""
    lost = const.L * gamma * slope(theta, 1 + 0 * gamma, 1 - gamma * const.L) / series(theta, 1 - gamma * const.L)
    return const.L * const.sigma_c / const.mu * (1 + const.sigma_A / const.mu) * lost


def minimizer_distance_bound_sharp(const: Constants, gamma: Any, theta: Sequence[Any]) -> Any:
    """The same with (1 - chi_mu) / (2 chi_mu), chi_mu = s(L) / s(mu), in place of (1 - chi) / chi."""
    u, v = 1 - gamma * const.mu, 1 - gamma * const.L
    lost = (const.L - const.mu) * gamma * slope(theta, u, v) / series(theta, v)
    return const.L * const.sigma_c / const.mu * (1 + const.sigma_A / const.mu) * lost / 2


def fedavg_distance_bound(const: Constants, gamma: Any, K: int) -> Any:
    """sigma_c (1 + sigma_A / mu)(L K - phi_{K,L}) / phi_{K,mu} (Theorem optima_distance_fedavg)."""
    return (
        const.sigma_c
        * (1 + const.sigma_A / const.mu)
        * drop((1,) * K, const.L, 0 * gamma, gamma)
        / phi(K, const.mu, gamma)
    )


def heterogeneity_distance_bound(const: Constants, gamma: Any, K: int) -> Any:
    """sigma_c sigma_A (K / phi_{K,mu})(1 - phi_{K,L} / (K L))(2 + L / mu): vanishes with sigma_A, like the distance."""
    lost = drop((1,) * K, const.L, 0 * gamma, gamma) / const.L
    return const.sigma_c * const.sigma_A * lost / phi(K, const.mu, gamma) * (2 + const.L / const.mu)


def instance_optimal_bound(xp: Any, I: Any, W: Any) -> Any:
    """sigma_c ||E[W_i W_i^T]||^{1/2}: the least bound that knows A_i, P and sigma_c, attained by some c_i."""
    return xp.sqrt(spread(xp, I) * xp.eigvalsh(xp.mean(I.p, W @ W.swapaxes(-1, -2)))[-1])


def one_shot_bound(xp: Any, I: Any, K: int) -> Any:
    """sigma_c B(kappa_gamma), B(t) = (t^{1/2} - t^{-1/2}) / 2, from x*(gamma, Theta_{1:K}) to c; K = 1: from x* to c."""
    ratio = condition_number(*spectrum(xp, I), I.gamma, K)
    return xp.sqrt(spread(xp, I)) * (ratio - 1) / (2 * xp.sqrt(ratio))


def largest_rate(xp: Any, eps: Any, K: int, lam: Any) -> Any:
    """ln(1 / (1 - eps)) / (K lambda), the rate up to which phi_{K,lambda} is within 1 - eps of K lambda."""
    return -xp.log(1 - eps) / (K * lam)


def epsilon_distance_bound(const: Constants, eps: Any) -> Any:
    """sigma_c (1 + sigma_A / mu)(L / mu) eps / (1 - eps) (Corollary optima_distance_fedavg)."""
    return const.sigma_c * (1 + const.sigma_A / const.mu) * const.L / const.mu * eps / (1 - eps)


def rate_distance_bound(const: Constants, gamma1: Any, gamma2: Any, K: int) -> Any:
    """sigma_c (1 + phi_L(gamma2) / phi_mu(gamma2))(phi_L(gamma1) - phi_L(gamma2)) / phi_mu(gamma1): the theorem."""
    lost = drop((1,) * K, const.L, gamma1, gamma2)
    return const.sigma_c * (1 + condition_number(const.mu, const.L, gamma2, K)) * lost / phi(K, const.mu, gamma1)


def rate_distance_bound_linear(const: Constants, gamma1: Any, gamma2: Any) -> Any:
    """2 sigma_c (L^3 / mu^2)(gamma2 - gamma1) (Corollary distance_optima_gamma, false for large K)."""
    return 2 * const.sigma_c * const.L**3 / const.mu**2 * (gamma2 - gamma1)


def condition_fall(mu: Any, L: Any, gamma1: Any, gamma2: Any, K: int) -> Any:
    """kappa_1 - kappa_2, `condition_number` at gamma1 minus at gamma2: twice the sharp bound, over sigma_c."""
    high, low = phi(K, L, gamma1), phi(K, mu, gamma1)
    lost = drop((1,) * K, L, gamma1, gamma2) * low - drop((1,) * K, mu, gamma1, gamma2) * high
    return lost / (low * phi(K, mu, gamma2))


def condition_fall_linear(mu: Any, L: Any, gamma1: Any, gamma2: Any, K: int) -> Any:
    """(K - 1)/2 (L^2 / mu)(gamma2 - gamma1), at least `condition_fall`."""
    return (K - 1) * L**2 / mu * (gamma2 - gamma1) / 2


def condition_fall_log(xp: Any, mu: Any, L: Any, gamma1: Any, gamma2: Any) -> Any:
    """(L / mu) ln(gamma2 / gamma1), at least `condition_fall` for every K."""
    return L / mu * xp.log(gamma2 / gamma1)
