r"""Exact first and second moments of LocalUpdate's iterates on quadratics, round by round and in the limit.

With updates :math:`q^i = H_i(x - c_i) + \text{noise}`, :math:`H_i = Q_i(\gamma, \Theta) A_i`, the server step
:math:`x_{t+1} = x_t - \eta_t q_t` maps the mean m and the second moment S of :math:`e_t = x_t - r`, about any fixed
point r, linearly: with :math:`d_i = r - c_i`, :math:`H = E[H_i]`, :math:`h = E[H_i d_i]`,

.. math::
    m^+ = m - \eta(Hm + h), \qquad
    S^+ = S - \eta(HS + SH + hm^\top + mh^\top) + \eta^2 E[qq^\top], \\
    E[qq^\top] = (1 - w)\,E[\bar q\bar q^\top] + w\,E_i[\bar q_i\bar q_i^\top] + \textstyle\sum_i v_i C_i^q,

where q_i-bar and q-bar are without noise. Client sampling only enters through w and v: w = 1/M for M clients drawn iid,
(n - M) / (M (n - 1)) without replacement from a uniform P, 0 when all take part; v_i = p_i / M, or p_i^2.

Mini-batches enter through :math:`C_i^q`, the covariance of an update given x: constant if gradient noise is additive
(`Problem` with `noise`), a function of m and S if examples differ in A_z (`StochasticProblem`).
"""

from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from theory.affine import affine
from theory.precision import float64
from theory.problems import Problem, StochasticProblem, check_symmetric, is_concrete
from theory.surrogate import Gamma, Theta, client_hessians, client_rate, minimizer, surrogate_minimizer, weights

Sampling = Literal["iid", "without replacement", "full"]
Noise: TypeAlias = Float[ArrayLike, "n d d"] | Float[ArrayLike, "d d"] | None
AnyProblem = Problem | StochasticProblem


class Moments(NamedTuple):
    """Moments of x_t about a point r, for one t or for t = 1, 2, ... along the first axis.

    Attributes:
      mean: E[x_t - r].
      second: E[(x_t - r)(x_t - r)^T].
    """

    mean: Float[Array, "*t d"]
    second: Float[Array, "*t d d"]

    @property
    def covariance(self) -> Float[Array, "*t d d"]:
        """Cov(x_t), which does not depend on r."""
        return self.second - self.mean[..., :, None] * self.mean[..., None, :]


def gradient_noise(problem: Problem, noise: Noise) -> Float[Array, "n d d"]:
    """Returns the covariances of one example's gradient, one per client; `noise` is one for all, one each, or None."""
    n, d, _ = problem.A.shape
    if noise is None:
        return jnp.zeros((n, d, d))
    array = jnp.asarray(noise, jnp.float64)
    if array.shape not in ((d, d), (n, d, d)):
        raise ValueError(f"noise must be covariances of shape {(n, d, d)} or {(d, d)}, got {array.shape}")
    check_symmetric("noise", array)
    return jnp.broadcast_to(array, (n, d, d))


def sampling_weights(problem: AnyProblem, M: int, sampling: Sampling) -> tuple[float, Float[Array, "n"]]:
    """Returns the weight w of the variance between clients and the weights v_i of the clients' noise."""
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
        raise ValueError(f"M must be at most the number of clients, {n}, got {M}")
    if is_concrete(problem.p) and np.ptp(np.asarray(problem.p)) > 1e-12:
        raise ValueError("sampling without replacement needs a uniform p, or the mean update is biased (line 341)")
    return (n - M) / (M * max(n - 1, 1)), problem.p / M


@float64
def message_noise(problem: Problem, gamma: Gamma, theta: Theta, noise: Noise = None) -> Float[Array, "n d d"]:
    """C_i^q = sum_k W_k C_i W_k, the covariance of q^i that gradient noise of covariance C_i causes.

    W_k = theta_k I - gamma A_i sum_{j>k} theta_j (I - gamma A_i)^{j-k-1}, for Theta_{1:K} just (I - gamma A_i)^{K-k}:
    additive noise, the only kind that Assumption 3 allows for quadratics.
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
def message_covariance(
    stochastic: StochasticProblem, x: Float[ArrayLike, "d"], gamma: Gamma, theta: Theta, B: int = 1
) -> Float[Array, "n d d"]:
    """Returns the exact Cov(q^i) of every client at a model x, for any examples: Assumption 3 is not needed."""
    x = jnp.asarray(x, jnp.float64)
    at = Moments(jnp.zeros_like(x), jnp.zeros((len(x), len(x))))
    return _example_noise(stochastic, stochastic.problem, at, x, client_rate(gamma), weights(theta), B)


def _example_noise(stochastic, problem, state: Moments, about, gamma, theta, B: int) -> Float[Array, "n d d"]:
    r"""E[Cov(q^i | x)] over x of given moments.

    By the second moment of :math:`u = (y - c_i, \sum_{j<k} \theta_j g_j, 1)` along the local loop. A gradient is
    :math:`g = R_z u`, :math:`R_z = (A_z, 0, -A_z(c_z - c_i))`, a step adds :math:`E_k g` to u with
    :math:`E_k = (-\gamma I, \theta_k I, 0)`, and a mini-batch is the mean of B independent :math:`R_z`.
    """
    d = about.size
    mean, second = state

    def of_client(A_z, c_z, p_z, c):
        pull = jnp.einsum("mij,mj->mi", A_z, c_z - c)
        R_z = jnp.concatenate([A_z, jnp.zeros_like(A_z), -pull[..., None]], axis=-1)
        R = jnp.einsum("m,mij->ij", p_z, R_z)

        def step(carry, theta_k):
            U, W = carry  # second moments, with mini-batches and with their means only
            E_k = jnp.concatenate([-gamma * jnp.eye(d), theta_k * jnp.eye(d), jnp.zeros((1, d))])
            G = jnp.eye(2 * d + 1) + E_k @ R
            spread = (jnp.einsum("m,mij,jk,mlk->il", p_z, R_z, U, R_z) - R @ U @ R.T) / B
            return (G @ U @ G.T + E_k @ spread @ E_k.T, G @ W @ G.T), None

        gap = about - c
        cross = jnp.outer(mean, gap)
        start = jnp.zeros((2 * d + 1, 2 * d + 1))
        start = start.at[:d, :d].set(second + cross + cross.T + jnp.outer(gap, gap))
        start = start.at[:d, -1].set(mean + gap).at[-1, :d].set(mean + gap).at[-1, -1].set(1.0)
        U, W = jax.lax.scan(step, (start, start), theta)[0]
        return (U - W)[d : 2 * d, d : 2 * d]

    return jax.vmap(of_client)(stochastic.A_z, stochastic.c_z, stochastic.p_z, problem.c)


def _round(problem: AnyProblem, theta: Theta, about, M: int, B: int, sampling: Sampling, noise: Noise):
    """One round as a function (moments about a point, gamma, eta) -> moments."""
    if isinstance(B, bool) or int(B) != B or not B >= 1:
        raise ValueError(f"B must be an integer >= 1, got {B!r}")
    w, v = sampling_weights(problem, M, sampling)
    stochastic = problem if isinstance(problem, StochasticProblem) else None
    clients = problem.problem if isinstance(problem, StochasticProblem) else problem
    if stochastic is not None and noise is not None:
        raise ValueError("noise must be None for a StochasticProblem, whose examples are the noise")
    C = gradient_noise(clients, noise) / B
    gap, p = about - clients.c, clients.p

    def one_round(state: Moments, gamma, eta) -> Moments:
        H_i = client_hessians(clients, gamma, theta)
        h_i = jnp.einsum("nij,nj->ni", H_i, gap)
        H, h = jnp.einsum("n,nij->ij", p, H_i), p @ h_i
        mean, second = state
        # not E[q e^T] and its transpose: the asymmetric part of a rounding error would grow
        drift = H @ second + second @ H + jnp.outer(h, mean) + jnp.outer(mean, h)
        together = _square(H, h, state)
        each = jnp.einsum("n,nij->ij", p, jax.vmap(_square, (0, 0, None))(H_i, h_i, state))
        if stochastic is None:
            noise_i = message_noise(clients, gamma, theta, C)
        else:
            noise_i = _example_noise(stochastic, clients, state, about, client_rate(gamma), weights(theta), B)
        square = (1 - w) * together + w * each + jnp.einsum("n,nij->ij", v, noise_i)
        return Moments(mean - eta * (H @ mean + h), second - eta * drift + eta**2 * square)

    return one_round


def _square(H: Float[Array, "d d"], h: Float[Array, "d"], state: Moments) -> Float[Array, "d d"]:
    """E[(H e + h)(H e + h)^T]."""
    cross = jnp.outer(H @ state.mean, h)
    return H @ state.second @ H + cross + cross.T + jnp.outer(h, h)


def _means(problem: AnyProblem) -> Problem:
    return problem.problem if isinstance(problem, StochasticProblem) else problem


@float64
def moments(
    problem: AnyProblem,
    x: Float[ArrayLike, "d"],
    gamma: Float[ArrayLike, "*T"],
    theta: Theta,
    eta: Float[ArrayLike, "*T"],
    rounds: int,
    *,
    M: int = 1,
    B: int = 1,
    sampling: Sampling = "iid",
    noise: Noise = None,
    about: Float[ArrayLike, "d"] | None = None,
) -> Moments:
    """Returns the exact moments of x_1, ..., x_{T+1}.

    Args:
      problem: the clients.
      x: the initial model x_1.
      gamma: client learning rate, constant or one per round.
      theta: the weights Theta.
      eta: server learning rate, constant or one per round.
      rounds: the number of rounds T.
      M: clients per round.
      B: examples per mini-batch.
      sampling: how the clients of a round are drawn.
      noise: covariance of one example's gradient, for a `Problem`.
      about: the point that the moments are about, by default the true minimiser x*.
    """
    about = minimizer(_means(problem)) if about is None else jnp.asarray(about, jnp.float64)
    one_round = _round(problem, theta, about, M, B, sampling, noise)
    rates = [jnp.broadcast_to(jnp.asarray(rate, jnp.float64), (rounds,)) for rate in (gamma, eta)]

    def step(state, rate):
        after = one_round(state, *rate)
        return after, after

    e = jnp.asarray(x, jnp.float64) - about
    start = Moments(e, jnp.outer(e, e))
    _, later = jax.lax.scan(step, start, tuple(rates))
    return Moments(*(jnp.concatenate([first[None], rest]) for first, rest in zip(start, later, strict=True)))


@float64
def mean_square_error(
    problem: AnyProblem,
    x: Float[ArrayLike, "d"],
    gamma: Float[ArrayLike, "*T"],
    theta: Theta,
    eta: Float[ArrayLike, "*T"],
    rounds: int,
    *,
    M: int = 1,
    B: int = 1,
    sampling: Sampling = "iid",
    noise: Noise = None,
    target: Float[ArrayLike, "d"] | None = None,
) -> Float[Array, "T1"]:
    """Returns the exact E||x_t - target||^2 for t = 1, ..., T + 1; the target is x* by default. See `moments`."""
    about = moments(problem, x, gamma, theta, eta, rounds, M=M, B=B, sampling=sampling, noise=noise, about=target)
    return jnp.trace(about.second, axis1=-2, axis2=-1)


def _second_moment_map(problem, about, gamma, theta, eta, M, B, sampling, noise):
    """The map of the second moment S about a point, where the mean is, to its next value, on vec(S)."""
    one_round = _round(problem, theta, about, M, B, sampling, noise)
    d, gamma, eta = about.size, client_rate(gamma), jnp.asarray(eta, jnp.float64)
    mean = jnp.zeros(d)
    return affine(lambda s: one_round(Moments(mean, s.reshape(d, d)), gamma, eta).second.ravel(), d * d)


def _growth(matrix: Float[Array, "dd dd"]) -> Float[Array, ""]:
    return jnp.abs(jnp.linalg.eigvals(matrix)).max()


@float64
def contraction(
    problem: AnyProblem,
    gamma: Gamma,
    theta: Theta,
    eta: Float[ArrayLike, ""],
    M: int = 1,
    sampling: Sampling = "iid",
    B: int = 1,
) -> Float[Array, ""]:
    """Returns the factor by which second moments change per round in the long run; stable iff it is below 1."""
    origin = jnp.zeros(_means(problem).c.shape[1])
    return _growth(_second_moment_map(problem, origin, gamma, theta, eta, M, B, sampling, None).matrix)


@float64
def stationary_covariance(
    problem: AnyProblem,
    gamma: Gamma,
    theta: Theta,
    eta: Float[ArrayLike, ""],
    *,
    M: int = 1,
    B: int = 1,
    sampling: Sampling = "iid",
    noise: Noise = None,
) -> Float[Array, "d d"]:
    """Returns Sigma = lim Cov(x_t) with constant rates, by a linear solve; the mean ends at the surrogate minimiser.

    E||x_inf - x*||^2 = tr Sigma + ||x*(gamma, Theta) - x*||^2 is exactly what Theorem 6 bounds.
    """
    about = surrogate_minimizer(_means(problem), gamma, theta)
    L, source = _second_moment_map(problem, about, gamma, theta, eta, M, B, sampling, noise)
    if is_concrete(L):
        rate = float(_growth(L))
        if not rate < 1:
            raise ValueError(f"eta must keep the second moments stable, got a growth of {rate:.6g} per round")
    d = about.size
    return jnp.linalg.solve(jnp.eye(d * d) - L, source).reshape(d, d)


@float64
def stationary_mean_square_error(
    problem: AnyProblem,
    gamma: Gamma,
    theta: Theta,
    eta: Float[ArrayLike, ""],
    *,
    M: int = 1,
    B: int = 1,
    sampling: Sampling = "iid",
    noise: Noise = None,
) -> Float[Array, ""]:
    """Returns lim E||x_t - x*||^2 with constant rates: the variance plus the squared bias."""
    Sigma = stationary_covariance(problem, gamma, theta, eta, M=M, B=B, sampling=sampling, noise=noise)
    clients = _means(problem)
    bias = surrogate_minimizer(clients, gamma, theta) - minimizer(clients)
    return jnp.trace(Sigma) + bias @ bias


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
