"""The tightness of every bound: the largest left / right over gamma L and K.

For each inequality of a claim, printed or corrected, gradient ascent (`theory.trials.search.ascend`) runs with gamma L
held at each value of a grid and K at each of a few; the rest of the instance is free. A bound that reaches 1 somewhere
cannot be improved there; one that stays far below can; one that goes above 1 is false there.
"""

import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from theory import numeric
from theory.claims import find
from theory.claims.claim import Claim, Space, Trial
from theory.claims.fields import instance_of
from theory.precision import float64
from theory.trials.certify import check, rounded
from theory.trials.compare import ratio_of
from theory.trials.implementation import REFERENCE, Implementation
from theory.trials.search import ascend
from theory.trials.workers import do_nothing, results

EPSILON = 1e-9  # of a right side of 0: a picture shows a large number, not infinity
FLOOR = 1e-8  # the ratio of two sides that are both below this means nothing
VIOLATED = 1.001  # a ratio above this is a violation; closer to 1 it may be a rounding error
POOL = 64  # instances drawn per start of the ascent, because few may allow the given gamma L


class Effort(NamedTuple):
    """How fine the grid is and how hard each cell is pursued.

    Attributes:
      gamma_L: the values of gamma L.
      K: the numbers of local steps.
      restarts: starting points of gradient ascent per cell.
      steps: steps of gradient ascent from each.
    """

    gamma_L: tuple[float, ...]
    K: tuple[int, ...]
    restarts: int
    steps: int


QUICK = Effort((0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.3, 1.6, 1.9, 2.5), (2, 5, 20), restarts=24, steps=150)
FULL = Effort(
    (0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.2, 1.5, 1.8, 1.99, 2.5),
    (1, 2, 5, 20, 100),
    restarts=128,
    steps=800,
)


class Panel(NamedTuple):
    """One inequality of a claim.

    Attributes:
      id: the claim.
      form: "printed" or "corrected".
      part: which part of that form's trial.
    """

    id: str
    form: str
    part: int


class Cell(NamedTuple):
    """One point of a panel.

    Attributes:
      panel: the inequality.
      d: dimension of the instances, None if the claim has none.
      n: number of clients, None if the claim has none.
      K: number of local steps, None if the claim has none.
      gamma_L: gamma L.
      ratio: the largest left / right found, None if gamma L is out of the claim's range.
    """

    panel: Panel
    d: int | None
    n: int | None
    K: int | None
    gamma_L: float
    ratio: float | None


def _curvature(built: dict[str, Any]) -> Any:
    """L: the largest eigenvalue of the clients' A, or of the single client with examples A_z."""
    A = built["A"] if "A" in built else jnp.tensordot(built["p_z"], built["A_z"], 1)
    return jnp.max(A) if A.shape[-1] == 1 else jnp.max(jnp.linalg.eigvalsh(A))


def rate_of(space: Space) -> str | None:
    """Returns the field on the axis: gamma, or the first rate of a claim that has several (gamma2 before gamma1).

    None if the instances have no rate, or no curvature to measure it by.
    """
    dims = _template(space)
    raw = {name: value[0] for name, value in space.draw(np.random.default_rng(0), dims, 1).items()}
    built = jax.eval_shape(lambda raw: space.build(raw, dims), raw)
    rates = [name for name in raw if name.startswith("gamma") and name in built]
    if not rates or not ("A" in built or {"A_z", "p_z"} <= set(built)):
        return None
    return "gamma" if "gamma" in rates else rates[0]


def _share(space: Space, rate: str, raw: dict[str, Any], dims: dict[str, int], gamma_L: Any) -> Any:
    """The position of gamma L between the least (0) and the largest (1) value that the space allows.

    Spaces build a rate as least + (largest - least) * sigmoid(raw), so two raw numbers determine both.
    """
    least, half = (space.build({**raw, rate: jnp.full_like(raw[rate], at)}, dims) for at in (-50.0, 0.0))
    return (gamma_L / _curvature(half) - least[rate]) / (2 * (half[rate] - least[rate]))


def _with_fixed_rate(space: Space, rate: str) -> Space:
    """The same space with gamma L held at raw["gamma_L"]."""

    def build(raw: dict[str, Any], dims: dict[str, int]) -> dict[str, Any]:
        free = {name: value for name, value in raw.items() if name != "gamma_L"}
        share = _share(space, rate, free, dims, jax.lax.stop_gradient(raw["gamma_L"]))
        inside = (share > 0) & (share < 1)  # outside, the instance is NaN, which the ascent ignores
        share = jnp.where(inside, share, 0.5)
        return space.build({**free, rate: jnp.where(inside, jnp.log(share) - jnp.log1p(-share), jnp.nan)}, dims)

    return space._replace(build=build)


def _relative(trial: Trial) -> Trial:
    """left / right <= 1 in place of left <= right, so that the ascent gains nothing by making both sides vanish."""

    def left(xp: Any, I: Any) -> Any:
        above, below = jnp.asarray(trial.left(xp, I)), jnp.asarray(trial.right(xp, I))
        positive = below > FLOOR
        otherwise = jnp.where(above > FLOOR, (above + EPSILON) / (jnp.maximum(below, 0) + EPSILON), 0.0)
        return jnp.max(jnp.where(positive, above / jnp.where(positive, below, 1.0), otherwise))

    return trial._replace(left=left, right=lambda xp, I: jnp.float64(1))


def trial_of(panel: Panel) -> Trial:
    """Returns the inequality of a panel."""
    claim = find(panel.id)
    return (claim.trial if panel.form == "printed" else claim.correction)[panel.part]  # pyright: ignore[reportReturnType]


@float64
def is_charted(part: Any) -> bool:
    """Whether a part of a claim is an inequality over a space with a rate for the axis."""
    return isinstance(part, Trial) and part.relation == "<=" and rate_of(part.space) is not None


def panels_of(claim: Claim) -> list[Panel]:
    """Returns the panels of a claim: the printed form's first, then the corrected or sharper form's."""
    forms = (("printed", claim.trial), ("corrected", claim.correction))
    return [Panel(claim.id, form, i) for form, parts in forms for i, part in enumerate(parts) if is_charted(part)]


def _template(space: Space) -> dict[str, int]:
    """The smallest size with two curvatures; with a single one, mu = L and most bounds are trivial."""
    return next((dims for dims in space.dims if dims.get("d", 1) * dims.get("n", 1) >= 2), space.dims[-1])


def sizes(space: Space, K: Sequence[int]) -> list[dict[str, int]]:
    """Returns the sizes of instances to chart: one for each K, and for the claim's largest K if that is larger.

    A claim that is about K = 1, has no K, or enumerates its m^(K B) mini-batches keeps its own sizes.
    """
    base = _template(space)
    dims_of_K = {dims["K"]: dims for dims in reversed(space.dims) if "K" in dims}
    if "K" not in base:
        return [base]
    if set(dims_of_K) == {1} or "m" in base:
        return [dims_of_K[k] for k in sorted(dims_of_K)]
    largest = max(dims_of_K)
    return [{**base, "K": k} for k in (*K, *([largest] if largest > max(K) else []))]


@float64
def chart(panel: Panel, effort: Effort, seed: int = 0, implementation: Implementation = REFERENCE) -> list[Cell]:
    """Returns every cell of a panel; one compiled ascent per K covers all values of gamma L."""
    trial = trial_of(panel)
    rate = rate_of(trial.space)
    assert rate is not None
    cells = []
    for dims in sizes(trial.space, effort.K):
        generator = np.random.default_rng([seed, zlib.crc32(panel.id.encode()), dims.get("K", 0)])
        raw = trial.space.draw(generator, dims, POOL * effort.restarts)
        chosen = _starts(trial.space, rate, raw, dims, effort)
        ratios = dict.fromkeys(effort.gamma_L, None) | _pursue(trial, rate, dims, chosen, raw, effort, implementation)
        cells += [Cell(panel, dims.get("d"), dims.get("n"), dims.get("K"), g, ratio) for g, ratio in ratios.items()]
    return cells


def _starts(
    space: Space, rate: str, raw: dict[str, Any], dims: dict[str, int], effort: Effort
) -> dict[float, np.ndarray]:
    """For each gamma L, the indices of the drawn instances to start from: the first ones that allow it."""
    of_start = jax.vmap(lambda g, r: _share(space, rate, r, dims, g), (None, 0))
    shares = jax.jit(jax.vmap(of_start, (0, None)))(jnp.asarray(effort.gamma_L), raw)
    allowed = [np.flatnonzero((row > 0) & (row < 1 - 1e-9)) for row in np.asarray(shares)]
    return {g: np.resize(rows, effort.restarts) for g, rows in zip(effort.gamma_L, allowed, strict=True) if rows.size}


def _pursue(
    trial: Trial,
    rate: str,
    dims: dict[str, int],
    chosen: dict[float, np.ndarray],
    raw: dict[str, Any],
    effort: Effort,
    implementation: Implementation,
) -> dict[float, float | None]:
    """The largest ratio for each gamma L at an instance that is certainly legal."""
    if not chosen:
        return {}
    indices = np.concatenate(list(chosen.values()))
    starts = {name: value[indices] for name, value in raw.items()}
    starts["gamma_L"] = np.repeat(np.asarray(list(chosen)), effort.restarts)
    fixed = _relative(trial)._replace(space=_with_fixed_rate(trial.space, rate))
    found, built = ascend(fixed, dims, effort.steps, starts, implementation)
    ratios = np.array([ratio_of(float(excess)) if excess > -np.inf else -np.inf for excess in found])
    largest: dict[float, float | None] = {}
    for row, g in enumerate(chosen):
        first = row * effort.restarts
        for path in first + np.argsort(-ratios[first : first + effort.restarts]):
            instance = {name: value[path] for name, value in built.items()}
            reached = float(instance[rate]) * float(_curvature(instance))
            if math.isclose(reached, g, rel_tol=1e-6) and _is_certain(trial, dims, instance, float(ratios[path])):
                largest[g] = float(ratios[path])
                break
    return largest


def _is_certain(trial: Trial, dims: dict[str, int], instance: dict[str, Any], ratio: float) -> bool:
    """Whether an instance is legal; one that violates the claim must be legal and violate it in fractions as well."""
    if ratio <= VIOLATED:
        return bool(trial.space.legal(numeric, instance_of(instance, dims)))
    for denominator, style in itertools.product((10**6, 10**3, 10**9, 10**12), ("near", "below", "unit")):
        fractions = rounded(trial.space, instance, dims, denominator, style)
        if check(trial, dims, fractions) is not None:
            return True
    return False


def charts(
    panels: list[Panel],
    effort: Effort,
    seed: int,
    jobs: int,
    *,
    implementation: Implementation = REFERENCE,
    prepare: Callable[[], None] = do_nothing,
) -> Iterator[list[Cell]]:
    """Yields the cells of each panel as they are done, over `jobs` processes that call `prepare` first."""
    yield from results(chart, [(panel, effort, seed, implementation) for panel in panels], jobs, prepare)
