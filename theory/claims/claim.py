"""A claim of a paper as data: what is printed, where, under which assumptions, and how it is tried.

Both sides of a claim are functions ``side(xp, I)`` of an instance I. `xp` is the arithmetic: double precision (jax,
with the implementation on trial in it) for sampling and gradient ascent, or exact for proofs. The same formula
therefore serves the search for a counterexample and its certification.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from theory.claims.fields import Field

Verdict = Literal["HOLDS", "FALSE", "TYPO", "NEEDS", "DEFINITION", "UNDECIDED"]
Side = Callable[[Any, Any], Any]


class Space(NamedTuple):
    """A family of instances that meet a claim's assumptions.

    Attributes:
      dims: the sizes (d, n, K, ...), smallest first; each set of them is tried.
      draw: ``draw(generator, dims, count) -> raw``, a dict of unconstrained numbers, `count` of each.
      build: ``build(raw, dims, xp=..., kappa=...) -> dict`` of arrays; every raw point gives an instance that meets the
        assumptions, with condition numbers up to kappa.
      legal: ``legal(xp, I) -> bool``, the assumptions again, checked exactly after rounding.
      fields: the typed fields, by name, which say how a value is rounded.
      grow: the sizes that may be enlarged beyond `dims`.
    """

    dims: tuple[dict[str, int], ...]
    draw: Callable[[np.random.Generator, dict[str, int], int], dict[str, Any]]
    build: Callable[..., dict[str, Any]]
    legal: Callable[[Any, Any], bool]
    fields: Mapping[str, Field] = MappingProxyType({})
    grow: tuple[str, ...] = ()


class Trial(NamedTuple):
    """left <= right, or left == right, over a space of instances.

    Attributes:
      space: the instances.
      left: the left side; compared entry by entry if the sides are arrays.
      right: the right side.
      relation: ``<=`` or ``==``, at every entry.
      pursue: whether to follow sampling by gradient ascent on the violation (inequalities only).
    """

    space: Space
    left: Side
    right: Side
    relation: Literal["<=", "=="] = "<="
    pursue: bool = True


class Finding(NamedTuple):
    """One observation of an inspection.

    Attributes:
      agrees: whether it is as the claim says.
      discrepancy: how far off it is.
      what: the observation in words.
    """

    agrees: bool
    discrepancy: float
    what: str


class Inspection(NamedTuple):
    """A claim that is not a family of (in)equalities.

    Attributes:
      look: ``look(xp) -> [Finding]``, deterministic.
    """

    look: Callable[[Any], list[Finding]]


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    Attributes:
      id: short and unique over all papers, such as T1.
      label: the LaTeX label in the paper's source.
      line: the line of the paper's source.
      statement: the claim as printed; LaTeX between dollar signs.
      trial: how it is tried; with several parts, the claim stands if all of them do.
      expected: the verdict on record.
      assumptions: what the claim assumes, in words.
      repair: what kind of change makes a false claim true.
      corrected: the true form, or a sharper form of a claim that holds.
      correction: the trial of the corrected form.
      definition: whether there is nothing to decide; a definition may carry a trial of what it entails.
      note: remarks.
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


class Paper(NamedTuple):
    """A paper and its claims.

    Attributes:
      name: what `lur verify --paper` calls it: its package in `theory.claims`.
      title: its title.
      authors: its authors, as one writes them in a sentence.
      claims: its claims, in the order in which they are tried.
    """

    name: str
    title: str
    authors: str
    claims: tuple[Claim, ...]
