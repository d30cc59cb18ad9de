"""Larger problems than those that are searched in floating point: more steps, dimensions, clients, worse conditioning.

Each is tried by a short random climb on numpy arrays, where nothing is compiled, and in exact arithmetic, where a
condition number of 10^12 loses nothing. With d >= 2 clients do not commute, and no two probabilities are equal.
"""

from typing import Any

import numpy as np

from theory import plain
from theory.claims.claim import Space, Trial
from theory.claims.spaces import KAPPA
from theory.trials.compare import excess
from theory.trials.search import WorstInstance, sides

KAPPAS = (10.0, 1e3, 1e6, 1e12)
STEPS = ({"K": 10, "d": 3, "n": 3, "M": 3}, {"K": 100, "d": 2, "n": 2, "M": 2}, {"K": 400, "d": 2, "n": 2, "M": 2})
"""What K, d, n and M become if they may grow: all of them somewhat, then K alone."""


def larger_sizes(space: Space) -> list[dict[str, int]]:
    """Returns larger sizes than those listed, in the names that may grow; none if none may."""
    base = space.dims[-1]
    sizes = []
    for step in STEPS:
        grown = {name: max(value, step[name]) if name in space.grow else value for name, value in base.items()}
        for name in ("d", "n", "M"):  # where K is large the rest stays small
            if name in space.grow and step["K"] > 10 and "K" in space.grow:
                grown[name] = step[name]
        if grown not in (*sizes, *space.dims):
            sizes.append(grown)
    return sizes


def raw_points(space: Space, dims: dict[str, int], generator: np.random.Generator, count: int) -> list[dict[str, Any]]:
    """Returns `count` raw points of a space."""
    drawn = space.draw(generator, dims, count)
    return [{name: value[i] for name, value in drawn.items()} for i in range(count)]


def stretched(raw: dict[str, Any]) -> dict[str, Any]:
    """Returns a raw point whose matrices attain the condition number: each if d >= 2, else all clients together."""
    changed = dict(raw)
    for name, value in raw.items():
        if name.endswith("_spread"):
            changed[name] = np.full_like(value, 50.0)
            eigenvalues = 8 * raw[name.replace("_spread", "_eigenvalues")]
            rows = eigenvalues if eigenvalues.shape[-1] > 1 else eigenvalues.reshape(1, -1)  # views
            rows[..., 0], rows[..., -1] = -50.0, 50.0
            changed[name.replace("_spread", "_eigenvalues")] = eigenvalues
    return changed


def built_plainly(space: Space, raw: dict[str, Any], dims: dict[str, int], kappa: float = KAPPA) -> dict[str, Any]:
    """Returns the instance of a raw point as numpy arrays."""
    with np.errstate(all="ignore"):
        return {name: np.asarray(value) for name, value in space.build(raw, dims, plain, kappa).items()}


def _excess(trial: Trial, dims: dict[str, int], built: dict[str, Any]) -> float:
    """The excess at an instance; -inf where it cannot be computed, which is left to exact arithmetic."""
    try:
        with np.errstate(all="ignore"):
            found = float(excess(*sides(trial, plain, built, dims), trial.relation, np))
    except np.linalg.LinAlgError:
        return -np.inf
    return -np.inf if np.isnan(found) else found


def climb(
    trial: Trial, dims: dict[str, int], kappa: float, steps: int, generator: np.random.Generator
) -> WorstInstance:
    """Random search for a violation at one size: the best of a few points, then steps of a size that adapts."""
    space = trial.space
    points = raw_points(space, dims, generator, max(4, steps // 4))
    built = [built_plainly(space, raw, dims, kappa) for raw in points]
    found = [_excess(trial, dims, one) for one in built]
    top = int(np.argmax(found))
    best, raw, worst = found[top], points[top], built[top]
    width = 1.0
    for _ in range(steps if points[0] else 0):
        near = {name: value + width * generator.standard_normal(np.shape(value)) for name, value in raw.items()}
        instance = built_plainly(space, near, dims, kappa)
        value = _excess(trial, dims, instance)
        width = min(2.0, 1.6 * width) if value > best else max(1e-3, 0.88 * width)
        if value > best:
            best, raw, worst = value, near, instance
    return WorstInstance(best, dims, worst)


def is_plain(trial: Trial, dims: dict[str, int] | None = None) -> bool:
    """Whether the sides can be computed on numpy arrays of these sizes, by default the smallest listed.

    Those that run an implementation's experiments cannot, and a statement may make no sense beyond its listed sizes.
    """
    space, refused = trial.space, (AttributeError, TypeError)
    if dims is not None:
        refused = (*refused, ValueError, IndexError)
    dims = dims or space.dims[0]
    (raw,) = raw_points(space, dims, np.random.default_rng(0), 1)
    try:
        with np.errstate(all="ignore"):
            left, right = sides(trial, plain, built_plainly(space, raw, dims), dims)
            excess(left, right, trial.relation, np)
    except refused:
        return False
    except np.linalg.LinAlgError:
        return True
    return True
