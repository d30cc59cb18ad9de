"""The search for a violation: many random instances in one call, then gradient ascent on the violation.

How far left exceeds right is measured by `theory.trials.compare.excess`, so no sign and no infinity is misread.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from theory.claims.claim import Trial
from theory.claims.fields import instance_of
from theory.trials.arithmetic import arithmetic
from theory.trials.compare import excess, pressure
from theory.trials.implementation import REFERENCE, Implementation

COMPILER = {"xla_backend_optimization_level": 1, "xla_llvm_disable_expensive_passes": True}  # each program runs once
CANDIDATES = 6  # instances of a size that are put before exact arithmetic, at most


class Budget(NamedTuple):
    """How hard to look for a violation.

    Attributes:
      samples: random instances per size of problem.
      restarts: starting points of gradient ascent.
      steps: steps of gradient ascent from each.
      exact: rational instances at which a claim is checked exactly.
      climbs: steps of the random search at each larger size.
    """

    samples: int
    restarts: int
    steps: int
    exact: int
    climbs: int = 60


def scaled(budget: Budget, factor: float) -> Budget:
    """Returns a budget `factor` times as large, with at least 2 of everything."""
    if not (math.isfinite(factor) and factor > 0):
        raise ValueError(f"budget must be a number > 0, got {factor}")
    return Budget(*(max(2, round(count * factor)) for count in budget))


QUICK = Budget(samples=2048, restarts=48, steps=250, exact=12, climbs=60)
FULL = Budget(samples=16384, restarts=256, steps=800, exact=40, climbs=400)


class WorstInstance(NamedTuple):
    """The instance closest to a violation, or furthest beyond it.

    Attributes:
      excess: how far left exceeds right there; NaN if a side is not a number.
      dims: the integers of the instance.
      instance: its fields, by name.
    """

    excess: float
    dims: dict[str, int]
    instance: dict[str, np.ndarray]


class Found(NamedTuple):
    """What a search found at one size.

    Attributes:
      worst: the instances with the largest excess, the largest first.
      undefined: some instances where a side is not a number.
      sampled: all sampled instances, by field.
    """

    worst: list[WorstInstance]
    undefined: list[WorstInstance]
    sampled: dict[str, np.ndarray]


def sides(trial: Trial, xp: Any, built: dict[str, Any], dims: dict[str, int]) -> tuple[Any, Any]:
    """Returns both sides of a claim at an instance."""
    I = instance_of(built, dims)
    return trial.left(xp, I), trial.right(xp, I)


def _excess(trial: Trial, dims: dict[str, int], implementation: Implementation, raw: dict[str, Any]) -> Any:
    return excess(*sides(trial, arithmetic(implementation), trial.space.build(raw, dims), dims), trial.relation)


def sample(
    trial: Trial, dims: dict[str, int], raws: dict[str, Any], implementation: Implementation = REFERENCE
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns the excess at many raw points, by one compiled call, and the instances built from them."""

    def run(raws):
        built = jax.vmap(lambda raw: trial.space.build(raw, dims))(raws)
        return jax.vmap(partial(_excess, trial, dims, implementation))(raws), built

    found, built = jax.jit(run, compiler_options=COMPILER)(raws)
    return np.asarray(found), jax.tree.map(np.asarray, built)


def ascend(
    trial: Trial, dims: dict[str, int], steps: int, starts: Any, implementation: Implementation = REFERENCE
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Gradient ascent (Adam, cosine decay): the largest excess on the path from each start, and its instance."""
    optimizer = optax.adam(optax.cosine_decay_schedule(0.15, steps))

    def objective(raw):
        both = sides(trial, arithmetic(implementation), trial.space.build(raw, dims), dims)
        return pressure(*both), excess(*both, "<=")

    def climb(raw):
        def step(carry, _):
            raw, state, best, best_raw = carry
            (_, value), gradient = jax.value_and_grad(objective, has_aux=True)(raw)
            usable = ~jnp.isnan(value) & jnp.isfinite(optax.tree.norm(gradient))
            gradient = jax.tree.map(lambda g: jnp.where(usable, -g, 0.0), gradient)
            better = value > best  # never if NaN
            best_raw = jax.tree.map(lambda new, old: jnp.where(better, new, old), raw, best_raw)
            updates, state = optimizer.update(gradient, state)
            return (optax.apply_updates(raw, updates), state, jnp.where(better, value, best), best_raw), None

        start = (raw, optimizer.init(raw), -jnp.inf, raw)
        (_, _, best, best_raw), _ = jax.lax.scan(step, start, length=steps)
        return best, trial.space.build(best_raw, dims)

    best, built = jax.jit(jax.vmap(climb), compiler_options=COMPILER)(starts)
    return np.asarray(best), jax.tree.map(np.asarray, built)


def _instances(found: np.ndarray, order: Any, dims: dict[str, int], built: dict[str, Any]) -> list[WorstInstance]:
    return [WorstInstance(float(found[i]), dims, {name: value[i] for name, value in built.items()}) for i in order]


def search(
    trial: Trial,
    dims: dict[str, int],
    budget: Budget,
    generator: np.random.Generator,
    implementation: Implementation = REFERENCE,
) -> Found:
    """Samples instances, then pursues an inequality by gradient ascent; half of the starts are the worst samples."""
    raws = trial.space.draw(generator, dims, budget.samples)
    found, sampled = sample(trial, dims, raws, implementation)
    undefined = _instances(found, np.flatnonzero(np.isnan(found))[:CANDIDATES], dims, sampled)
    order = np.argsort(-np.nan_to_num(found, nan=-np.inf), kind="stable")
    worst = _instances(found, order[:CANDIDATES], dims, sampled)
    if trial.relation == "<=" and trial.pursue and raws:
        half = budget.restarts // 2
        chosen = np.concatenate([order[:half], np.arange(min(budget.restarts - half, budget.samples))])
        starts = {name: raw[chosen] for name, raw in raws.items()}
        climbed, built = ascend(trial, dims, budget.steps, starts, implementation)
        worst += _instances(climbed, np.argsort(-climbed, kind="stable")[:CANDIDATES], dims, built)
    worst = [one for one in worst if math.isfinite(one.excess)]  # nothing is found on a path of NaNs
    return Found(sorted(worst, key=lambda one: -one.excess), undefined, sampled)
