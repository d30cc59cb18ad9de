"""Typed fields of an instance: each type knows how a value is drawn, rounded to fractions, checked and simplified.

Raw numbers are unconstrained: eigenvalues, rotations, probabilities and rates are reached through exp, angles, softmax
and sigmoid, so that a gradient step anywhere gives an instance that meets the assumptions.
"""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

Sizes = dict[str, int]
Shape = tuple[str | int, ...]


class Part(NamedTuple):
    """Some of the unconstrained numbers of a field.

    Attributes:
      shape: ``shape(sizes) -> tuple of int``.
      spread: their standard deviation when drawn.
    """

    shape: Callable[[Sizes], tuple[int, ...]]
    spread: float


class Field(NamedTuple):
    """One field of an instance.

    Attributes:
      kind: "number", "symmetric", "simplex", "rate" or "function": how it is rounded and simplified.
      parts: its unconstrained numbers, by name; one nameless part is called like the field.
      build: ``build(xp, raw, I, kappa) -> value`` from its raw parts and the fields before it; kappa is the largest
        condition number to reach. A "function" is computed in exact numbers as well, from no parts.
      legal: ``legal(xp, value, I) -> bool``, what its values must satisfy.
      unit: of a rate: ``unit(xp, I)``, the curvature by which it is measured, so that rate * unit is rounded.
    """

    kind: str
    parts: Mapping[str, Part]
    build: Callable[[Any, dict[str, Any], Any, float], Any]
    legal: Callable[[Any, Any, Any], bool] = lambda xp, value, I: True
    unit: Callable[[Any, Any], Any] = lambda xp, I: 1


def _shape(shape: Shape) -> Callable[[Sizes], tuple[int, ...]]:
    return lambda sizes: tuple(sizes.get(n, 1) if isinstance(n, str) else n for n in shape)


def _one(shape: Shape, spread: float) -> dict[str, Part]:
    return {"": Part(_shape(shape), spread)}


def vector(*shape: str | int, spread: float = 1.0) -> Field:
    """Real numbers of this shape, ``vector("d")`` or ``vector("n", "d")``; without a shape a single number."""
    return Field("number", _one(shape, spread), lambda xp, raw, I, kappa: raw[""])


def positive(*shape: str | int, spread: float = 2.0) -> Field:
    """Positive numbers, exp of a normal number."""
    return Field(
        "number",
        _one(shape, spread),
        lambda xp, raw, I, kappa: xp.exp(raw[""]),
        lambda xp, value, I: all(v >= 0 for v in np.ravel(value)),
    )


def between(low: float, high: float, *shape: str | int) -> Field:
    """Numbers in [low, high]."""
    if not low < high:
        raise ValueError(f"low must be < high, got {low} and {high}")

    def legal(xp: Any, value: Any, I: Any) -> bool:
        ends = [Fraction(str(end)) for end in (low, high)]
        bottom, top = (xp.array([f"{end.numerator}/{end.denominator}"])[0] for end in ends)
        return all(v >= bottom and v <= top for v in np.ravel(value))

    return Field("number", _one(shape, 2.0), lambda xp, raw, I, kappa: low + (high - low) * xp.sigmoid(raw[""]), legal)


def integer(low: int, high: int, *shape: str | int) -> Field:
    """Integers from low to high, both included."""
    if not low <= high:
        raise ValueError(f"low must be <= high, got {low} and {high}")
    return Field(
        "integer",
        _one(shape, 2.0),
        lambda xp, raw, I, kappa: xp.floor(low + (high - low + 1) * 0.999999 * xp.sigmoid(raw[""])),
        lambda xp, value, I: all(v >= low and v <= high for v in np.ravel(value)),
    )


def simplex(size: str | int = "n") -> Field:
    """Positive probabilities that sum to 1."""

    def build(xp: Any, raw: dict[str, Any], I: Any, kappa: float) -> Any:
        shares = xp.exp(raw[""] - raw[""].max())
        return shares / shares.sum()

    return Field("simplex", _one((size,), 1.0), build, lambda xp, value, I: all(v > 0 for v in value))


def rotated(xp: Any, eigenvalues: Any, angles: Any) -> Any:
    """Symmetric matrices (..., d, d) with given eigenvalues (..., d), turned by d(d-1)/2 plane rotations."""
    d = eigenvalues.shape[-1]
    one = np.eye(d)
    built = eigenvalues[..., None] * one
    planes = [(i, j) for i in range(d) for j in range(i)]
    for index, (i, j) in enumerate(planes):
        cos, sin = xp.cos(angles[..., index, None, None]), xp.sin(angles[..., index, None, None])
        both, across = np.outer(one[i], one[i]) + np.outer(one[j], one[j]), np.outer(one[i], one[j])
        turn = one + (cos - 1) * both + sin * (across - across.T)
        built = turn @ built @ turn.swapaxes(-1, -2)
    return (built + built.swapaxes(-1, -2)) / 2


def _matrix_parts(shape: Shape, spread: float) -> dict[str, Part]:
    return {
        "eigenvalues": Part(_shape((*shape, "d")), spread),
        "angles": Part(lambda sizes: (*_shape(shape)(sizes), sizes["d"] * (sizes["d"] - 1) // 2), 2.0),
    }


def positive_definite(*shape: str | int) -> Field:
    """Symmetric matrices (*shape, d, d) with eigenvalues in [1, kappa]: ``positive_definite("n")`` is the field A."""

    def build(xp: Any, raw: dict[str, Any], I: Any, kappa: float) -> Any:
        reached = xp.exp(np.log(kappa) * xp.sigmoid(raw["spread"]))
        eigenvalues = reached ** xp.sigmoid(raw["eigenvalues"])
        I.largest_eigenvalue = eigenvalues.max()  # known while the instance is being built: see `curvature`
        return rotated(xp, eigenvalues, raw["angles"])

    parts = {"spread": Part(lambda sizes: (), 2.0), **_matrix_parts(shape, 2.0)}
    return Field("symmetric", parts, build, _is_definite)


def _is_definite(xp: Any, value: Any, I: Any) -> bool:
    return all(v > 0 for v in np.ravel(xp.eigvalsh(value)))


def symmetric(*shape: str | int) -> Field:
    """Symmetric matrices (*shape, d, d) with eigenvalues of both signs."""
    return Field(
        "symmetric",
        _matrix_parts(shape, 1.5),
        lambda xp, raw, I, kappa: rotated(xp, raw["eigenvalues"], raw["angles"]),
    )


def example_matrices(*shape: str | int) -> Field:
    """Positive definite matrices with log-normal eigenvalues, those of a client's examples."""
    return Field(
        "symmetric",
        _matrix_parts(shape, 1.5),
        lambda xp, raw, I, kappa: rotated(xp, xp.exp(raw["eigenvalues"]), raw["angles"]),
        _is_definite,
    )


def curvature(xp: Any, I: Any) -> Any:
    """L: the largest eigenvalue of all A, or of the single client with examples A_z; 1 if there are none."""
    if hasattr(I, "largest_eigenvalue"):
        return I.largest_eigenvalue
    if hasattr(I, "A"):
        return xp.maximum(*xp.eigvalsh(I.A).ravel())
    if hasattr(I, "A_z") and hasattr(I, "p_z"):
        return xp.eigvalsh(xp.mean(I.p_z, I.A_z))[-1]
    return xp.array(["1"])[0]


def rate(below: Callable[[Any, Any], Any] | None = None) -> Field:
    """A rate in [0, edge), where the edge is ``below(xp, I)``, by default 1/L: ``rate(lambda xp, I: 2 / I.L)``."""
    unit = curvature if below is None else lambda xp, I: 1 / below(xp, I)
    edge = below or (lambda xp, I: 1 / curvature(xp, I))
    return Field(
        "rate",
        _one((), 2.0),
        lambda xp, raw, I, kappa: edge(xp, I) * xp.sigmoid(raw[""]),
        lambda xp, value, I: bool(value >= 0) and bool(edge(xp, I) - value > 0),
        unit,
    )


def weights(size: str | int = "K") -> Field:
    """Nonnegative weights Theta."""
    return positive(size, spread=1.5)


def function(of: Callable[[Any, Any], Any]) -> Field:
    """A function ``of(xp, I)`` of the fields before it, computed exactly in exact arithmetic."""
    return Field("function", {}, lambda xp, raw, I, kappa: of(xp, I))


def made_by(build: Callable[..., Any], kind: str = "number", shape: Shape = (), spread: float = 2.0) -> Field:
    """A field made by ``build(raw, built, sizes)`` of normal numbers; its `kind` says how it is rounded."""
    return Field(
        kind,
        _one(shape, spread),
        lambda xp, raw, I, kappa: build(raw[""], vars(I), I.dims),
        unit=curvature if kind == "rate" else lambda xp, I: 1,
    )


# --- rounding to fractions, by type ---


def rounded_up(value: float) -> Fraction:
    """A fraction with a short numerator, at least the value and less than 0.1% above it."""
    mantissa, exponent = math.frexp(value)
    return Fraction(math.ceil(mantissa * 2**11 - 1e-9), 2**11) * Fraction(2) ** exponent


def round_field(field: Field, value: Any, denominator: int, style: str = "near", unit: float = 1.0) -> np.ndarray:
    """Returns a field in fractions with small denominators: matrices stay symmetric, probabilities sum to 1.

    Args:
      field: the field.
      value: its value in floating point.
      denominator: the largest denominator.
      style: of a rate only: "near" rounds it, "below" to a fraction strictly below it, because pursuit often ends at
        the edge of a range, and "unit" rounds rate * unit, to 1/denominator at least: a positive rate does not vanish.
      unit: the unit of a rate, such as L.
    """
    if field.kind == "rate" and style == "below":
        return np.array(Fraction(math.ceil(float(value) * denominator) - 1, denominator), dtype=object)
    if field.kind == "rate" and style == "unit":
        share = Fraction(float(value) * unit).limit_denominator(denominator)
        share = Fraction(1, denominator) if share == 0 and value > 0 else share
        return np.array(share / rounded_up(unit), dtype=object)
    if field.kind == "integer":
        denominator = 1
    flat = [Fraction(float(v)).limit_denominator(denominator) for v in np.ravel(value)]
    fractions: Any = np.array(flat, dtype=object).reshape(np.shape(value))
    if field.kind == "symmetric":
        upper = np.triu_indices(fractions.shape[-1], 1)
        fractions[..., upper[1], upper[0]] = fractions[..., upper[0], upper[1]]
    if field.kind == "simplex":
        fractions[-1] = 1 - sum(fractions[:-1], Fraction(0))
    return fractions


def with_entry(field: Field, values: np.ndarray, index: tuple[int, ...], entry: Fraction) -> np.ndarray | None:
    """A field with one entry replaced, and what symmetry or the sum of probabilities entails; None if it is entailed."""
    if field.kind == "symmetric" and index[-2] > index[-1]:
        return None
    if field.kind == "simplex" and index[0] == len(values) - 1:
        return None
    changed = values.copy()
    changed[index] = entry
    if field.kind == "symmetric":
        changed[(*index[:-2], index[-1], index[-2])] = entry
    if field.kind == "simplex":
        changed[-1] = 1 - sum(changed[:-1], Fraction(0))
    return changed


def instance_of(built: Mapping[str, Any], sizes: Sizes) -> SimpleNamespace:
    """An instance with its fields and integers as attributes."""
    return SimpleNamespace(**built, **sizes, dims=sizes)
