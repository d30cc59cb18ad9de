"""The double-precision arithmetic of the trials: jax, theory's closed forms and lur's algorithms.

The same names as `theory.exact`, so that a claim's sides are written once. This is where theory and lur meet:
`inner_loop` and `maml_gradient` here are lur's own.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer

import lur
from theory import enumeration, exact, examples, surrogate
from theory.claims.claim import Finding
from theory.problems import StochasticProblem, mean_problem

eye = jnp.eye
sqrt = jnp.sqrt
exp = jnp.exp
log = jnp.log
solve = jnp.linalg.solve
inverse = jnp.linalg.inv
eigvalsh = jnp.linalg.eigvalsh
norm = jnp.linalg.norm
power = jnp.linalg.matrix_power
distortion = surrogate.distortion
batch_sequences = enumeration.batch_sequences
concatenate = jnp.concatenate
steps = lur.theta.K
rounds_to_see = lur.decay.rounds_to_see


def array(values: Any) -> Any:
    """A float64 array of numbers or texts such as '3/4'."""
    return jnp.asarray(exact.array(values).astype(float))


def total(values: Any) -> Any:
    """The sum of all entries."""
    return jnp.sum(values)


def maximum(*values: Any) -> Any:
    """The largest of some numbers."""
    return jnp.max(jnp.stack([jnp.asarray(v) for v in values]))


def minimum(*values: Any) -> Any:
    """The smallest."""
    return jnp.min(jnp.stack([jnp.asarray(v) for v in values]))


def mean(p: Any, values: Any) -> Any:
    """sum_i p_i values_i over the first axis."""
    return jnp.tensordot(p, values, axes=1)


def operator_norm(A: Any) -> Any:
    """The largest singular value."""
    return jnp.linalg.norm(A, 2, axis=(-2, -1))


def stack(values: Any) -> Any:
    """Numbers or arrays as one array."""
    return jnp.stack([jnp.asarray(v) for v in values])


def expectation(probability: Any, of: Callable[[Any], Any], draws: Any) -> Any:
    """E[of(draw)] over listed draws."""
    return jnp.tensordot(probability, jax.vmap(of)(draws), axes=1)


def each(of: Callable[[Any], Any], draws: Any) -> Any:
    """of(draw) for every listed draw."""
    return jax.vmap(of)(draws)


def scan(step: Callable[[Any, Any], tuple[Any, Any]], state: Any, inputs: tuple[Any, ...]) -> Any:
    """The outputs of ``step(state, inputs_t) -> (state, output)`` for t = 1, 2, ..."""
    return jax.lax.scan(step, state, inputs)[1]


def quadratic_loss(x: Any, batch: tuple[Any, Any]) -> Any:
    """The mean of (x - c)^T A (x - c) / 2 over a mini-batch (A, c)."""
    A, c = batch
    return 0.5 * jnp.mean(jnp.einsum("bi,bij,bj->b", x - c, A, x - c))


def inner_loop(A: Any, c: Any, x: Any, gamma: Any, theta: Any) -> Any:
    """lur's InnerLoop on mini-batches A (K, B, d, d), c (K, B, d).

    lur takes Theta as numbers; a traced one enters by linearity, as K messages of Theta_1 .. Theta_K.
    """
    if isinstance(theta, Tracer):
        unit = [lur.inner_loop(quadratic_loss, x, (A, c), gamma, lur.theta.fomaml(k + 1))[0] for k in range(len(theta))]
        return jnp.tensordot(theta, jnp.stack(unit), axes=1)
    return lur.inner_loop(quadratic_loss, x, (A, c), gamma, theta)[0]


def maml_gradient(A: Any, c: Any, x: Any, gamma: Any, steps: int) -> Any:
    """lur's K-MAML client, by autodiff through its steps."""
    return lur.maml.maml_gradient(quadratic_loss, x, (A, c), gamma, steps)


def local_update(A: Any, c: Any, p: Any, x: Any, gamma: Any, theta: Any, eta: Any, rounds: int) -> Any:
    """lur's LocalUpdate under full participation, gradient descent clients weighted by p: x after `rounds`."""
    K = len(theta)
    algorithm = lur.local_update(quadratic_loss, theta)
    A, c = (jnp.asarray(v, jnp.float64) for v in (A, c))
    batches = tuple(jnp.broadcast_to(v[:, None, None], (len(v), K, 1, *v.shape[1:])) for v in (A, c))
    state = algorithm.init(jnp.asarray(x, jnp.float64), gamma, eta)

    def body(state, _):
        return algorithm.round(state, batches, p)[0], None

    return jax.lax.scan(body, state, length=rounds)[0].params


SERVERS: dict[str, Any] = {
    "sgd": optax.sgd,
    "momentum": lambda rate: optax.sgd(rate, momentum=0.9),
    "adam": lambda rate: optax.adam(rate, b2=0.9, eps=1e-2),
    "yogi": lambda rate: lur.optimizers.yogi(rate, eps=1e-2),
}


def server_limit_gap(server: str) -> float:
    """How far LocalUpdate with this server ends from the surrogate minimiser of the two-client example, relatively."""
    problem, gamma, theta = examples.two_clients(), 0.25, lur.theta.fedavg(2)
    algorithm = lur.local_update(quadratic_loss, theta, server=SERVERS[server])
    batches = tuple(jnp.broadcast_to(v[:, None, None], (2, 2, 1, *v.shape[1:])) for v in (problem.A, problem.c))
    state = algorithm.init(jnp.array([3.0]), gamma, 0.05)
    state = jax.lax.scan(lambda s, _: (algorithm.round(s, batches)[0], None), state, length=3000)[0]
    expected = float(surrogate.surrogate_minimizer(problem, gamma, theta)[0])
    return abs(float(state.params[0]) - expected) / expected


def density_limit(gamma: float, K: int) -> float:
    """Where LocalUpdate converges on the 1-D example: clients at quadrature nodes, full participation."""
    nodes, mass = examples.density_nodes(K // 2 + 2)
    hessian = float(examples.density_closed_form(gamma, K).hessian)
    x = local_update(
        nodes[:, None, None], 1 / nodes[:, None], mass, jnp.zeros(1), gamma, lur.theta.fedavg(K), 1 / hessian, 60
    )
    return float(x[0])


def decay_run(window: int, patience: int, cooldown: int, rounds: int) -> dict[str, Any]:
    """LocalUpdateDecay on the two-client example from x = 3, gamma = 0.4, eta = 0.2, Theta_{1:2}, exact losses."""
    rule = lur.decay.plateau("paper", 1e-3, 0.1, 0.9, window, patience, cooldown)
    algorithm = lur.local_update(quadratic_loss, lur.theta.fedavg(2), decay=rule)
    A, c = jnp.array([[[1.0]], [[2.0]]]), jnp.array([[1.0], [0.5]])
    batches = tuple(jnp.broadcast_to(v[:, None, None], (2, 2, 1, *v.shape[1:])) for v in (A, c))
    state = algorithm.init(jnp.array([3.0]), 0.4, 0.2)
    for _ in range(rounds):
        state, _ = algorithm.round(state, batches)
    return {"x": float(state.params[0]), "server_lr": float(state.server_lr), "decays": int(state.decay_state.decays)}


def decays_after(losses: tuple[float, ...], window: int) -> list[int]:
    """How often lur's ``paper`` rule has decayed after each loss: P = 1, C = 0, Delta = 1/4."""
    rule = lur.decay.plateau("paper", 0.25, 0.1, 0.9, window, 1, 0)
    state, decays = rule.init(1.0, 1.0), []
    for loss in losses:
        state = rule.update(state, loss)
        decays.append(int(state.decays))
    return decays


def monte_carlo_theorem_1(draws: int = 4_000) -> list[Finding]:
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
        expected = np.asarray(distortion(A, gamma, theta)) @ A @ (x - c)
        chosen = generator.integers(0, m, (draws, K, B))
        send = jax.jit(jax.vmap(lambda z: inner_loop(A_z[z], c_z[z], x, gamma, theta)))  # noqa: B023
        messages = np.concatenate([send(part) for part in np.split(chosen, 8)])
        # the standardised mean has a chi-square distribution with d degrees of freedom
        gap = messages.mean(0) - expected
        statistic = float(draws * gap @ np.linalg.solve(np.cov(messages.T), gap))
        limit = d * (1 - 2 / (9 * d) + 3.09 * (2 / (9 * d)) ** 0.5) ** 3  # Wilson-Hilferty, 99.9%
        what = (
            f"d = {d}, {m} examples, K = {K}, B = {B}: {draws} InnerLoops, chi-square {statistic:.1f} below {limit:.1f}"
        )
        findings.append(Finding(statistic < limit, 0.0, what))
    return findings
