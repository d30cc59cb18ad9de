"""E||x_t - x*||^2 of a run on quadratics: exactly, bounded as in the paper, and simulated with an implementation."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from theory.convergence import fixed_server_bound
from theory.distance import fedavg_distance_bound
from theory.moments import AnyProblem, Noise, Sampling, gradient_noise, mean_square_error, sampling_weights
from theory.precision import float64
from theory.problems import Problem, StochasticProblem
from theory.surrogate import minimizer
from theory.trials.experiments import quadratic_loss
from theory.trials.implementation import REFERENCE, Implementation


class Setting(NamedTuple):
    """A run.

    Attributes:
      gamma: client learning rate.
      eta: server learning rate.
      theta: the weights Theta.
      M: clients per round.
      B: examples per mini-batch.
      rounds: number of rounds T.
      sampling: how the clients of a round are drawn.
    """

    gamma: float
    eta: float
    theta: Sequence[float]
    M: int = 1
    B: int = 1
    rounds: int = 20
    sampling: Sampling = "iid"


class Interval(NamedTuple):
    """A mean and its 99% confidence interval, for t = 1, ..., T + 1.

    Attributes:
      mean: the mean over runs.
      low: the lower end of the interval.
      high: the upper end.
    """

    mean: Float[np.ndarray, "T1"]
    low: Float[np.ndarray, "T1"]
    high: Float[np.ndarray, "T1"]


@float64
def exact(problem: AnyProblem, x: Any, setting: Setting, noise: Noise = None) -> Float[Array, "T1"]:
    """Returns E||x_t - x*||^2 by the recursion of `theory.moments`."""
    gamma, eta, theta, M, B, rounds, sampling = setting
    return mean_square_error(problem, x, gamma, theta, eta, rounds, M=M, B=B, sampling=sampling, noise=noise)


@float64
def bound(problem: AnyProblem, x: Any, setting: Setting, noise: Noise = None) -> Float[Array, "T1"]:
    r"""The paper's bound on E||x_t - x*||^2 with fixed rates, :math:`2a + 2b^2`.

    a is the repaired Theorem 6, on the distance from x*(gamma, Theta), and b Theorem 4, on the distance of that from
    x*. It needs Theta_{1:K}, additive gradient noise, and small gamma and eta.
    """
    if isinstance(problem, StochasticProblem):
        raise ValueError("Assumption 3 excludes examples of different A_z")
    K = len(setting.theta)
    if tuple(setting.theta) != (1.0,) * K:
        raise ValueError("Theorem 6 is about Theta_{1:K}")
    options: dict[str, Any] = {"M": setting.M, "sampling": setting.sampling}
    C = gradient_noise(problem, noise) / setting.B
    t = jnp.arange(setting.rounds + 1.0)
    before = fixed_server_bound(problem, x, setting.gamma, K, setting.eta, t, noise=C, **options)
    return 2 * before + 2 * fedavg_distance_bound(problem, setting.gamma, K) ** 2


@float64
def squared_errors(
    problem: AnyProblem,
    x: Any,
    setting: Setting,
    runs: int,
    *,
    noise: Noise = None,
    seed: int = 0,
    implementation: Implementation = REFERENCE,
) -> Float[Array, "runs T1"]:
    """Simulates ||x_t - x*||^2 of independent runs of LocalUpdate.

    Args:
      problem: the clients.
      x: x_1.
      setting: the run.
      runs: the number of runs.
      noise: covariance of the gradient noise of one example, for a `Problem`.
      seed: seed of the simulation.
      implementation: whose LocalUpdate is run.
    """
    if isinstance(runs, bool) or int(runs) != runs or runs < 2:
        raise ValueError(f"runs must be an integer >= 2, got {runs!r}")
    sampling_weights(problem, setting.M, setting.sampling)
    if isinstance(problem, StochasticProblem):
        examples, spread = problem, jnp.zeros_like(problem.A_z[:, 0])
        target = minimizer(problem.problem)
    else:
        examples = StochasticProblem(problem.A[:, None], problem.c[:, None], None, problem.p)  # pyright: ignore
        # noise xi of a gradient A (x - c) is that of an example with c - A^{-1} xi
        spread = jnp.linalg.solve(problem.A, _root(gradient_noise(problem, noise)))
        target = minimizer(problem)
    rates = jnp.float64(setting.gamma), jnp.float64(setting.eta)
    static = setting._replace(gamma=0.0, eta=0.0, theta=tuple(setting.theta))  # one program for all rates
    x, key = jnp.asarray(x, jnp.float64), jax.random.key(seed)
    return _simulate(examples, spread, target, x, rates, static, runs, key, implementation)


def _root(C: Float[Array, "n d d"]) -> Float[Array, "n d d"]:
    values, vectors = jnp.linalg.eigh(C)
    return vectors * jnp.sqrt(jnp.maximum(values, 0.0))[..., None, :]


@partial(jax.jit, static_argnames=("setting", "runs", "implementation"))
def _simulate(examples, spread, target, x, rates, setting: Setting, runs: int, key, implementation):
    n, _, d = examples.c_z.shape
    K, M, B = len(setting.theta), n if setting.sampling == "full" else setting.M, setting.B
    method = implementation.local_update(quadratic_loss, setting.theta)

    def one_round(state, key):
        client_key, example_key, noise_key = jax.random.split(key, 3)
        if setting.sampling == "full":
            clients, weights = jnp.arange(n), examples.p
        else:
            replace = setting.sampling == "iid"
            p = examples.p if replace else None
            clients, weights = jax.random.choice(client_key, n, (M,), replace=replace, p=p), None
        logits = jnp.log(examples.p_z[clients])[:, None, None]
        z = jax.random.categorical(example_key, logits, shape=(M, K, B))
        A, c = examples.A_z[clients[:, None, None], z], examples.c_z[clients[:, None, None], z]
        shift = jnp.einsum("mij,mkbj->mkbi", spread[clients], jax.random.normal(noise_key, (M, K, B, d)))
        state, _ = method.round(state, (A, c - shift), weights)
        return state, jnp.sum((state.params - target) ** 2)

    def one_run(key):
        state = method.init(x, *rates)
        _, later = jax.lax.scan(one_round, state, jax.random.split(key, setting.rounds))
        return jnp.concatenate([jnp.sum((x - target) ** 2)[None], later])

    return jax.lax.map(one_run, jax.random.split(key, runs), batch_size=1000)


def interval(errors: Float[Array, "runs T1"]) -> Interval:
    """Returns the mean over runs and Student's 99% confidence interval."""
    from scipy.stats import t

    values, runs = np.asarray(errors), len(errors)
    mean, half = values.mean(0), t.ppf(0.995, runs - 1) * values.std(0, ddof=1) / np.sqrt(runs)
    return Interval(mean, mean - half, mean + half)


@float64
def random_problem(seed: int, n: int = 5, d: int = 3, m: int | None = None) -> AnyProblem:
    """Returns n equally likely clients (with m examples each) with eigenvalues in [1/2, 2] and normal minimisers."""
    rng = np.random.default_rng([seed, 7])
    shape = (n, d) if m is None else (n, m, d)
    frames, _ = np.linalg.qr(rng.normal(size=(*shape, d)))
    A = np.einsum("...ik,...k,...jk->...ij", frames, rng.uniform(0.5, 2.0, shape), frames)
    A, c = jnp.asarray((A + A.swapaxes(-1, -2)) / 2), jnp.asarray(rng.normal(size=shape))
    return Problem(A, c) if m is None else StochasticProblem(A, c)
