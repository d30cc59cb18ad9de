"""Where instances come from: unconstrained numbers in, legal problems out.

The names of the standard fields are the paper's.

=========  =============  ==========================================================
field      shape          meaning
=========  =============  ==========================================================
A          (n, d, d)      client matrices, eigenvalues in [1, kappa]
c          (n, d)         client minimisers
p          (n,)           client probabilities
gamma      ()             client rate, in [0, edge)
theta      (K,)           weights
x          (d,)           a model
A_z, c_z   (m, d, d), .   the examples of one client, p_z (m,) their probabilities
=========  =============  ==========================================================
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from theory import numeric
from theory.claims.claim import Space
from theory.claims.fields import (
    Field,
    curvature,
    example_matrices,
    instance_of,
    made_by,
    positive_definite,
    rate,
    simplex,
    vector,
    weights,
)

KAPPA = 1e3  # the largest condition number in floating point; exact arithmetic goes further

Edge = Callable[[dict[str, int], Any], Any]


def inverse_L(dims: dict[str, int], L: Any) -> Any:
    """gamma < 1 / L."""
    return 1 / L


def inverse_KL(dims: dict[str, int], L: Any) -> Any:
    """gamma < 1 / (K L)."""
    return 1 / (dims["K"] * L)


def up_to(numerator: int, denominator: int = 1) -> Edge:
    """gamma < (numerator / denominator) / L: beyond the lemma's range."""
    return lambda dims, L: numerator / (denominator * L)


STANDARD: Mapping[str, Field] = {
    "A": positive_definite("n"),
    "A_z": example_matrices("m"),
    "c": vector("n", "d"),
    "x": vector("d", spread=2.0),
    "c_z": vector("m", "d"),
    "p": simplex("n"),
    "p_z": simplex("m"),
    "theta": weights("K"),
}


def _client_rate(edge: Edge) -> Field:
    """gamma in [0, edge), in units of 1/L."""
    return rate(lambda xp, I: edge(I.dims, curvature(xp, I)))._replace(unit=curvature)


def varying(sizes: Sequence[Mapping[str, int]]) -> tuple[str, ...]:
    """Returns the sizes among K, d, n, M that take several values, so that larger ones are meant too.

    K stays where the sequences of a client's mini-batches are enumerated, which are m^(K B).
    """
    names = ("d", "n") if any("m" in one for one in sizes) else ("K", "d", "n", "M")
    return tuple(name for name in names if len({one[name] for one in sizes if name in one}) > 1)


def space(
    fields: str,
    dims: Iterable[Mapping[str, int]],
    edge: Edge = inverse_L,
    legal: Callable[[Any, Any], bool] | None = None,
    extra: Mapping[str, Field | Callable[..., Any]] | None = None,
    grow: str | None = None,
) -> Space:
    """The space of instances with these fields, e.g. ``space("A c p gamma theta", ...)``, gamma below `edge`.

    Args:
      fields: names of standard fields.
      dims: the sizes to try, smallest first.
      edge: where the range of gamma ends, as a function of the sizes and L.
      legal: what the fields must satisfy besides their types, ``legal(xp, I)``.
      extra: fields of a claim's own, in order: typed ones, or ``make(raw, built, dims)`` of a normal number and the
        fields before it.
      grow: the sizes that may be enlarged beyond `dims`; by default those of K, d, n, M that vary in `dims`.
    """
    standard = {**STANDARD, "gamma": _client_rate(edge)}
    order = ("A", "A_z", "c", "x", "c_z", "p", "p_z", "gamma", "theta")
    typed: dict[str, Field] = {name: standard[name] for name in order if name in fields.split()}
    for name, make in (extra or {}).items():
        typed[name] = make if isinstance(make, Field) else made_by(make)
    dims = tuple(dict(one) for one in dims)
    return space_of(typed, dims, legal, varying(dims) if grow is None else tuple(grow.split()))


def space_of(
    fields: Mapping[str, Field],
    dims: tuple[dict[str, int], ...],
    legal: Callable[[Any, Any], bool] | None = None,
    grow: tuple[str, ...] = (),
) -> Space:
    """The space of instances with these typed fields, each of which may depend on those before it."""

    def parts(name: str) -> list[tuple[str, Any]]:
        return [(f"{name}_{part}" if part else name, value) for part, value in fields[name].parts.items()]

    def draw(generator: np.random.Generator, dims: dict[str, int], count: int) -> dict[str, Any]:
        return {
            key: part.spread * generator.standard_normal((count, *part.shape(dims)))
            for name in fields
            for key, part in parts(name)
        }

    def build(raw: dict[str, Any], dims: dict[str, int], xp: Any = numeric, kappa: float = KAPPA) -> dict[str, Any]:
        I = instance_of({}, dims)
        for name, field in fields.items():
            own = {part: raw[f"{name}_{part}" if part else name] for part in field.parts}
            setattr(I, name, field.build(xp, own, I, kappa))
        return {name: getattr(I, name) for name in fields}

    def in_range(xp: Any, I: Any) -> bool:
        if not all(field.legal(xp, getattr(I, name), I) for name, field in fields.items()):
            return False
        return legal is None or bool(legal(xp, I))

    return Space(dims, draw, build, in_range, dict(fields), grow)
