"""How two sides are compared: by their difference over a scale, entry by entry, in floating point and exactly.

The excess of left over right is (left - right) / max(|left|, |right|), for an equality |left - right| over the same
scale; 0 where both vanish. It does not change if both sides are multiplied by a positive number, and its sign is that
of the violation whatever the signs of the sides. A right side of 0, an infinite left side or sides of opposite signs
give at least 1. Where a side is not a number there is no excess, and nothing is decided.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flint import arb, fmpq

from theory import exact

Relation = Literal["<=", "=="]
ALIKE = 1e-40  # balls that overlap and are smaller than this, relative to their value or absolutely, are equal

Judgement = Literal["violated", "holds", "undecided"]


def _matched(left: Any, right: Any, m: Any = jnp) -> tuple[Any, Any]:
    left, right = m.asarray(left, np.float64), m.asarray(right, np.float64)
    if left.shape != right.shape and () not in (left.shape, right.shape):
        raise ValueError(f"left and right must have the same shape, got {left.shape} and {right.shape}")
    return tuple(m.ravel(side) for side in m.broadcast_arrays(left, right))


def excesses(left: Any, right: Any, relation: Relation, m: Any = jnp) -> Any:
    """Returns the excess at every entry, NaN where a side is; `m` is jax.numpy or numpy."""
    left, right = _matched(left, right, m)
    scale = m.maximum(m.abs(left), m.abs(right))
    usual = (scale > 0) & m.isfinite(scale)
    excess = m.where(usual, (left - right) / m.where(usual, scale, 1), 0)
    infinite = m.where(left > right, 2.0, m.where(left < right, -2.0, 0.0))
    excess = m.where(m.isfinite(scale), excess, infinite)
    excess = m.abs(excess) if relation == "==" else excess
    return m.where(m.isnan(left) | m.isnan(right), m.nan, excess)


def excess(left: Any, right: Any, relation: Relation, m: Any = jnp) -> Any:
    """Returns the largest excess of all entries, or NaN."""
    return m.max(excesses(left, right, relation, m))


def pressure(left: Any, right: Any) -> Any:
    """What gradient ascent climbs, at the entry with the largest excess.

    log(left / right) where the sides have one sign (log(right / left) if negative), elsewhere their difference in units
    of its present size: the excess itself is flat far from equality.
    """
    worst = jnp.argmax(jnp.nan_to_num(excesses(left, right, "<="), nan=-jnp.inf))
    a, b = (side[worst] for side in _matched(left, right))
    same = a * b > 0
    a_safe, b_safe = jnp.where(same, jnp.abs(a), 1), jnp.where(same, jnp.abs(b), 1)
    size = jax.lax.stop_gradient(jnp.abs(a) + jnp.abs(b))
    apart = (a - b) / jnp.where(size > 0, size, 1)
    return jnp.where(same, jnp.sign(a) * (jnp.log(a_safe) - jnp.log(b_safe)), apart)


def ratio_of(excess: float) -> float:
    """left / right of positive sides with this excess (right / left of negative ones); infinite from 1 on."""
    if excess <= 0:
        return max(0.0, 1 + excess)
    return 1 / (1 - excess) if excess < 1 else float("inf")


# --- exact numbers ---


def entries(side: Any) -> list[Any]:
    """Returns a side as a flat list of exact numbers; infinities and Python's floats become balls."""
    return [_number(value) for value in np.ravel(np.asarray(side, dtype=object))]


def _number(value: Any) -> Any:
    if isinstance(value, fmpq | arb):
        return value
    return arb(float(value)) if isinstance(value, float | np.floating) else exact.rational(value)


def _pairs(left: Any, right: Any) -> list[tuple[Any, Any]]:
    first, second = entries(left), entries(right)
    if len(first) != len(second) and 1 not in (len(first), len(second)):
        raise ValueError(f"left and right must have as many entries, got {len(first)} and {len(second)}")
    count = max(len(first), len(second))
    return list(zip(first * (count // len(first)), second * (count // len(second)), strict=True))


def _is_nan(value: Any) -> bool:
    return isinstance(value, arb) and bool(value.is_nan())


def judge(left: Any, right: Any, relation: Relation) -> Judgement:
    """Compares exact sides at every entry: "violated" only if that is certain, "holds" only if nothing is in doubt."""
    judgement: Judgement = "holds"
    for a, b in _pairs(left, right):
        if _is_nan(a) or _is_nan(b):
            judgement = "undecided"
        elif a > b or (relation == "==" and a < b):
            return "violated"
        elif not (a == b if relation == "==" else a <= b) and not _alike(a, b):
            judgement = "undecided"
    return judgement


def _alike(a: Any, b: Any) -> bool:
    """Whether balls that cannot be told apart are so small that they are equal to forty digits."""
    gap = arb(a) - arb(b)
    if not gap.is_finite():
        return False
    size = max(abs(float(arb(a).mid())), abs(float(arb(b).mid())))
    return float(gap.rad()) <= ALIKE * max(size, 1e-30)
