r"""How fast LocalUpdate converges on quadratics: exact second moments, and the repaired bounds (Section 7).

With messages :math:`q^i = H_i(x - c_i) + \text{noise}`, :math:`H_i = Q_i(\gamma, \Theta) A_i`, the server step
:math:`x_{t+1} = x_t - \eta_t q_t` maps the mean m and the second moment S of :math:`e_t = x_t - r`, about any fixed
point r, linearly: with :math:`d_i = r - c_i`, :math:`H = E[H_i]`, :math:`h = E[H_i d_i]`,

.. math::
    m^+ = m - \eta(Hm + h), \qquad
    S^+ = S - \eta(HS + SH + hm^\top + mh^\top) + \eta^2 E[qq^\top], \\
    E[qq^\top] = (1 - w)\,E[\bar q\bar q^\top] + w\,E_i[\bar q_i\bar q_i^\top] + \textstyle\sum_i v_i C_i^q,

where q_i-bar and q-bar are without noise. Client sampling only enters through w and v: w = 1/M for M clients drawn iid,
(n - M) / (M (n - 1)) without replacement from a uniform P, 0 when all take part; v_i = p_i / M, or p_i^2.

The bounds are the printed ones with what the paper leaves out, the variance of client sampling.
"""

from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from theory.precision import float64
from theory.problems import Problem, check_symmetric, constants, is_concrete
from theory.spectrum import phi
from theory.surrogate import (
    Gamma,
    Theta,
    client_hessians,
    client_rate,
    minimizer,
    surrogate_minimizer,
    weights,
)

Sampling = Literal["iid", "without replacement", "full"]
Noise: TypeAlias = Float[ArrayLike, "n d d"] | Float[ArrayLike, "d d"] | None


class Moments(NamedTuple):
    """E[x_t - r] and E[(x_t - r)(x_t - r)^T] about a point r, for one t or for t = 1, 2, ... along the first axis."""

    mean: Float[Array, "*t d"]
    second: Float[Array, "*t d d"]

    @property
    def covariance(self) -> Float[Array, "*t d d"]:
        """Cov(x_t), whatever r."""
        return self.second - self.mean[..., :, None] * self.mean[..., None, :]


def gradient_noise(problem: Problem, noise: Noise) -> Float[Array, "n d d"]:
    """Covariances of one mini-batch gradient, per client; one matrix for all clients or None for none will do."""
    n, d, _ = problem.A.shape
    if noise is None:
        return jnp.zeros((n, d, d))
    array = jnp.asarray(noise, jnp.float64)
    if array.shape not in ((d, d), (n, d, d)):
        raise ValueError(f"noise must be covariances of shape {(n, d, d)} or {(d, d)}, got {array.shape}")
    check_symmetric("noise", array)
    return jnp.broadcast_to(array, (n, d, d))


def sampling_weights(problem: Problem, M: int, sampling: Sampling) -> tuple[float, Float[Array, "n"]]:
    """The weight w of the variance between clients, and v_i of the noise of client i."""
    n = len(problem.p)
    if sampling == "full":
        return 0.0, problem.p**2
    if isinstance(M, bool) or int(M) != M or not M >= 1:
        raise ValueError(f"M must be an integer >= 1, got {M!r}")
    if sampling == "iid":
        return 1 / M, problem.p / M
    if sampling != "without replacement":
        raise ValueError(f"sampling must be 'iid', 'without replacement' or 'full', got {sampling!r}")
    if n < M:
        raise ValueError(f"M must be at most the {n} clients there are, got {M}")
    if is_concrete(problem.p) and np.ptp(np.asarray(problem.p)) > 1e-12:
        raise ValueError("sampling without replacement needs a uniform p, or the mean message is biased (line 341)")
    return (n - M) / (M * max(n - 1, 1)), problem.p / M


@float64
def message_noise(problem: Problem, gamma: Gamma, theta: Theta, noise: Noise = None) -> Float[Array, "n d d"]:
    """C_i^q = sum_k W_k C_i W_k, the covariance of q^i that gradient noise of covariance C_i causes.

    W_k = theta_k I - gamma A_i sum_{j>k} theta_j (I - gamma A_i)^{j-k-1}, for Theta_{1:K} just (I - gamma A_i)^{K-k}:
    additive noise, the only one that Assumption 3 allows of quadratics.
    """
    C, gamma, theta = gradient_noise(problem, noise), client_rate(gamma), weights(theta)
    identity = jnp.eye(problem.A.shape[-1])

    def backwards(carry, theta_k):
        later, total = carry
        W = theta_k * identity - gamma * problem.A @ later
        later = theta_k * identity + later - gamma * problem.A @ later
        return (later, total + W @ C @ W.swapaxes(-1, -2)), None

    start = jnp.zeros_like(problem.A), jnp.zeros_like(problem.A)
    return jax.lax.scan(backwards, start, theta, reverse=True)[0][1]


@float64
def moments(
    problem: Problem,
    x: Float[ArrayLike, "d"],
    gamma: Float[ArrayLike, "*T"],
    theta: Theta,
    eta: Float[ArrayLike, "*T"],
    rounds: int,
    *,
    M: int = 1,
    sampling: Sampling = "iid",
    noise: Noise = None,
    about: Float[ArrayLike, "d"] | None = None,
) -> Moments:
    """Exact moments of x_1, ..., x_{T+1} from x_1 = x, with constant rates or one gamma_t and eta_t per round.

    They are about `about`, the true minimiser x* if left out.
    """
    about = minimizer(problem) if about is None else jnp.asarray(about, jnp.float64)
    w, v = sampling_weights(problem, M, sampling)
    rates = [jnp.broadcast_to(jnp.asarray(rate, jnp.float64), (rounds,)) for rate in (gamma, eta)]
    gap = about - problem.c

    def one_round(state, rate):
        gamma, eta = rate
        H_i = client_hessians(problem, gamma, theta)
        h_i = jnp.einsum("nij,nj->ni", H_i, gap)
        H, h = jnp.einsum("n,nij->ij", problem.p, H_i), problem.p @ h_i
        mean, second = state
        # not E[q e^T] and its transpose: the asymmetric part of a rounding error would grow
        drift = H @ second + second @ H + jnp.outer(h, mean) + jnp.outer(mean, h)
        together = _square(H, h, state)
        each = jnp.einsum("n,nij->ij", problem.p, jax.vmap(_square, (0, 0, None))(H_i, h_i, state))
        noise_q = jnp.einsum("n,nij->ij", v, message_noise(problem, gamma, theta, noise))
        square = (1 - w) * together + w * each + noise_q
        after = Moments(mean - eta * (H @ mean + h), second - eta * drift + eta**2 * square)
        return after, after

    e = jnp.asarray(x, jnp.float64) - about
    start = Moments(e, jnp.outer(e, e))
    _, later = jax.lax.scan(one_round, start, tuple(rates))
    return Moments(*(jnp.concatenate([first[None], rest]) for first, rest in zip(start, later, strict=True)))


def _square(H: Float[Array, "d d"], h: Float[Array, "d"], state: Moments) -> Float[Array, "d d"]:
    """E[(H e + h)(H e + h)^T]."""
    cross = jnp.outer(H @ state.mean, h)
    return H @ state.second @ H + cross + cross.T + jnp.outer(h, h)


@float64
def mean_square_error(
    problem: Problem,
    x: Float[ArrayLike, "d"],
    gamma: Float[ArrayLike, "*T"],
    theta: Theta,
    eta: Float[ArrayLike, "*T"],
    rounds: int,
    *,
    M: int = 1,
    sampling: Sampling = "iid",
    noise: Noise = None,
    target: Float[ArrayLike, "d"] | None = None,
) -> Float[Array, "T1"]:
    """E||x_t - target||^2 for t = 1, ..., T + 1, exactly; the target is x* if left out."""
    found = moments(problem, x, gamma, theta, eta, rounds, M=M, sampling=sampling, noise=noise, about=target)
    return jnp.trace(found.second, axis1=-2, axis2=-1)


def _second_moment_map(problem: Problem, gamma: Gamma, theta: Theta, eta: ArrayLike, w: float) -> Float[Array, "dd dd"]:
    """The linear map of S to its next value, without the constant part, as a matrix on vec(S)."""
    H_i = client_hessians(problem, gamma, theta)
    H = jnp.einsum("n,nij->ij", problem.p, H_i)
    identity, eta = jnp.eye(len(H)), jnp.asarray(eta, jnp.float64)
    each = jnp.einsum("n,nij->ij", problem.p, jax.vmap(jnp.kron)(H_i, H_i))
    drift = jnp.kron(identity, H) + jnp.kron(H, identity)
    return jnp.kron(identity, identity) - eta * drift + eta**2 * ((1 - w) * jnp.kron(H, H) + w * each)


@float64
def contraction(
    problem: Problem, gamma: Gamma, theta: Theta, eta: Float[ArrayLike, ""], M: int = 1, sampling: Sampling = "iid"
) -> Float[Array, ""]:
    """The factor by which second moments shrink per round in the long run; stable in mean square iff below 1."""
    w, _ = sampling_weights(problem, M, sampling)
    return jnp.abs(jnp.linalg.eigvalsh(_second_moment_map(problem, gamma, theta, eta, w))).max()


@float64
def stationary_covariance(
    problem: Problem,
    gamma: Gamma,
    theta: Theta,
    eta: Float[ArrayLike, ""],
    *,
    M: int = 1,
    sampling: Sampling = "iid",
    noise: Noise = None,
) -> Float[Array, "d d"]:
    """Sigma = lim Cov(x_t) with constant rates, about the surrogate minimiser where the mean ends.

    E||x_inf - x*||^2 = tr Sigma + ||x*(gamma, Theta) - x*||^2: what Theorem 6 bounds, exactly.
    """
    rate = contraction(problem, gamma, theta, eta, M, sampling)
    if is_concrete(rate) and not rate < 1:
        raise ValueError(f"eta must keep the second moments stable, got a growth of {float(rate):.6g} per round")
    w, v = sampling_weights(problem, M, sampling)
    H_i = client_hessians(problem, gamma, theta)
    h_i = jnp.einsum("nij,nj->ni", H_i, surrogate_minimizer(problem, gamma, theta) - problem.c)
    N = w * jnp.einsum("n,ni,nj->ij", problem.p, h_i, h_i)
    N = N + jnp.einsum("n,nij->ij", v, message_noise(problem, gamma, theta, noise))
    L = _second_moment_map(problem, gamma, theta, eta, w)
    source = jnp.asarray(eta, jnp.float64) ** 2 * N.ravel()
    return jnp.linalg.solve(jnp.eye(len(L)) - L, source).reshape(N.shape)


@float64
def noise_at_minimizer(
    problem: Problem, gamma: Gamma, theta: Theta, *, M: int = 1, sampling: Sampling = "iid", noise: Noise = None
) -> Float[Array, ""]:
    """sigma_*^2 = E||q||^2 at the surrogate minimiser: (1/M)(E_i||Q_i A_i (x_gamma* - c_i)||^2 + E_i V_i) if iid."""
    w, v = sampling_weights(problem, M, sampling)
    gap = surrogate_minimizer(problem, gamma, theta) - problem.c
    h_i = jnp.einsum("nij,nj->ni", client_hessians(problem, gamma, theta), gap)
    V = jnp.trace(message_noise(problem, gamma, theta, noise), axis1=-2, axis2=-1)
    return w * (problem.p @ jnp.sum(h_i**2, -1)) + v @ V


class SurrogateRange(NamedTuple):
    """mu_gamma and L_gamma of Lemma ft_params: the surrogate Hessian of Theta_{1:K} lies between, if gamma <= 1/L."""

    mu: Float[Array, ""]
    L: Float[Array, ""]


@float64
def surrogate_range(problem: Problem, gamma: Gamma, K: int) -> SurrogateRange:
    """phi_{K,mu}(gamma) and phi_{K,L}(gamma)."""
    found, gamma = constants(problem), client_rate(gamma)
    if is_concrete(gamma, found) and not 0 <= float(gamma) * float(found.L) <= 1 + 1e-12:
        raise ValueError(f"gamma must be in [0, 1/L] = [0, {1 / float(found.L):.6g}], got {float(gamma)}")
    return SurrogateRange(phi(K, found.mu, gamma), phi(K, found.L, gamma))


@float64
def descent_bound(
    problem: Problem, x: Float[ArrayLike, "d"], gamma: Gamma, K: int, eta: Float[ArrayLike, ""], *,
    M: int = 1, sampling: Sampling = "iid", noise: Noise = None,
) -> Float[Array, ""]:  # fmt: skip
    """Lemma descent_step repaired: (1 - eta mu_gamma)||x - x_gamma*||^2 + 2 eta^2 sigma_*^2, eta <= 1/(2 L_gamma)."""
    return fixed_server_bound(problem, x, gamma, K, eta, None, M=M, sampling=sampling, noise=noise)


@float64
def fixed_server_bound(
    problem: Problem, x: Float[ArrayLike, "d"], gamma: Gamma, K: int, eta: Float[ArrayLike, ""], t: int | None, *,
    M: int = 1, sampling: Sampling = "iid", noise: Noise = None,
) -> Float[Array, ""]:  # fmt: skip
    """Theorem 6 repaired: (1 - eta mu_gamma)^t ||x_1 - x_gamma*||^2 + 2 eta sigma_*^2 / mu_gamma, eta <= 1/(2 L_gamma).

    Without t: one step of it, where the last term is only 2 eta^2 sigma_*^2.
    """
    theta, eta = (1.0,) * K, jnp.asarray(eta, jnp.float64)
    surrogate = surrogate_range(problem, gamma, K)
    if is_concrete(eta, surrogate) and not 0 <= float(eta) <= (1 + 1e-12) / (2 * float(surrogate.L)):
        raise ValueError(f"eta must be in [0, 1/(2 L_gamma)] = [0, {0.5 / float(surrogate.L):.6g}], got {float(eta)}")
    start = jnp.sum((jnp.asarray(x, jnp.float64) - surrogate_minimizer(problem, gamma, theta)) ** 2)
    variance = 2 * eta * noise_at_minimizer(problem, gamma, theta, M=M, sampling=sampling, noise=noise)
    if t is None:
        return (1 - eta * surrogate.mu) * start + eta * variance
    return (1 - eta * surrogate.mu) ** t * start + variance / surrogate.mu


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
    found, gamma = constants(problem), client_rate(gamma)
    bias = found.sigma_c * (1 + found.sigma_A / found.mu) * found.L / found.mu * jnp.expm1(gamma * K * found.L)
    return 2 * decaying_server_bound(problem, x, gamma, K, t, M=M, sampling=sampling, noise=noise, b=b) + 2 * bias**2


class Schedule(NamedTuple):
    """gamma_t and eta_t of Theorem 8 for t = 1, ..., T."""

    gamma: Float[Array, "T"]
    eta: Float[Array, "T"]


@float64
def decaying_schedule(problem: Problem, K: int, rounds: int, *, slower: bool = False) -> Schedule:
    """gamma_t = min{1/(L(b+t)), ln 2/(K mu)}, eta_t = 3/(mu_t (b+t)), b = 3 kappa^2; `slower`: gamma_t = 1/(K L (b+t)).

    The slower one is a repair: no constant of its bound grows with K.
    """
    found = constants(problem)
    time = 3 * (found.L / found.mu) ** 2 + jnp.arange(1.0, rounds + 1)
    cap = jnp.log(2.0) / (K * found.mu)
    gamma = 1 / (K * found.L * time) if slower else jnp.minimum(1 / (found.L * time), cap)
    return Schedule(gamma, 3 / (phi(K, found.mu, gamma) * time))


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
    found = constants(problem)
    kappa = found.L / found.mu
    b = 3 * kappa**2
    w, v = sampling_weights(problem, M, sampling)
    G2 = jnp.trace(gradient_noise(problem, noise), axis1=-2, axis2=-1).max()
    variance = 27 / 2 * kappa**2 * found.sigma_c**2 * w + (12 if slower else 18) * G2 / (found.mu**2 * K) * v.sum()
    first = decaying_schedule(problem, K, 1, slower=slower).gamma[0]
    start = jnp.sum((jnp.asarray(x, jnp.float64) - surrogate_minimizer(problem, first, (1.0,) * K)) ** 2)
    nu = jnp.maximum(variance, (b + 1) * start)
    m = 1 if slower else K - 1
    return (2 * nu + m**2 * found.sigma_c**2 / 12) / (b + jnp.asarray(t, jnp.float64))
