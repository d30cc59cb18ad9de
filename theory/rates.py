r"""The best rates and weights for a given problem: those with the least exact :math:`E\|x_{T+1} - x^*\|^2`.

The exact error is a smooth function of gamma, eta and Theta (`theory.moments`), so it is minimised by its gradient.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from theory.moments import AnyProblem, Noise, Sampling, mean_square_error
from theory.precision import float64
from theory.problems import StochasticProblem, constants
from theory.surrogate import Theta, weights


class BestRates(NamedTuple):
    """The best rates and weights.

    Attributes:
      gamma: client learning rate.
      eta: server learning rate.
      theta: the weights; they sum to K, unless they were given.
      error: their exact E||x_{T+1} - x*||^2.
    """

    gamma: float
    eta: float
    theta: Float[np.ndarray, "K"]
    error: float


class _Run(NamedTuple):
    """The static part of a run: rounds, clients per round, examples per mini-batch, sampling of clients."""

    T: int
    M: int
    B: int
    sampling: Sampling


@float64
def optimal_rates(
    problem: AnyProblem,
    T: int,
    M: int = 1,
    B: int = 1,
    *,
    K: int = 5,
    x: Float[ArrayLike, "d"] | None = None,
    sampling: Sampling = "iid",
    noise: Noise = None,
    theta: Theta | None = None,
    largest_gamma: float | None = None,
    starts: int = 5,
) -> BestRates:
    """Returns the gamma, eta and Theta that minimise the exact E||x_{T+1} - x*||^2 after T rounds.

    By L-BFGS-B on the logarithm of the error, with its gradient through the recursion of `theory.moments`, from the
    best cells of a coarse grid. The error is not convex: the result is a local minimum, no worse than any start.

    Args:
      problem: the clients.
      T: the number of rounds.
      M: clients per round.
      B: examples per mini-batch.
      K: the number of weights.
      x: the initial model, 0 by default.
      sampling: how the clients of a round are drawn.
      noise: covariance of one example's gradient, for a `Problem`.
      theta: weights to keep; only the rates are optimised then.
      largest_gamma: an upper limit for gamma. Without it the answer may have gamma > 2/L, where local steps diverge
        and the weights exploit that for this particular problem.
      starts: the number of cells to start from; the grid has Theta_1, Theta_K and Theta_{1:K} unless theta is given.
    """
    from scipy.optimize import minimize

    clients = problem.problem if isinstance(problem, StochasticProblem) else problem
    L = float(constants(clients).L)
    given = None if theta is None else np.asarray(weights(theta))
    K = K if given is None else len(given)
    setting = (*_arguments(problem, x, noise), L, _Run(T, M, B, sampling))

    # unknowns: L gamma, and all L eta theta_k (one factor too many is dropped), or L eta sum(theta) if theta is given
    shapes = [np.eye(K)[0], np.eye(K)[K - 1], np.full(K, 1 / K)] if given is None else [given / given.sum()]
    expand = np.eye(K + 1) if given is None else np.array([[1, *np.zeros(K)], [0, *shapes[0]]]).T
    rates = [(g, e) for g in np.geomspace(0.01, 1.5, 7) for e in np.geomspace(0.01, 2.0, 9)]
    top = np.inf if largest_gamma is None else largest_gamma * L
    cells = np.array([[min(g, top), *(e * shape if given is None else [e])] for shape in shapes for g, e in rates])
    errors = np.asarray(_log_errors(*setting, jnp.asarray(cells @ expand.T)))
    errors = np.where(np.isfinite(errors), errors, np.inf)
    best_of_shapes = [int(rows[errors[rows].argmin()]) for rows in np.split(np.arange(len(cells)), len(shapes))]
    chosen = list(dict.fromkeys([*best_of_shapes, *np.argsort(errors).tolist()]))[: max(starts, len(shapes))]

    def objective(free):
        value, slope = _log_error_and_slope(*setting, jnp.asarray(expand @ free))
        value = float(value)
        return (value if np.isfinite(value) else 1e300), np.nan_to_num(np.asarray(slope)) @ expand

    best, least = cells[chosen[0]], float(errors[chosen[0]])
    for cell in chosen:
        result = minimize(
            objective, cells[cell], jac=True, method="L-BFGS-B", bounds=[(0, top)] + [(0, None)] * (cells.shape[1] - 1),
            options={"maxiter": 500, "ftol": 1e-13, "gtol": 1e-9},
        )  # fmt: skip
        if result.fun < least:
            best, least = result.x, float(result.fun)
    gamma, *both = expand @ best / L
    total = K if given is None else given.sum()
    eta = sum(both) / total
    return BestRates(float(gamma), float(eta), np.array(both) / eta if eta else np.ones(K), float(np.exp(least)))


@float64
def grid_errors(
    problem: AnyProblem,
    T: int,
    M: int,
    B: int,
    gammas: Float[ArrayLike, "g"],
    etas: Float[ArrayLike, "e"],
    theta: Theta,
    *,
    x: Float[ArrayLike, "d"] | None = None,
    sampling: Sampling = "iid",
    noise: Noise = None,
) -> Float[Array, "g e"]:
    """Returns the exact E||x_{T+1} - x*||^2 in every cell of a grid of rates."""
    setting = (*_arguments(problem, x, noise), 1.0, _Run(T, M, B, sampling))
    both = np.asarray(etas)[:, None] * np.asarray(weights(theta))
    cells = np.array([[g, *row] for g in np.asarray(gammas) for row in both])
    return jnp.exp(_log_errors(*setting, jnp.asarray(cells))).reshape(np.size(gammas), np.size(etas))


def _arguments(problem: AnyProblem, x: Any, noise: Noise) -> tuple[Any, ...]:
    d = (problem.c_z if isinstance(problem, StochasticProblem) else problem.c).shape[-1]
    start = jnp.zeros(d) if x is None else jnp.asarray(x, jnp.float64)
    return problem, start, None if noise is None else jnp.asarray(noise, jnp.float64)


def _log_error(problem, x, noise, L, run: _Run, unknowns):
    """log E||x_{T+1} - x*||^2 as a function of L gamma and L eta theta_k: the server's rate is in the weights."""
    gamma, both = unknowns[0] / L, unknowns[1:] / L
    T, M, B, sampling = run
    return jnp.log(mean_square_error(problem, x, gamma, both, 1.0, T, M=M, B=B, sampling=sampling, noise=noise)[-1])


@partial(jax.jit, static_argnames="run")
def _log_error_and_slope(problem, x, noise, L, run: _Run, unknowns):
    return jax.value_and_grad(_log_error, argnums=5)(problem, x, noise, L, run, unknowns)


@partial(jax.jit, static_argnames="run")
def _log_errors(problem, x, noise, L, run: _Run, unknowns):
    return jax.vmap(lambda u: _log_error(problem, x, noise, L, run, u))(unknowns)
