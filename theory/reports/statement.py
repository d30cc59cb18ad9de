r"""A reader's own statement on trial: `theory.trial` and `theory.space`.

.. code-block:: python

    import theory

    clients = theory.space("A c p gamma", sizes=[{"d": 1, "n": 2, "K": 2}, {"d": 2, "n": 3, "K": 5}])
    theory.trial(
        lambda xp, I: xp.norm(xp.mean(I.p, I.c)),  # left
        lambda xp, I: xp.maximum(*[xp.norm(c) for c in I.c]),  # right
        "<=",
        clients,
    )

A side is a function ``side(xp, I)`` of an instance I, whose fields and sizes are attributes (``I.A``, ``I.K``), written
with the operators of Python and with

    eye, sqrt, exp, log, maximum, minimum, total, norm, mean(p, values), stack, solve, inverse, eigvalsh, power,
    operator_norm, array(["3/4"]), distortion(A, gamma, theta)

of `xp`, which is double precision in the search and exact arithmetic in the proof.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from theory.claims.claim import Side, Space, Trial
from theory.claims.fields import Field, curvature, function, rate
from theory.claims.spaces import STANDARD, space_of, varying
from theory.reports import typeset
from theory.reports.counterexample import as_text, equations, side_entries
from theory.reports.sizes import describe_sizes
from theory.trials.evidence import try_trial
from theory.trials.search import FULL, QUICK, Budget, scaled

NEEDED = {"A": "n d", "A_z": "m d", "c": "n d", "x": "d", "c_z": "m d", "p": "n", "p_z": "m", "theta": "K"}
"""The sizes that each standard field needs."""
BUDGETS: Mapping[str, Budget] = {"quick": QUICK, "full": FULL}


class Verdict(NamedTuple):
    """The verdict on a statement; a notebook shows it with the counterexample and the ratios that were reached.

    Attributes:
      verdict: "HOLDS" if no violation was found, "FALSE" if the counterexample proves it, otherwise "UNDECIDED".
      counterexample: where it fails, in fractions as strings: a dict with "instance", "left" and "right".
      ratio: the largest left / right that was reached, for an equality the largest relative discrepancy; infinite where
        a right side of 0 or of the other sign was exceeded.
      sizes: the sizes that were tried, each with kappa, the largest condition number tried there.
      ratios: the largest ratio at each size that was searched, None where only exact checks were made.
      worst: the instance that gave the ratio, or the one in doubt.
      exact_checks: at how many instances the statement was checked exactly.
      moving_checks: at how many of these a rate was positive and K > 1.
      why: what is in doubt, if the verdict is UNDECIDED.
    """

    verdict: Literal["HOLDS", "FALSE", "UNDECIDED"]
    counterexample: dict[str, Any] | None
    ratio: float
    sizes: tuple[dict[str, Any], ...]
    ratios: tuple[float | None, ...]
    worst: dict[str, Any] | None
    exact_checks: int
    moving_checks: int
    why: str = ""

    def __str__(self) -> str:
        lines = [f"{self.verdict}, largest ratio {self.ratio:.6g}; {self.exact_checks} exact checks"]
        if self.counterexample:
            lines.append("fails at " + as_text(self.counterexample))
        if self.why:
            lines.append(f"{self.why}, at {self.worst}")
        lines.append(f"tried at {describe_sizes(self.sizes)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, the counterexample in MathML, and the ratios as a picture."""
        parts = [f"<p><b>{self.verdict}</b>, {self.exact_checks} exact checks</p>"]
        if self.counterexample:
            shown = [f"<span>{typeset.mathml(one)}</span>" for one in equations(self.counterexample["instance"])]
            both = [f"<span>{typeset.mathml(one)}</span>" for one in side_entries(self.counterexample)]
            parts.append(f"<p>fails at {', '.join(shown)}, where left and right are {' and '.join(both)}</p>")
        if self.why:
            parts.append(f"<p>{html.escape(self.why)}: {html.escape(str(self.worst))}</p>")
        parts.append(_picture(self))
        parts.append(f"<p>tried at {html.escape(describe_sizes(self.sizes))}</p>")
        return "".join(parts)


def _picture(result: Verdict) -> str:
    """The largest ratio of each size as an SVG picture: one bar per size, and a line where left equals right."""
    bars = [(size, ratio) for size, ratio in zip(result.sizes, result.ratios, strict=True) if ratio is not None]
    if not bars:
        return ""
    top = max(1.2, *(min(ratio, 3.0) for _, ratio in bars))
    height, width, step = 90, 44 * len(bars) + 40, 44
    marks = []
    for index, (size, ratio) in enumerate(bars):
        tall = height * min(ratio, top) / top
        colour = "#b23c00" if ratio > 1 + 1e-9 else "#00735a"
        title = html.escape(", ".join(f"{name} = {value:g}" for name, value in size.items()))
        x = 30 + step * index
        marks.append(
            f'<rect x="{x}" y="{height - tall + 10:.1f}" width="26" height="{tall:.1f}" fill="{colour}">'
            f"<title>{title}: ratio {ratio:.6g}</title></rect>"
            f'<text x="{x + 13}" y="{height + 22}" font-size="9" text-anchor="middle">{ratio:.3g}</text>'
        )
    line = height - height / top + 10
    return (
        f'<svg role="img" width="{width}" height="{height + 28}"><title>largest ratio at each size</title>'
        f'<line x1="24" x2="{width}" y1="{line:.1f}" y2="{line:.1f}" stroke="#888" stroke-dasharray="3"/>'
        f'<text x="8" y="{line + 3:.1f}" font-size="9">1</text>{"".join(marks)}</svg>'
    )


def space(
    fields: str,
    sizes: Sequence[Mapping[str, int]],
    *,
    below: Callable[[Any, Any], Any] | None = None,
    where: Callable[[Any, Any], bool] | None = None,
    grow: str | None = None,
    **extras: Field | Callable[[Any, Any], Any],
) -> Space:
    """Returns the space of instances over which a statement is tried.

    Args:
      fields: names of standard fields, any of "A c p gamma theta x A_z c_z p_z" (see `theory.claims.spaces`).
      sizes: the sizes d, n, K, m, M, B of the instances, smallest first, such as ``[{"d": 1, "n": 2, "K": 2}]``.
      below: where the range of gamma ends, ``below(xp, I)``; by default 1/L.
      where: what the fields must satisfy besides their types, ``where(xp, I) -> bool``.
      grow: the names of sizes that may be enlarged beyond those listed, such as "K d"; by default those of K, d, n and
        M that take several values in `sizes`. A statement about the listed sizes only has ``grow=""``.
      extras: fields of your own by name, each typed (`theory.vector`, `positive`, `between`, `integer`, `simplex`,
        `symmetric`, `positive_definite`, `rate`) or a function ``of(xp, I)`` of the fields before it.
    """
    known = [*STANDARD, "gamma"]
    unknown = [name for name in fields.split() if name not in known]
    if unknown:
        raise ValueError(f"fields must be names among {' '.join(known)}, got {' '.join(unknown)}")
    taken = [name for name in extras if name in fields.split() or name in ("d", "n", "K", "m", "M", "B", "dims")]
    if taken:
        raise ValueError(f"extras must have names of their own, got {', '.join(taken)}")
    listed = tuple(dict(one) for one in sizes)
    if not listed or not all(isinstance(v, int | np.integer) and v >= 1 for one in listed for v in one.values()):
        raise ValueError(f"sizes must be a non-empty sequence of dicts of integers >= 1, got {sizes!r}")
    for name in fields.split():
        missing = [size for size in NEEDED.get(name, "").split() if any(size not in one for one in listed)]
        if missing:
            raise ValueError(f"sizes must give {', '.join(missing)} for the field {name}, got {listed}")
    gamma = rate(below)._replace(unit=curvature)
    standard = {**STANDARD, "gamma": gamma}
    order = ("A", "A_z", "c", "x", "c_z", "p", "p_z", "gamma", "theta")
    typed = {name: standard[name] for name in order if name in fields.split()}
    for name, made in extras.items():
        typed[name] = made if isinstance(made, Field) else function(made)
    growing = varying(listed) if grow is None else tuple(grow.split())
    absent = [name for name in growing if any(name not in one for one in listed)]
    if absent:
        raise ValueError(f"grow must name sizes that are listed, got {', '.join(absent)}")
    return space_of(typed, listed, where, growing)


def _side(name: str, side: Any) -> Side:
    if callable(side):
        return side
    if isinstance(side, bool) or not isinstance(side, int | float):
        raise ValueError(f"{name} must be a function of (xp, I) or a number, got {side!r}")
    return lambda xp, I: side


def trial(
    left: Side | float,
    right: Side | float,
    relation: Literal["<=", "=="],
    space: Space,
    budget: Budget | float | str = "quick",
    seed: int = 0,
) -> Verdict:
    """Puts a statement on trial: left <= right or left == right, entry by entry, at every instance of the space.

    FALSE is a proof: the counterexample was checked in exact arithmetic. HOLDS says that sampling, gradient ascent, a
    climb at larger sizes and exact checks found nothing.

    Args:
      left: the left side, ``left(xp, I)``, or a number.
      right: the right side.
      relation: "<=" or "==".
      space: the instances, from `theory.space`.
      budget: how hard to look: "quick", "full", a multiple of "quick", or a `Budget`.
      seed: the seed of all sampling.

    Raises:
      ValueError: if an argument is not as described.
      TypeError: if exact arithmetic cannot follow a side, because it calls something else than `xp`.
    """
    if relation not in ("<=", "=="):
        raise ValueError(f"relation must be '<=' or '==', got {relation!r}")
    if isinstance(budget, str):
        if budget not in BUDGETS:
            raise ValueError(f"budget must be 'quick', 'full', a number or a Budget, got {budget!r}")
        budget = BUDGETS[budget]
    elif not isinstance(budget, Budget):
        budget = scaled(QUICK, budget)
    case = Trial(space, _side("left", left), _side("right", right), relation)
    evidence = try_trial(case, budget, np.random.default_rng([seed, 21]))
    verdict = {"stands": "HOLDS", "falls": "FALSE", "unclear": "UNDECIDED"}[evidence.outcome]
    return Verdict(
        verdict,  # pyright: ignore[reportArgumentType]
        evidence.counterexample,
        evidence.ratio,
        evidence.sizes,
        evidence.ratios,
        evidence.worst,
        evidence.exact_checks,
        evidence.moving_checks,
        evidence.findings[0] if evidence.findings else "",
    )
