"""The numbers that the explorer must show at a setting, from `theory` alone."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import theory
from theory import convergence, moments, spectrum

MAX_ROUNDS = 1000
MAX_WEIGHTS = 33
START = np.array([-1.9, 1.6])
compiled = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})  # each runs only a few times


@compiled
@jax.vmap
def _closed_forms(A, c, theta, gamma):
    """Return the closed forms of many settings that do not depend on the run; they may be undefined."""
    problem = theory.Problem(A, c)
    mu, L, sigma_A, sigma_c = theory.constants(problem)
    low, high = spectrum.client_hessian_bounds(gamma, theta, mu, L)
    return {
        "mu": mu, "L": L, "sigma_A": sigma_A, "sigma_c": sigma_c, "f": jnp.linalg.eigvalsh(A.mean(0)),
        "surrogate": jnp.linalg.eigvalsh(theory.surrogate_hessian(problem, gamma, theta)),
        "start": theory.minimizer(problem), "end": theory.surrogate_minimizer(problem, gamma, theta),
        "distance": theory.minimizer_distance(problem, gamma, theta),
        "distanceBound": theory.minimizer_distance_bound(problem, gamma, theta),
        "sharperBound": theory.sharper_distance_bound(problem, gamma, theta),
        "least": spectrum.distortion_eigenvalue(L, gamma, theta), "conditionBound": high / low,
    }  # fmt: skip


@partial(compiled, static_argnames=("M", "sampling"))
def _errors(A, c, theta, gamma, eta, noise, *, M, sampling):
    """Return E||x_t - x*||^2, the growth of second moments, and the limit, for many settings with one M."""

    def at_setting(A, c, theta, gamma, eta, noise):
        problem, C = theory.Problem(A, c), noise * jnp.eye(2)
        errors = theory.mean_square_error(
            problem, START, gamma, theta, eta, MAX_ROUNDS, M=M, sampling=sampling, noise=C
        )
        growth = moments.contraction(problem, gamma, theta, eta, M, sampling)
        limit = theory.stationary_mean_square_error(problem, gamma, theta, eta, M=M, sampling=sampling, noise=C)
        return {"errors": errors, "growth": growth, "limit": limit}

    return jax.vmap(at_setting)(A, c, theta, gamma, eta, noise)


@partial(compiled, static_argnames=("K", "M", "sampling"))
def _fedavg(A, c, gamma, eta, t, noise, *, K, M, sampling):
    """Return the bounds for FedAvg, and the largest eta of the last one."""
    problem = theory.Problem(A, c)
    mu, L, *_ = theory.constants(problem)
    return {
        "conditionBound": theory.fedavg_condition_bound(K, mu, L, gamma),
        "distanceBound": theory.fedavg_distance_bound(problem, gamma, K),
        "max_eta": 1 / (2 * convergence.surrogate_range(problem, gamma, K).L),
        "run": convergence.fixed_server_bound(problem, START, gamma, K, eta, t, M=M, sampling=sampling, noise=noise),
    }


def closed_forms_at(settings):
    """Return the closed forms of each setting; one program for each M and sampling."""
    theta = [np.pad(np.array(s["theta"], float), (0, MAX_WEIGHTS - len(s["theta"]))) for s in settings]
    columns = [np.array([s[name] for s in settings], float) for name in ("A", "c", "gamma", "eta")]
    A, c, gamma, eta = columns
    noise = np.array([s["run"]["noise"][0, 0] for s in settings], float)
    draws = [(s["run"]["M"], s["run"]["sampling"]) for s in settings]
    with jax.enable_x64(True):
        general = jax.tree.map(np.asarray, _closed_forms(A, c, np.array(theta), gamma))
        rows = [{name: values[k] for name, values in general.items()} for k in range(len(settings))]
        for M, sampling in dict.fromkeys(draws):
            group = [k for k, draw in enumerate(draws) if draw == (M, sampling)]
            chosen = (column[group] for column in (A, c, np.array(theta), gamma, eta, noise))
            runs = jax.tree.map(np.asarray, _errors(*chosen, M=M, sampling=sampling))
            for i, k in enumerate(group):
                rows[k] |= {name: values[i] for name, values in runs.items()}
    return rows


def expected_numbers(setting, family, K, T, found):
    """Return every number of the page; None for those that do not exist."""
    gamma, eta, theta, run = (setting[name] for name in ("gamma", "eta", "theta", "run"))
    mu, L, f, surrogate = (found[name] for name in ("mu", "L", "f", "surrogate"))
    convex = surrogate[0] > 0
    inside = gamma * L < 1 and found["least"] > 0
    distance = found["distance"] if convex else None
    numbers = {
        "mu": mu, "L": L, "sigma_A": found["sigma_A"], "sigma_c": found["sigma_c"], "condition": f[1] / f[0],
        "surrogateCondition": surrogate[1] / surrogate[0] if convex else None,
        "x": found["start"][0], "y": found["start"][1],
        "surrogateX": found["end"][0] if convex else None, "surrogateY": found["end"][1] if convex else None,
        "distance": distance, "bias": None if distance is None else distance**2,
        "error": found["errors"][T], "longRun": found["limit"] if convex and found["growth"] < 1 else None,
        "errorBound": None,
        **{name: found[name] if inside else None for name in ("distanceBound", "sharperBound", "conditionBound")},
    }  # fmt: skip
    if family in ("fomaml", "maml") and gamma * L * len(theta) <= 1:
        numbers["conditionBound"] = float(theory.fomaml_condition_bound(len(theta), mu, L, gamma))
    if family == "fedavg":
        numbers |= {"conditionBound": None, "distanceBound": None}
        if gamma <= 1 / L:
            with jax.enable_x64(True):
                bounds = _fedavg(
                    *(np.array(setting[name], float) for name in ("A", "c", "gamma", "eta")), T, K=K, **run
                )
            bounds = {name: float(value) for name, value in bounds.items()}
            numbers |= {name: bounds[name] for name in ("conditionBound", "distanceBound")}
            if eta <= bounds["max_eta"]:
                numbers["errorBound"] = 2 * bounds["run"] + 2 * bounds["distanceBound"] ** 2
    return numbers
