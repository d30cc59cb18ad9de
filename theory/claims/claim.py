"""A claim of the paper as data: what is printed, where, under which assumptions, and how it is tried.

Both sides of a claim are functions ``side(xp, I)`` of an instance I. `xp` is the arithmetic: in double
precision (jax, with lur's own algorithms in it) for sampling and pursuit, or exact for proofs. So one formula
serves the search for a counterexample and its certification.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

Verdict = Literal["HOLDS", "FALSE", "TYPO", "NEEDS", "DEFINITION", "UNDECIDED"]
Side = Callable[[Any, Any], Any]


class Space(NamedTuple):
    """A family of legal instances.

    Attributes:
      dims: the integers (d, n, K, ...), smallest first; each is tried.
      draw: ``draw(generator, dims, count) -> raw``, unconstrained numbers in a dict, `count` of each.
      build: ``build(raw, dims) -> dict`` of arrays; every raw point gives an instance that meets the assumptions.
      legal: ``legal(xp, I) -> bool``, the assumptions again, checked exactly after rounding.
    """

    dims: tuple[dict[str, int], ...]
    draw: Callable[[np.random.Generator, dict[str, int], int], dict[str, Any]]
    build: Callable[[dict[str, Any], dict[str, int]], dict[str, Any]]
    legal: Callable[[Any, Any], bool]


class Trial(NamedTuple):
    """left <= right, or left == right, over a space: entry by entry where the sides are arrays."""

    space: Space
    left: Side
    right: Side
    relation: Literal["<=", "=="]
    pursue: bool = True


class Finding(NamedTuple):
    """One thing an inspection looked at: whether it is as the claim says, how far off, and in words."""

    agrees: bool
    discrepancy: float
    what: str


class Inspection(NamedTuple):
    """A claim that is not a family of (in)equalities: ``look(xp) -> [Finding]``, deterministic."""

    look: Callable[[Any], list[Finding]]


@dataclass(frozen=True)
class Claim:
    """One claim.

    `trial` may have several parts; the claim stands if all of them do. `repair` says what kind of change makes a
    false claim true, and `correction` is that change on trial. A `definition` has nothing to decide, but may carry
    a trial of what it entails.
    """

    id: str
    label: str
    line: int
    statement: str
    trial: tuple[Trial | Inspection, ...]
    expected: Verdict
    assumptions: tuple[str, ...] = ()
    repair: Literal["statement", "typo", "assumption"] = "statement"
    corrected: str = ""
    correction: tuple[Trial | Inspection, ...] = ()
    definition: bool = False
    note: str = ""
