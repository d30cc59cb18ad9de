r"""How fast LocalUpdate converges on quadratics: the repaired bounds (Section 7).

They are the printed bounds plus the variance of client sampling, which the paper leaves out. `theory.moments` computes
exactly what they bound.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from theory.moments import Noise, Sampling, gradient_noise, noise_at_minimizer, sampling_weights
from theory.moments import contraction as contraction
from theory.moments import mean_square_error as mean_square_error
from theory.moments import message_noise as message_noise
from theory.moments import moments as moments
from theory.moments import stationary_covariance as stationary_covariance
from theory.precision import float64
from theory.problems import Problem, constants, is_concrete
from theory.spectrum import phi
from theory.surrogate import Gamma, client_rate, surrogate_minimizer


class SurrogateRange(NamedTuple):
    """Bounds of the surrogate Hessian of Theta_{1:K} for gamma <= 1/L (Lemma ft_params).

    Attributes:
      mu: mu_gamma, the lower bound.
      L: L_gamma, the upper bound.
    """

    mu: Float[Array, ""]
    L: Float[Array, ""]


@float64
def surrogate_range(problem: Problem, gamma: Gamma, K: int) -> SurrogateRange:
    """phi_{K,mu}(gamma) and phi_{K,L}(gamma)."""
    (mu, L, *_), gamma = constants(problem), client_rate(gamma)
    if is_concrete(gamma, L) and not 0 <= float(gamma) * float(L) <= 1 + 1e-12:
        raise ValueError(f"gamma must be in [0, 1/L] = [0, {1 / float(L):.6g}], got {float(gamma)}")
    return SurrogateRange(phi(K, mu, gamma), phi(K, L, gamma))


@float64
def descent_bound(
    problem: Problem, x: Float[ArrayLike, "d"], gamma: Gamma, K: int, eta: Float[ArrayLike, ""], *,
    M: int = 1, sampling: Sampling = "iid", noise: Noise = None,
) -> Float[Array, ""]:  # fmt: skip
    """Lemma descent_step repaired: (1 - eta mu_gamma)||x - x_gamma*||^2 + 2 eta^2 sigma_*^2, eta <= 1/(2 L_gamma)."""
    return fixed_server_bound(problem, x, gamma, K, eta, None, M=M, sampling=sampling, noise=noise)


@float64
def fixed_server_bound(
    problem: Problem, x: Float[ArrayLike, "d"], gamma: Gamma, K: int, eta: Float[ArrayLike, ""],
    t: Float[ArrayLike, "*T"] | None, *, M: int = 1, sampling: Sampling = "iid", noise: Noise = None,
) -> Float[Array, "*T"]:  # fmt: skip
    """Theorem 6 repaired: (1 - eta mu_gamma)^t ||x_1 - x_gamma*||^2 + 2 eta sigma_*^2 / mu_gamma, eta <= 1/(2 L_gamma).

    Without t it bounds a single step, where the last term is only 2 eta^2 sigma_*^2.
    """
    theta, eta = (1.0,) * K, jnp.asarray(eta, jnp.float64)
    surrogate = surrogate_range(problem, gamma, K)
    if is_concrete(eta, surrogate) and not 0 <= float(eta) <= (1 + 1e-12) / (2 * float(surrogate.L)):
        raise ValueError(f"eta must be in [0, 1/(2 L_gamma)] = [0, {0.5 / float(surrogate.L):.6g}], got {float(eta)}")
    start = jnp.sum((jnp.asarray(x, jnp.float64) - surrogate_minimizer(problem, gamma, theta)) ** 2)
    variance = 2 * eta * noise_at_minimizer(problem, gamma, theta, M=M, sampling=sampling, noise=noise)
    if t is None:
        return (1 - eta * surrogate.mu) * start + eta * variance
    return (1 - eta * surrogate.mu) ** jnp.asarray(t, jnp.float64) * start + variance / surrogate.mu


@float64
def decaying_server_bound(
    problem: Problem, x: Float[ArrayLike, "d"], gamma: Gamma, K: int, t: Float[ArrayLike, "*T"], *,
    M: int = 1, sampling: Sampling = "iid", noise: Noise = None, b: Float[ArrayLike, ""] | None = None,
) -> Float[Array, "*T"]:  # fmt: skip
    """Theorem 7 repaired: E||x_t - x_gamma*||^2 <= nu / (b + t) with eta_t = (2/mu_gamma) / (b + t).

    nu = max{8 sigma_*^2 / mu_gamma^2, (b + 1)||x_1 - x_gamma*||^2} and b >= 4 L_gamma / mu_gamma, which is its default.
    """
    theta, surrogate = (1.0,) * K, surrogate_range(problem, gamma, K)
    b = 4 * surrogate.L / surrogate.mu if b is None else jnp.asarray(b, jnp.float64)
    start = jnp.sum((jnp.asarray(x, jnp.float64) - surrogate_minimizer(problem, gamma, theta)) ** 2)
    variance = 8 * noise_at_minimizer(problem, gamma, theta, M=M, sampling=sampling, noise=noise) / surrogate.mu**2
    return jnp.maximum(variance, (b + 1) * start) / (b + jnp.asarray(t, jnp.float64))


@float64
def true_minimizer_bound(
    problem: Problem, x: Float[ArrayLike, "d"], gamma: Gamma, K: int, t: Float[ArrayLike, "*T"], *,
    M: int = 1, sampling: Sampling = "iid", noise: Noise = None, b: Float[ArrayLike, ""] | None = None,
) -> Float[Array, "*T"]:  # fmt: skip
    """Corollary 6 repaired: a bound on E||x_t - x*||^2 for the schedule of Theorem 7.

    2 nu / (b + t) + 2 sigma_c^2 (1 + sigma_A/mu)^2 kappa^2 eps^2/(1 - eps)^2 with the least eps = 1 - exp(-gamma K L).
    """
    (mu, L, sigma_A, sigma_c), gamma = constants(problem), client_rate(gamma)
    bias = sigma_c * (1 + sigma_A / mu) * L / mu * jnp.expm1(gamma * K * L)
    return 2 * decaying_server_bound(problem, x, gamma, K, t, M=M, sampling=sampling, noise=noise, b=b) + 2 * bias**2


class Schedule(NamedTuple):
    """The rates of Theorem 8 for t = 1, ..., T.

    Attributes:
      gamma: client learning rates gamma_t.
      eta: server learning rates eta_t.
    """

    gamma: Float[Array, "T"]
    eta: Float[Array, "T"]


@float64
def decaying_schedule(problem: Problem, K: int, rounds: int, *, slower: bool = False) -> Schedule:
    """gamma_t = min{1/(L(b+t)), ln 2/(K mu)}, eta_t = 3/(mu_t (b+t)), b = 3 kappa^2; `slower`: gamma_t = 1/(K L (b+t)).

    The slower schedule is a repair: no constant of its bound grows with K.
    """
    mu, L, *_ = constants(problem)
    time = 3 * (L / mu) ** 2 + jnp.arange(1.0, rounds + 1)
    cap = jnp.log(2.0) / (K * mu)
    gamma = 1 / (K * L * time) if slower else jnp.minimum(1 / (L * time), cap)
    return Schedule(gamma, 3 / (phi(K, mu, gamma) * time))


@float64
def decaying_client_bound(
    problem: Problem, x: Float[ArrayLike, "d"], K: int, t: Float[ArrayLike, "*T"], *,
    M: int = 1, sampling: Sampling = "iid", noise: Noise = None, slower: bool = False,
) -> Float[Array, "*T"]:  # fmt: skip
    """Theorem 8 repaired: E||x_t - x*||^2 <= (2 nu + m^2 sigma_c^2/12) / (b + t) for `decaying_schedule`.

    m = K - 1 (1 if `slower`), nu = max{variance, (b + 1)||x_1 - x_1*||^2}, and the variance is
    w 27/2 kappa^2 sigma_c^2 + sum_i v_i a G^2/(mu^2 K) with a = 18 (12 if `slower`), G^2 the largest trace of a
    client's noise, w and v of `sampling_weights`: 1/M both if iid, 0 and sum_i p_i^2 with full participation.
    """
    mu, L, _, sigma_c = constants(problem)
    kappa = L / mu
    b = 3 * kappa**2
    w, v = sampling_weights(problem, M, sampling)
    G2 = jnp.trace(gradient_noise(problem, noise), axis1=-2, axis2=-1).max()
    variance = 27 / 2 * kappa**2 * sigma_c**2 * w + (12 if slower else 18) * G2 / (mu**2 * K) * v.sum()
    first = decaying_schedule(problem, K, 1, slower=slower).gamma[0]
    start = jnp.sum((jnp.asarray(x, jnp.float64) - surrogate_minimizer(problem, first, (1.0,) * K)) ** 2)
    nu = jnp.maximum(variance, (b + 1) * start)
    m = 1 if slower else K - 1
    return (2 * nu + m**2 * sigma_c**2 / 12) / (b + jnp.asarray(t, jnp.float64))
