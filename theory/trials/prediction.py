"""Exact predictions beside what lur really does: E||x_t - x*||^2, the paper's bound, and a simulation's interval."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import lur
import theory
from theory.convergence import fixed_server_bound
from theory.moments import AnyProblem, Noise, Sampling, gradient_noise, mean_square_error, sampling_weights
from theory.precision import float64
from theory.problems import Problem, StochasticProblem
from theory.trials.numeric import quadratic_loss


class Setting(NamedTuple):
    """A run: rates, weights, how many clients and examples, drawn how, for how many rounds."""

    gamma: float
    eta: float
    theta: Sequence[float]
    M: int = 1
    B: int = 1
    rounds: int = 20
    sampling: Sampling = "iid"


class Interval(NamedTuple):
    """A mean and its 99% confidence interval, for t = 1, ..., T + 1."""

    mean: Float[np.ndarray, "T1"]
    low: Float[np.ndarray, "T1"]
    high: Float[np.ndarray, "T1"]


@float64
def exact(problem: AnyProblem, x: Any, setting: Setting, noise: Noise = None) -> Float[Array, "T1"]:
    """E||x_t - x*||^2 by `theory.moments`."""
    gamma, eta, theta, M, B, rounds, sampling = setting
    return mean_square_error(problem, x, gamma, theta, eta, rounds, M=M, B=B, sampling=sampling, noise=noise)


@float64
def bound(problem: AnyProblem, x: Any, setting: Setting, noise: Noise = None) -> Float[Array, "T1"]:
    r"""The paper's bound on E||x_t - x*||^2 with fixed rates: Theorem 6 (repaired) on the way to x*(gamma, Theta) and
    Theorem 4 from there, as :math:`2a + 2b^2`. It needs Theta_{1:K}, noise of additive kind, small gamma and eta."""
    if isinstance(problem, StochasticProblem):
        raise ValueError("Assumption 3 excludes examples of different A_z")
    K = len(setting.theta)
    if tuple(setting.theta) != (1.0,) * K:
        raise ValueError("Theorem 6 is about Theta_{1:K}")
    options: dict[str, Any] = {"M": setting.M, "sampling": setting.sampling}
    C = gradient_noise(problem, noise) / setting.B
    t = jnp.arange(setting.rounds + 1.0)
    before = fixed_server_bound(problem, x, setting.gamma, K, setting.eta, t, noise=C, **options)
    return 2 * before + 2 * theory.fedavg_distance_bound(problem, setting.gamma, K) ** 2


@float64
def squared_errors(
    problem: AnyProblem, x: Any, setting: Setting, runs: int, *, noise: Noise = None, seed: int = 0
) -> Float[Array, "runs T1"]:
    """||x_t - x*||^2 of so many independent runs of lur's LocalUpdate."""
    if isinstance(runs, bool) or int(runs) != runs or runs < 2:
        raise ValueError(f"runs must be an integer >= 2, got {runs!r}")
    sampling_weights(problem, setting.M, setting.sampling)
    if isinstance(problem, StochasticProblem):
        examples, spread = problem, jnp.zeros_like(problem.A_z[:, 0])
        target = theory.minimizer(problem.problem)
    else:
        examples = StochasticProblem(problem.A[:, None], problem.c[:, None], None, problem.p)  # pyright: ignore
        # noise xi of a gradient A (x - c) is that of an example with c - A^{-1} xi
        spread = jnp.linalg.solve(problem.A, _root(gradient_noise(problem, noise)))
        target = theory.minimizer(problem)
    rates = jnp.float64(setting.gamma), jnp.float64(setting.eta)
    still = setting._replace(gamma=0.0, eta=0.0, theta=tuple(setting.theta))  # one program for all rates
    return _simulate(examples, spread, target, jnp.asarray(x, jnp.float64), rates, still, runs, jax.random.key(seed))


def _root(C: Float[Array, "n d d"]) -> Float[Array, "n d d"]:
    values, vectors = jnp.linalg.eigh(C)
    return vectors * jnp.sqrt(jnp.maximum(values, 0.0))[..., None, :]


@partial(jax.jit, static_argnames=("setting", "runs"))
def _simulate(examples, spread, target, x, rates, setting: Setting, runs: int, key):
    n, _, d = examples.c_z.shape
    K, M, B = len(setting.theta), n if setting.sampling == "full" else setting.M, setting.B
    algorithm = lur.local_update(quadratic_loss, setting.theta)

    def one_round(state, key):
        who, which, xi = jax.random.split(key, 3)
        if setting.sampling == "full":
            clients, weights = jnp.arange(n), examples.p
        else:
            replace = setting.sampling == "iid"
            clients, weights = jax.random.choice(who, n, (M,), replace=replace, p=examples.p if replace else None), None
        logits = jnp.log(examples.p_z[clients])[:, None, None]
        z = jax.random.categorical(which, logits, shape=(M, K, B))
        A, c = examples.A_z[clients[:, None, None], z], examples.c_z[clients[:, None, None], z]
        shift = jnp.einsum("mij,mkbj->mkbi", spread[clients], jax.random.normal(xi, (M, K, B, d)))
        state, _ = algorithm.round(state, (A, c - shift), weights)
        return state, jnp.sum((state.params - target) ** 2)

    def one_run(key):
        state = algorithm.init(x, *rates)
        _, later = jax.lax.scan(one_round, state, jax.random.split(key, setting.rounds))
        return jnp.concatenate([jnp.sum((x - target) ** 2)[None], later])

    return jax.lax.map(one_run, jax.random.split(key, runs), batch_size=1000)


def interval(errors: Float[Array, "runs T1"]) -> Interval:
    """The mean over runs and Student's 99% confidence interval."""
    from scipy.stats import t

    seen, runs = np.asarray(errors), len(errors)
    mean, half = seen.mean(0), t.ppf(0.995, runs - 1) * seen.std(0, ddof=1) / np.sqrt(runs)
    return Interval(mean, mean - half, mean + half)


@float64
def random_problem(seed: int, n: int = 5, d: int = 3, m: int | None = None) -> AnyProblem:
    """n clients (of m examples each) with eigenvalues in [1/2, 2] and normal minimisers, equally likely."""
    rng = np.random.default_rng([seed, 7])
    shape = (n, d) if m is None else (n, m, d)
    frames, _ = np.linalg.qr(rng.normal(size=(*shape, d)))
    A = np.einsum("...ik,...k,...jk->...ij", frames, rng.uniform(0.5, 2.0, shape), frames)
    A, c = jnp.asarray((A + A.swapaxes(-1, -2)) / 2), jnp.asarray(rng.normal(size=shape))
    return Problem(A, c) if m is None else StochasticProblem(A, c)
