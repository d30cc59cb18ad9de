"""From a violation in floating point to a proof: round to small fractions, check exactly, simplify."""

import itertools
import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from flint import arb, fmpq

from theory import exact
from theory.claims.claim import Trial
from theory.trials.search import WorstInstance, instance_of, sides

DENOMINATORS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 50, 100, 200, 1000, 10_000, 10**6)
SIMPLE = sorted(
    {Fraction(s * a, b) for a in range(5) for b in range(1, 6) for s in (1, -1)},
    key=lambda f: (f.denominator + abs(f.numerator), f < 0),
)


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


def round_field(name: str, values: np.ndarray, denominator: int, down: bool = False) -> np.ndarray:
    """Returns a field in fractions with small denominators: matrices stay symmetric, probabilities sum to 1.

    With `down` a rate is rounded to a fraction strictly below it, because pursuit often ends at the edge of a range.
    """
    if down and name.startswith("gamma"):
        return np.array(Fraction(math.ceil(float(values) * denominator) - 1, denominator), dtype=object)
    flat = [Fraction(float(v)).limit_denominator(denominator) for v in np.ravel(values)]
    fractions: Any = np.array(flat, dtype=object).reshape(np.shape(values))
    if name in ("A", "A_z"):
        upper = np.triu_indices(fractions.shape[-1], 1)
        fractions[..., upper[1], upper[0]] = fractions[..., upper[0], upper[1]]
    if name in ("p", "p_z"):
        fractions[-1] = 1 - sum(fractions[:-1], Fraction(0))
    return fractions


def _rationals(fractions: dict[str, np.ndarray]) -> dict[str, Any]:
    """Fields as arrays of exact rationals, scalars as one rational."""
    return {
        name: exact.array(value) if np.ndim(value) else exact.rational(value[()]) for name, value in fractions.items()
    }


def _entries(value: Any) -> list[Any]:
    """A side as a flat list of exact numbers."""
    return list(np.ravel(np.asarray(value, dtype=object)))


def _certainly_violated(trial: Trial, left: Any, right: Any) -> bool:
    """Whether left <= right, or left == right, certainly fails at some entry."""
    pairs = list(zip(_entries(left), _entries(right), strict=True))
    if trial.relation == "<=":
        return any(a > b for a, b in pairs)
    return any(a < b or a > b for a, b in pairs)


def check(trial: Trial, dims: dict[str, int], fractions: dict[str, np.ndarray]) -> Counterexample | None:
    """The instance as a counterexample, if it is legal and certainly violates the claim."""
    built = _rationals(fractions)
    if not trial.space.legal(exact, instance_of(built, dims)):
        return None
    try:
        left, right = sides(trial, exact, built, dims)
    except ZeroDivisionError:  # a singular matrix, which the claim excludes
        return None
    if not _certainly_violated(trial, left, right):
        return None
    fields = {name: _nested_strings(value) for name, value in fractions.items()}
    return Counterexample({**dims, **fields}, _side_string(left), _side_string(right))


def _nested_strings(value: Any) -> Any:
    """Fractions as strings, in nested lists."""
    return [_nested_strings(v) for v in value] if np.ndim(value) else str(np.asarray(value, dtype=object)[()])


def _side_string(side: Any) -> str:
    """One side of a claim as a string: short fractions as they are, long ones and balls to 20 digits."""
    numbers = [_number(v) for v in _entries(side)]
    strings = [str(v) if isinstance(v, fmpq) and len(str(v)) <= 40 else arb(v).str(20, radius=False) for v in numbers]
    return strings[0] if len(strings) == 1 else "[" + ", ".join(strings) + "]"


def _number(value: Any) -> Any:
    return exact.rational(value) if isinstance(value, int | Fraction) else value


def _rescaled(instance: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """The instance in other units of curvature, (A, gamma) -> (A / s, s gamma): with mu = 1, with L = 1, and as it is.

    Most claims are invariant and the numbers may become rounder; the exact check decides.
    """
    if "A" not in instance:
        return [instance]
    spectrum = np.linalg.eigvalsh(instance["A"])
    scales = (spectrum.min(), spectrum.max(), 1.0)
    rates = [name for name in instance if name.startswith("gamma")]
    return [{**instance, "A": instance["A"] / s, **{name: instance[name] * s for name in rates}} for s in scales]


def certify(trial: Trial, worst: WorstInstance) -> Counterexample | None:
    """A certified counterexample near the worst instance, with fractions as small as a greedy search makes them."""
    candidates = _rescaled(worst.instance)
    for denominator in DENOMINATORS:
        for candidate, down in itertools.product(candidates, (False, True)):
            fractions = {name: round_field(name, value, denominator, down) for name, value in candidate.items()}
            if check(trial, worst.dims, fractions) is not None:
                return _simplify(trial, worst.dims, fractions)
    return None


def _simplify(trial: Trial, dims: dict[str, int], fractions: dict[str, np.ndarray]) -> Counterexample:
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
    trial: Trial, dims: dict[str, int], fractions: dict[str, np.ndarray], name: str, index: tuple[int, ...]
) -> np.ndarray | None:
    """A field with one entry replaced by the simplest number that keeps the violation; None if there is none."""
    values = fractions[name]
    matrix, weights = name in ("A", "A_z"), name in ("p", "p_z")
    if (matrix and index[-2] > index[-1]) or (weights and index[0] == len(values) - 1):
        return None  # given by symmetry, or by the sum
    for candidate in SIMPLE:
        if _size(candidate) >= _size(values[index]):
            return None
        trimmed = values.copy()
        trimmed[index] = candidate
        if matrix:
            trimmed[(*index[:-2], index[-1], index[-2])] = candidate
        if weights:
            trimmed[-1] = 1 - sum(trimmed[:-1], Fraction(0))
        if check(trial, dims, {**fractions, name: trimmed}) is not None:
            return trimmed
    return None


def _size(value: Any) -> int:
    return Fraction(value).denominator + abs(Fraction(value).numerator)


def agrees_exactly(
    trial: Trial, dims: dict[str, int], instance: dict[str, np.ndarray], denominator: int
) -> bool | None:
    """Whether the sides agree in exact numbers at a rounded instance; None if rounding made it illegal."""
    fractions = {name: round_field(name, value, denominator) for name, value in instance.items()}
    built = _rationals(fractions)
    if not trial.space.legal(exact, instance_of(built, dims)):
        return None
    try:
        left, right = sides(trial, exact, built, dims)
    except ZeroDivisionError:
        return None
    return not _certainly_violated(trial, left, right)
