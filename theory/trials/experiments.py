"""What an implementation computes on quadratics: the experiments that claims compare with closed forms.

Each takes the `Implementation` on trial first. Mini-batches are (A, c) with leading axes (K, B).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer

from theory import examples, surrogate
from theory.claims.claim import Finding
from theory.problems import StochasticProblem, mean_problem
from theory.trials.implementation import Implementation


def quadratic_loss(x: Any, batch: tuple[Any, Any]) -> Any:
    """The mean of (x - c)^T A (x - c) / 2 over a mini-batch (A, c)."""
    A, c = batch
    return 0.5 * jnp.mean(jnp.einsum("bi,bij,bj->b", x - c, A, x - c))


def full_batches(A: Any, c: Any, K: int) -> tuple[Any, Any]:
    """Batches of gradient descent clients, which see their (A_i, c_i) at each of K steps: leading axes (n, K, 1)."""
    A, c = (jnp.broadcast_to(value[:, None, None], (len(value), K, 1, *value.shape[1:])) for value in (A, c))
    return A, c


def inner_loop(implementation: Implementation, A: Any, c: Any, x: Any, gamma: Any, theta: Any) -> Any:
    """The update of InnerLoop on mini-batches A (K, B, d, d), c (K, B, d).

    Implementations take Theta as numbers; a traced Theta enters by linearity, as K updates of Theta_1, ..., Theta_K.
    """
    if isinstance(theta, Tracer):
        K = len(theta)
        units = [(0.0,) * k + (1.0,) for k in range(K)]
        updates = [implementation.inner_loop(quadratic_loss, x, (A, c), gamma, unit)[0] for unit in units]
        return jnp.tensordot(theta, jnp.stack(updates), axes=1)
    return implementation.inner_loop(quadratic_loss, x, (A, c), gamma, theta)[0]


def maml_gradient(implementation: Implementation, A: Any, c: Any, x: Any, gamma: Any, steps: int) -> Any:
    """The gradient that a K-MAML client sends."""
    return implementation.maml_gradient(quadratic_loss, x, (A, c), gamma, steps)


def local_update(
    implementation: Implementation, A: Any, c: Any, p: Any, x: Any, gamma: Any, theta: Any, eta: Any, rounds: int
) -> Any:
    """The model after `rounds` rounds of LocalUpdate, all gradient descent clients taking part with weights p."""
    method = implementation.local_update(quadratic_loss, theta)
    batches = full_batches(jnp.asarray(A, jnp.float64), jnp.asarray(c, jnp.float64), len(theta))
    state = method.init(jnp.asarray(x, jnp.float64), gamma, eta)

    def body(state, _):
        return method.round(state, batches, p)[0], None

    return jax.lax.scan(body, state, length=rounds)[0].params


def server_limit_gap(implementation: Implementation, server: str) -> float:
    """The relative distance of LocalUpdate's limit with this server from the surrogate minimiser, on two clients."""
    servers: dict[str, Any] = {
        "sgd": optax.sgd,
        "momentum": lambda rate: optax.sgd(rate, momentum=0.9),
        "adam": lambda rate: optax.adam(rate, b2=0.9, eps=1e-2),
        "yogi": lambda rate: implementation.yogi(rate, eps=1e-2),
    }
    problem, gamma, theta = examples.two_clients(), 0.25, (1.0, 1.0)
    method = implementation.local_update(quadratic_loss, theta, server=servers[server])
    batches = full_batches(problem.A, problem.c, 2)
    state = method.init(jnp.array([3.0]), gamma, 0.05)
    state = jax.lax.scan(lambda s, _: (method.round(s, batches)[0], None), state, length=3000)[0]
    expected = float(surrogate.surrogate_minimizer(problem, gamma, theta)[0])
    return abs(float(state.params[0]) - expected) / expected


def density_limit(implementation: Implementation, gamma: float, K: int) -> float:
    """Where LocalUpdate converges on the 1-D example: clients at quadrature nodes, full participation."""
    nodes, mass = examples.density_nodes(K // 2 + 2)
    hessian = float(examples.density_closed_form(gamma, K).hessian)
    x = local_update(
        implementation,
        nodes[:, None, None], 1 / nodes[:, None], mass, jnp.zeros(1), gamma, (1.0,) * K, 1 / hessian, 60,
    )  # fmt: skip
    return float(x[0])


def decay_run(implementation: Implementation, window: int, patience: int, cooldown: int, rounds: int) -> dict[str, Any]:
    """LocalUpdateDecay on the two-client example from x = 3, gamma = 0.4, eta = 0.2, Theta_{1:2}, exact losses."""
    rule = implementation.plateau("paper", 1e-3, 0.1, 0.9, window, patience, cooldown)
    method = implementation.local_update(quadratic_loss, (1.0, 1.0), decay=rule)
    batches = full_batches(jnp.array([[[1.0]], [[2.0]]]), jnp.array([[1.0], [0.5]]), 2)
    state = method.init(jnp.array([3.0]), 0.4, 0.2)
    for _ in range(rounds):
        state, _ = method.round(state, batches)
    return {"x": float(state.params[0]), "server_lr": float(state.server_lr), "decays": int(state.decay_state.decays)}


def decays_after(implementation: Implementation, losses: tuple[float, ...], window: int) -> list[int]:
    """How often the ``paper`` rule has decayed after each loss: P = 1, C = 0, Delta = 1/4."""
    rule = implementation.plateau("paper", 0.25, 0.1, 0.9, window, 1, 0)
    state, decays = rule.init(1.0, 1.0), []
    for loss in losses:
        state = rule.update(state, loss)
        decays.append(int(state.decays))
    return decays


def monte_carlo_theorem_1(implementation: Implementation, draws: int = 4_000) -> list[Finding]:
    """Theorem 1 on clients too large to enumerate: the mean of many InnerLoops within its 99.9% interval."""
    findings = []
    for d, m, K, B, seed in ((5, 50, 10, 4, 0), (10, 200, 5, 8, 1)):
        generator = np.random.default_rng(seed)
        roots = generator.standard_normal((m, d, d)) / np.sqrt(d)
        A_z, c_z = jnp.asarray(roots @ roots.swapaxes(-1, -2)), jnp.asarray(generator.standard_normal((m, d)))
        x, theta = generator.standard_normal(d), generator.uniform(size=K)
        problem = mean_problem(StochasticProblem(A_z[None], c_z[None]))
        A, c = np.asarray(problem.A[0]), np.asarray(problem.c[0])
        gamma = 0.5 / np.linalg.eigvalsh(A).max()
        expected = np.asarray(surrogate.distortion(A, gamma, theta)) @ A @ (x - c)
        drawn = generator.integers(0, m, (draws, K, B))
        send = jax.jit(jax.vmap(lambda z: inner_loop(implementation, A_z[z], c_z[z], x, gamma, theta)))  # noqa: B023
        updates = np.concatenate([send(part) for part in np.split(drawn, 8)])
        # the standardised mean has a chi-square distribution with d degrees of freedom
        gap = updates.mean(0) - expected
        statistic = float(draws * gap @ np.linalg.solve(np.cov(updates.T), gap))
        limit = d * (1 - 2 / (9 * d) + 3.09 * (2 / (9 * d)) ** 0.5) ** 3  # Wilson-Hilferty, 99.9%
        what = (
            f"d = {d}, {m} examples, K = {K}, B = {B}: {draws} InnerLoops, chi-square {statistic:.1f} below {limit:.1f}"
        )
        findings.append(Finding(statistic < limit, 0.0, what))
    return findings


EXPERIMENTS = (
    inner_loop,
    maml_gradient,
    local_update,
    server_limit_gap,
    density_limit,
    decay_run,
    decays_after,
    monte_carlo_theorem_1,
)
"""The functions that `theory.trials.arithmetic.arithmetic` binds to an implementation."""
