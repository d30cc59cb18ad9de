"""From a violation in floating point to a proof: round to small fractions, check exactly, simplify."""

import itertools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from flint import arb, fmpq

from theory import exact, plain
from theory.claims.claim import Space, Trial
from theory.claims.fields import instance_of, round_field, with_entry
from theory.trials.compare import entries, judge
from theory.trials.search import WorstInstance, sides

DENOMINATORS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 50, 100, 200, 1000, 10_000, 10**6)
SIMPLE = sorted(
    {Fraction(s * a, b) for a in range(5) for b in range(1, 6) for s in (1, -1)},
    key=lambda f: (f.denominator + abs(f.numerator), f < 0),
)
BALLS_FROM = 64  # from this many steps on, long fractions are slower than balls of 256 bits

Ruling = Literal["violated", "holds", "undecided", "illegal", "undefined"]


class Counterexample(NamedTuple):
    """An instance in exact numbers at which the claim fails.

    Attributes:
      instance: its integers and fields, fractions as strings.
      left: the left side there.
      right: the right side there.
    """

    instance: dict[str, Any]
    left: str
    right: str


class NotExact(TypeError):
    """A side that exact arithmetic cannot compute, such as one that calls jax or numpy instead of `xp`."""


Fractions = dict[str, np.ndarray]


def rounded(space: Space, values: Mapping[str, Any], dims: dict[str, int], denominator: int, style: str) -> Fractions:
    """Returns the fields of an instance in fractions, by their types; functions of other fields are left out.

    Args:
      space: where the instance is from.
      values: the fields in floating point.
      dims: the sizes.
      denominator: the largest denominator.
      style: how rates are rounded: see `theory.claims.fields.round_field`.
    """
    fractions: Fractions = {}
    for name, field in space.fields.items():
        if field.kind == "function":
            continue
        unit = 1.0
        if field.kind == "rate" and style == "unit":
            so_far = {key: value.astype(float) for key, value in fractions.items()}
            unit = float(field.unit(plain, instance_of({**values, **so_far}, dims)))
            unit = unit if np.isfinite(unit) and unit > 0 else 1.0
        fractions[name] = round_field(field, values[name], denominator, style, unit)
    return fractions


def exactly(space: Space, fractions: Fractions, dims: dict[str, int], balls: bool = False) -> dict[str, Any]:
    """Returns the fields as exact rationals, or as balls around them, and the functions of them."""
    built: dict[str, Any] = {}
    for name, field in space.fields.items():
        if field.kind == "function":
            built[name] = field.build(exact, {}, instance_of(built, dims), 1.0)
            continue
        value = exact.array(fractions[name])
        value = np.array([arb(v) for v in value.ravel()], dtype=object).reshape(value.shape) if balls else value
        built[name] = value if np.ndim(value) else value[()]
    return built


def rule(
    trial: Trial, dims: dict[str, int], fractions: Fractions, balls: bool = False
) -> tuple[Ruling, Any, Any, dict[str, Any]]:
    """Judges a claim at an instance in exact numbers, and returns both sides and the fields with it.

    "undefined" means that a side divides by zero or takes the root of a negative number; a left side that is infinite
    in floating point, where the right side is not, is a violation all the same.
    """
    built = exactly(trial.space, fractions, dims)
    if not trial.space.legal(exact, instance_of(built, dims)):
        return "illegal", None, None, built
    if not balls:
        try:
            left, right = sides(trial, exact, built, dims)
            return judge(left, right, trial.relation), left, right, built
        except (ZeroDivisionError, OverflowError):
            left, right = _in_floating_point(trial, fractions, dims)
            if judge(left, right, trial.relation) == "violated":
                return "violated", left, right, built
            return "undefined", None, None, built
        except TypeError:
            pass  # a factor such as 0.5, which only balls can be multiplied by
        except ValueError as error:
            if "square root of the negative" not in str(error):
                raise
            return "undefined", None, None, built
    try:
        left, right = sides(trial, exact, exactly(trial.space, fractions, dims, balls=True), dims)
    except TypeError as error:
        raise NotExact(
            "left and right must be computed with xp and the operators + - * / @ **, so that exact arithmetic can "
            f"follow; got {type(error).__name__}: {error}"
        ) from error
    return judge(left, right, trial.relation), left, right, built


def _in_floating_point(trial: Trial, fractions: Fractions, dims: dict[str, int]) -> tuple[Any, Any]:
    """Both sides where they are infinite; NaN wherever they are finite, where floating point proves nothing."""
    built: dict[str, Any] = {}
    for name, field in trial.space.fields.items():
        made = field.kind == "function"
        value = field.build(plain, {}, instance_of(built, dims), 1.0) if made else fractions[name].astype(float)
        built[name] = value if np.ndim(value) else np.float64(value)
    try:
        with np.errstate(all="ignore"):
            left, right = (np.ravel(np.asarray(side, float)) for side in sides(trial, plain, built, dims))
    except (np.linalg.LinAlgError, ZeroDivisionError, ValueError, AttributeError):
        return np.nan, np.nan
    left, right = np.broadcast_arrays(left, right)
    infinite = ((left == np.inf) & (right < np.inf)) | ((right == -np.inf) & (left > -np.inf))
    return np.where(infinite, left, np.nan), np.where(infinite, right, np.nan)


def check(trial: Trial, dims: dict[str, int], fractions: Fractions) -> Counterexample | None:
    """The instance as a counterexample, if it is legal and certainly violates the claim."""
    ruling, left, right, built = rule(trial, dims, fractions, balls=is_long(dims))
    if ruling != "violated":
        return None
    fields = {name: _nested_strings(built[name]) for name in trial.space.fields}
    return Counterexample({**dims, **fields}, _side_string(left), _side_string(right))


def is_long(dims: dict[str, int]) -> bool:
    """Whether exact sides are computed with balls, because K is large."""
    return dims.get("K", 1) >= BALLS_FROM


def _nested_strings(value: Any) -> Any:
    """Exact numbers as strings, in nested lists."""
    return [_nested_strings(v) for v in value] if np.ndim(value) else _string(value)


def _string(value: Any) -> str:
    if isinstance(value, arb):
        return value.str(20, radius=False) if value.is_finite() else "inf" if value > 0 else "-inf"
    return str(value)


def _side_string(side: Any) -> str:
    """One side of a claim as a string: short fractions as they are, long ones and balls to 20 digits."""
    strings = [str(v) if isinstance(v, fmpq) and len(str(v)) <= 40 else _string(arb(v)) for v in entries(side)]
    return strings[0] if len(strings) == 1 else "[" + ", ".join(strings) + "]"


def _rescaled(space: Space, instance: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """The instance in other units of curvature, (A, gamma) -> (A / s, s gamma): with mu = 1, with L = 1, and as it is.

    Most claims are invariant and the numbers may become rounder; the exact check decides.
    """
    if "A" not in instance:
        return [instance]
    spectrum = np.linalg.eigvalsh(instance["A"])
    scales = [float(s) for s in (spectrum.min(), spectrum.max()) if s > 0]
    rates = [name for name, field in space.fields.items() if field.kind == "rate"]
    return [{**instance, "A": instance["A"] / s, **{r: instance[r] * s for r in rates}} for s in (*scales, 1.0)]


def certify(trial: Trial, worst: WorstInstance) -> Counterexample | None:
    """A certified counterexample near the worst instance, with fractions as small as a greedy search makes them."""
    candidates = _rescaled(trial.space, worst.instance)
    has_rate = any(field.kind == "rate" for field in trial.space.fields.values())
    styles = ("near", "below", "unit") if has_rate else ("near",)
    for denominator in DENOMINATORS:
        for candidate, style in itertools.product(candidates, styles):
            fractions = rounded(trial.space, candidate, worst.dims, denominator, style)
            if check(trial, worst.dims, fractions) is not None:
                return simplified(trial, worst.dims, fractions)
    return None


def as_computed(trial: Trial, worst: WorstInstance) -> tuple[Ruling, Fractions]:
    """Judges the very instance of floating point, whose numbers are binary fractions."""
    fractions = {
        name: np.array([Fraction(float(v)) for v in np.ravel(worst.instance[name])], dtype=object).reshape(
            np.shape(worst.instance[name])
        )
        for name, field in trial.space.fields.items()
        if field.kind != "function"
    }
    for name, field in trial.space.fields.items():
        if field.kind == "simplex":
            fractions[name][-1] = 1 - sum(fractions[name][:-1], Fraction(0))
    ruling = rule(trial, worst.dims, fractions, balls=True)[0]
    return (rule(trial, worst.dims, fractions)[0] if ruling == "undecided" else ruling), fractions


def simplified(trial: Trial, dims: dict[str, int], fractions: Fractions) -> Counterexample:
    """Replace numbers by simpler ones, one at a time, as long as the violation remains and something changes."""
    changed = True
    while changed:
        changed = False
        for name in fractions:
            for index in np.ndindex(np.shape(fractions[name])):
                simpler = _simpler_entry(trial, dims, fractions, name, index)
                if simpler is not None:
                    fractions, changed = {**fractions, name: simpler}, True
    certificate = check(trial, dims, fractions)
    assert certificate is not None
    return certificate


def _simpler_entry(
    trial: Trial, dims: dict[str, int], fractions: Fractions, name: str, index: tuple[int, ...]
) -> np.ndarray | None:
    """A field with one entry replaced by the simplest number that keeps the violation; None if there is none."""
    values = fractions[name]
    for candidate in SIMPLE:
        if _size(candidate) >= _size(values[index]):
            return None
        changed = with_entry(trial.space.fields[name], values, index, candidate)
        if changed is None:
            return None
        if check(trial, dims, {**fractions, name: changed}) is not None:
            return changed
    return None


def _size(value: Any) -> int:
    return Fraction(value).denominator + abs(Fraction(value).numerator)
