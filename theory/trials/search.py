"""The search for a violation: many random instances in one call, then gradient ascent on the ratio of the two sides.

Ratios compare (left + EPSILON) with (right + EPSILON), so that two sides that both vanish agree instead of dividing
rounding errors by each other.
"""

import math
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from theory.claims.claim import Trial
from theory.trials.implementation import REFERENCE, Implementation
from theory.trials.numeric import arithmetic

EPSILON = 1e-9
COMPILER = {"xla_backend_optimization_level": 1, "xla_llvm_disable_expensive_passes": True}  # each program runs once


class Budget(NamedTuple):
    """How hard to look for a violation.

    Attributes:
      samples: random instances per size of problem.
      restarts: starting points of gradient ascent.
      steps: steps of gradient ascent from each.
      exact: rational instances at which an equality is checked exactly.
    """

    samples: int
    restarts: int
    steps: int
    exact: int


def scaled(budget: Budget, factor: float) -> Budget:
    """Returns a budget `factor` times as large, with at least 2 of everything."""
    if not (math.isfinite(factor) and factor > 0):
        raise ValueError(f"budget must be a number > 0, got {factor}")
    return Budget(*(max(2, round(count * factor)) for count in budget))


QUICK = Budget(samples=2048, restarts=48, steps=250, exact=12)
FULL = Budget(samples=16384, restarts=256, steps=800, exact=40)


class WorstInstance(NamedTuple):
    """The instance closest to a violation, or furthest beyond it.

    Attributes:
      ratio: left / right (``<=``), or the relative discrepancy (``==``).
      dims: the integers of the instance.
      instance: its fields, by name.
    """

    ratio: float
    dims: dict[str, int]
    instance: dict[str, np.ndarray]


def instance_of(built: dict[str, Any], dims: dict[str, int]) -> SimpleNamespace:
    """An instance with its fields and integers as attributes."""
    return SimpleNamespace(**built, **dims, dims=dims)


def sides(trial: Trial, xp: Any, built: dict[str, Any], dims: dict[str, int]) -> tuple[Any, Any]:
    """Returns both sides of a claim at an instance."""
    I = instance_of(built, dims)
    return trial.left(xp, I), trial.right(xp, I)


def ratio(trial: Trial, dims: dict[str, int], implementation: Implementation, raw: dict[str, Any]) -> Any:
    """left / right at its largest entry, or the relative discrepancy of an equality."""
    left, right = sides(trial, arithmetic(implementation), trial.space.build(raw, dims), dims)
    left, right = jnp.asarray(left), jnp.asarray(right)
    if trial.relation == "<=":
        return jnp.max((left + EPSILON) / (right + EPSILON))
    scale = jnp.maximum(jnp.max(jnp.abs(left)), jnp.max(jnp.abs(right)))
    return jnp.max(jnp.abs(left - right)) / (scale + EPSILON)


def sample(
    trial: Trial, dims: dict[str, int], raws: dict[str, Any], implementation: Implementation = REFERENCE
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns the ratios at many raw points, by one compiled call, and the instances built from them."""

    def run(raws):
        built = jax.vmap(lambda raw: trial.space.build(raw, dims))(raws)
        return jax.vmap(partial(ratio, trial, dims, implementation))(raws), built

    ratios, built = jax.jit(run, compiler_options=COMPILER)(raws)
    return np.where(np.isfinite(ratios), ratios, -np.inf), jax.tree.map(np.asarray, built)


def ascend(
    trial: Trial, dims: dict[str, int], steps: int, starts: Any, implementation: Implementation = REFERENCE
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Gradient ascent (Adam, cosine decay) on log(ratio): the best ratio on the path from each start, its instance."""
    optimizer = optax.adam(optax.cosine_decay_schedule(0.15, steps))

    def objective(raw):
        return jnp.log(jnp.maximum(ratio(trial, dims, implementation, raw), 1e-30))

    def climb(raw):
        def step(carry, _):
            raw, state, best, best_raw = carry
            value, gradient = jax.value_and_grad(objective)(raw)
            finite = jnp.isfinite(value) & jnp.isfinite(optax.tree.norm(gradient))
            gradient = jax.tree.map(lambda g: jnp.where(finite, -g, 0.0), gradient)
            better = finite & (value > best)
            best_raw = jax.tree.map(lambda new, old: jnp.where(better, new, old), raw, best_raw)
            updates, state = optimizer.update(gradient, state)
            return (optax.apply_updates(raw, updates), state, jnp.where(better, value, best), best_raw), None

        start = (raw, optimizer.init(raw), -jnp.inf, raw)
        (_, _, best, best_raw), _ = jax.lax.scan(step, start, length=steps)
        return jnp.exp(best), trial.space.build(best_raw, dims)

    ratios, built = jax.jit(jax.vmap(climb), compiler_options=COMPILER)(starts)
    return np.asarray(ratios), jax.tree.map(np.asarray, built)


def search(
    trial: Trial,
    dims: dict[str, int],
    budget: Budget,
    generator: np.random.Generator,
    implementation: Implementation = REFERENCE,
) -> tuple[WorstInstance, dict[str, np.ndarray]]:
    """Samples instances, then pursues an inequality by gradient ascent; half of the starts are the worst samples.

    Returns:
      The worst instance, and all the sampled ones.
    """
    raws = trial.space.draw(generator, dims, budget.samples)
    ratios, sampled = sample(trial, dims, raws, implementation)
    order = np.argsort(-ratios)
    worst = WorstInstance(float(ratios[order[0]]), dims, {name: value[order[0]] for name, value in sampled.items()})
    if trial.relation == "<=" and trial.pursue:
        half = budget.restarts // 2
        chosen = np.concatenate([order[:half], np.arange(budget.restarts - half)])
        starts = {name: raw[chosen] for name, raw in raws.items()}
        climbed, built = ascend(trial, dims, budget.steps, starts, implementation)
        top = int(np.argmax(climbed))
        if climbed[top] > worst.ratio:
            worst = WorstInstance(float(climbed[top]), dims, {name: value[top] for name, value in built.items()})
    return worst, sampled
