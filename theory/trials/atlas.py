"""The tightness atlas: how close left / right comes to 1, over gamma L and K, for every bound there is.

For each inequality of a claim, printed or corrected, pursuit (`theory.trials.search.ascend`) is run with gamma L held
at each value of a grid and K at each of a few: everything else about the instance is the pursuer's to choose. A bound
that reaches 1 somewhere cannot be improved there; one that stays far below can; one that goes above 1 is false there.
"""

import html
import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lur import plots
from lur.jax_setup import keep_compiled
from theory.claims import CLAIMS, find
from theory.claims.claim import Claim, Space, Trial
from theory.precision import float64
from theory.trials import numeric, typeset
from theory.trials.certify import check, round_field
from theory.trials.search import EPSILON, ascend, instance_of
from theory.trials.verify import start_worker, write_whole

FLOOR = 1e-8  # two sides that are both below say nothing about their ratio
VIOLATED = 1.001  # drawn as a violation; closer to 1 it may be rounding
POOL = 64  # instances drawn for each that pursuit starts from, in case few allow the gamma L asked for
FAINTEST = 1e-3  # the lowest ratio with a colour of its own


class Effort(NamedTuple):
    """How finely the atlas is drawn and how hard each cell is pursued."""

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
    """One inequality of a claim: which of its forms, and which part of that."""

    id: str
    form: str  # "printed" or "corrected"
    part: int


class Cell(NamedTuple):
    """One point of a panel; a ratio of None says that gamma L is out of the claim's range there."""

    panel: Panel
    d: int | None
    n: int | None
    K: int | None
    gamma_L: float
    ratio: float | None


def curvature(built: dict[str, Any]) -> Any:
    """L: the largest eigenvalue of the clients' A, or of the one client whose examples are A_z."""
    A = built["A"] if "A" in built else jnp.tensordot(built["p_z"], built["A_z"], 1)
    return jnp.max(A) if A.shape[-1] == 1 else jnp.max(jnp.linalg.eigvalsh(A))


def rate_of(space: Space) -> str | None:
    """The field on the axis: gamma, or the first of a claim's rates (gamma2, from which gamma1 is made); None without.

    None also where there is no curvature to measure a rate by.
    """
    dims = template(space)
    raw = {name: value[0] for name, value in space.draw(np.random.default_rng(0), dims, 1).items()}
    built = jax.eval_shape(lambda raw: space.build(raw, dims), raw)
    rates = [name for name in raw if name.startswith("gamma") and name in built]
    if not rates or not ("A" in built or {"A_z", "p_z"} <= set(built)):
        return None
    return "gamma" if "gamma" in rates else rates[0]


def share(space: Space, rate: str, raw: dict[str, Any], dims: dict[str, int], gamma_L: Any) -> Any:
    """Where gamma L is between the least and the largest that the space allows: out of range unless in (0, 1).

    Spaces make a rate as least + (largest - least) * sigmoid(raw): two raw numbers show both.
    """
    least, half = (space.build({**raw, rate: jnp.full_like(raw[rate], at)}, dims) for at in (-50.0, 0.0))
    return (gamma_L / curvature(half) - least[rate]) / (2 * (half[rate] - least[rate]))


def pinned(space: Space, rate: str) -> Space:
    """The same space with gamma L held at the number that comes as raw["gamma_L"]."""

    def build(raw: dict[str, Any], dims: dict[str, int]) -> dict[str, Any]:
        free = {name: value for name, value in raw.items() if name != "gamma_L"}
        part = share(space, rate, free, dims, jax.lax.stop_gradient(raw["gamma_L"]))
        inside = (part > 0) & (part < 1)  # outside, the instance is NaN, which pursuit passes over
        part = jnp.where(inside, part, 0.5)
        return space.build({**free, rate: jnp.where(inside, jnp.log(part) - jnp.log1p(-part), jnp.nan)}, dims)

    return space._replace(build=build)


def relative(trial: Trial) -> Trial:
    """left / right <= 1 in the place of left <= right, so that pursuit gains nothing by making both sides vanish."""

    def left(xp: Any, I: Any) -> Any:
        above, below = jnp.asarray(trial.left(xp, I)), jnp.asarray(trial.right(xp, I))
        sound = below > FLOOR
        blatant = jnp.where(above > FLOOR, (above + EPSILON) / (jnp.maximum(below, 0) + EPSILON), 0.0)
        return jnp.max(jnp.where(sound, above / jnp.where(sound, below, 1.0), blatant))

    return trial._replace(left=left, right=lambda xp, I: jnp.float64(1))


def _trial(panel: Panel) -> Trial:
    claim = find(panel.id)
    return (claim.trial if panel.form == "printed" else claim.correction)[panel.part]  # pyright: ignore[reportReturnType]


@float64
def is_charted(part: Any) -> bool:
    """Whether this is an inequality over a space with a rate to put on the axis."""
    return isinstance(part, Trial) and part.relation == "<=" and rate_of(part.space) is not None


def panels_of(claim: Claim) -> list[Panel]:
    """The panels of a claim: printed ones first, then the corrected or sharpened."""
    forms = (("printed", claim.trial), ("corrected", claim.correction))
    return [Panel(claim.id, form, i) for form, parts in forms for i, part in enumerate(parts) if is_charted(part)]


def template(space: Space) -> dict[str, int]:
    """The smallest size that has two curvatures to tell apart; with one, mu = L and most bounds are trivial."""
    return next((dims for dims in space.dims if dims.get("d", 1) * dims.get("n", 1) >= 2), space.dims[-1])


def sizes(space: Space, K: Sequence[int]) -> list[dict[str, int]]:
    """The sizes to draw: one for each K, and for the claim's own if that is larger.

    Not so if a claim is about K = 1, has no K, or enumerates batches (m^(K B) of them): then its own.
    """
    base = template(space)
    own = {dims["K"]: dims for dims in reversed(space.dims) if "K" in dims}
    if "K" not in base:
        return [base]
    if set(own) == {1} or "m" in base:
        return [own[k] for k in sorted(own)]
    return [{**base, "K": k} for k in (*K, *([max(own)] if max(own) > max(K) else []))]


@float64
def chart(panel: Panel, effort: Effort, seed: int = 0) -> list[Cell]:
    """Every cell of a panel: one compiled pursuit per K, for all values of gamma L at once."""
    trial = _trial(panel)
    rate = rate_of(trial.space)
    assert rate is not None
    cells = []
    for dims in sizes(trial.space, effort.K):
        generator = np.random.default_rng([seed, zlib.crc32(panel.id.encode()), dims.get("K", 0)])
        raw = trial.space.draw(generator, dims, POOL * effort.restarts)
        chosen = _starts(trial.space, rate, raw, dims, effort)
        found = dict.fromkeys(effort.gamma_L, None) | _pursue(trial, rate, dims, chosen, raw, effort)
        cells += [Cell(panel, dims.get("d"), dims.get("n"), dims.get("K"), g, ratio) for g, ratio in found.items()]
    return cells


def _starts(
    space: Space, rate: str, raw: dict[str, Any], dims: dict[str, int], effort: Effort
) -> dict[float, np.ndarray]:
    """For each gamma L within reach, which of the drawn instances to start from: the first that allow it."""
    of_start = jax.vmap(lambda g, r: share(space, rate, r, dims, g), (None, 0))
    shares = jax.jit(jax.vmap(of_start, (0, None)))(jnp.asarray(effort.gamma_L), raw)
    allowed = [np.flatnonzero((own > 0) & (own < 1 - 1e-9)) for own in np.asarray(shares)]
    return {g: np.resize(own, effort.restarts) for g, own in zip(effort.gamma_L, allowed, strict=True) if own.size}


def _pursue(
    trial: Trial, rate: str, dims: dict[str, int], chosen: dict[float, np.ndarray], raw: dict[str, Any], effort: Effort
) -> dict[float, float | None]:
    """The largest ratio for each gamma L that stands a second look."""
    if not chosen:
        return {}
    indices = np.concatenate(list(chosen.values()))
    starts = {name: value[indices] for name, value in raw.items()}
    starts["gamma_L"] = np.repeat(np.asarray(list(chosen)), effort.restarts)
    held = relative(trial)._replace(space=pinned(trial.space, rate))
    ratios, built = ascend(held, dims, effort.steps, starts)
    found: dict[float, float | None] = {}
    for row, g in enumerate(chosen):
        first = row * effort.restarts
        for path in first + np.argsort(-ratios[first : first + effort.restarts]):
            instance = {name: value[path] for name, value in built.items()}
            reached = float(instance[rate]) * float(curvature(instance))
            if math.isclose(reached, g, rel_tol=1e-6) and _stands(trial, dims, instance, float(ratios[path])):
                found[g] = float(ratios[path])
                break
    return found


def _stands(trial: Trial, dims: dict[str, int], instance: dict[str, Any], ratio: float) -> bool:
    """Whether an instance meets the claim's assumptions; one that violates the claim has to do both in fractions."""
    if ratio <= VIOLATED:
        return bool(trial.space.legal(numeric, instance_of(instance, dims)))
    for denominator, down in itertools.product((10**6, 10**3, 10**9, 10**12), (False, True)):
        fractions = {name: round_field(name, value, denominator, down) for name, value in instance.items()}
        if check(trial, dims, fractions) is not None:
            return True
    return False


def charts(panels: list[Panel], effort: Effort, seed: int, jobs: int) -> Iterator[list[Cell]]:
    """The cells of all panels, panel by panel as they are done."""
    if jobs == 1 or len(panels) == 1:
        keep_compiled()
        for panel in panels:
            yield chart(panel, effort, seed)
        return
    with ProcessPoolExecutor(min(jobs, len(panels)), get_context("spawn"), start_worker) as pool:
        futures = [pool.submit(chart, panel, effort, seed) for panel in panels]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def title_of(panel: Panel, panels: list[Panel], claim: Claim) -> str:
    """What a panel shows, in a word or two."""
    form = "printed" if panel.form == "printed" else "sharper" if claim.expected == "HOLDS" else "corrected"
    same = [p for p in panels if p.form == panel.form]
    return form if len(same) == 1 else f"{form} ({same.index(panel) + 1})"


def picture(claim: Claim, cells: list[Cell]) -> Any:
    """The panels of a claim, one below the other: one colour scale for the whole atlas, orange where a bound fails."""
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm

    panels = list(dict.fromkeys(cell.panel for cell in cells))
    columns = sorted({cell.gamma_L for cell in cells if cell.ratio is not None})
    rows = {panel: sorted({cell.K or 0 for cell in cells if cell.panel == panel}) for panel in panels}
    norm = LogNorm(FAINTEST, VIOLATED)
    colours = colormaps["cividis"].with_extremes(over=plots.COLOURS[1])
    figure, axes = plots.panels(len(panels), squeeze=False, sharex=True)
    heights = [0.5 + 0.3 * len(rows[panel]) for panel in panels]
    figure.set_size_inches(1.6 + 0.46 * max(len(columns), 6), 0.8 + sum(heights))
    places = figure.add_gridspec(len(panels), 1, height_ratios=heights)
    image = None
    for place, axis, panel in zip(places, axes[0], panels, strict=True):
        axis.set_subplotspec(place)
        grid = np.full((len(rows[panel]), len(columns)), np.nan)
        for cell in cells:
            if cell.panel == panel and cell.ratio is not None:
                grid[rows[panel].index(cell.K or 0), columns.index(cell.gamma_L)] = cell.ratio
        shown = np.ma.masked_invalid(np.maximum(grid, FAINTEST))
        image = axis.pcolormesh(shown, norm=norm, cmap=colours, edgecolors="white", linewidth=0.6)
        for (row, column), ratio in np.ndenumerate(grid):
            if np.isfinite(ratio):
                ink = "white" if norm(max(ratio, FAINTEST)) < 0.55 else "black"
                axis.text(column + 0.5, row + 0.5, short(ratio), ha="center", va="center", fontsize=7, color=ink)
        axis.grid(False)
        axis.set_facecolor("0.93")
        axis.patch.set(hatch="////", edgecolor="0.8")
        axis.set_xticks(np.arange(len(columns)) + 0.5, [f"{g:g}" for g in columns], fontsize=8)
        axis.set_yticks(np.arange(len(grid)) + 0.5, [str(K) if K else "any" for K in rows[panel]], fontsize=8)
        axis.tick_params(length=0, labelbottom=panel == panels[-1])
        axis.set_ylabel("$K$")
        axis.set_title(title_of(panel, panels, claim), fontsize=9, loc="left")
    rate = rate_of(_trial(panels[0]).space) or "gamma"
    axes[0][-1].set_xlabel(f"${typeset.symbol(rate)} L$")
    bar = figure.colorbar(image, ax=list(axes[0]), extend="max", pad=0.02, fraction=0.06, aspect=18)
    bar.set_ticks([1e-3, 1e-2, 1e-1, 1], labels=["0.001", "0.01", "0.1", "1"], fontsize=7)
    bar.ax.minorticks_off()
    bar.set_label("left / right", fontsize=8)
    figure.suptitle(f"{claim.id}  {claim.label}".replace("$", r"\$"), fontsize=10)
    return figure


def short(ratio: float) -> str:
    """A ratio for a small cell."""
    if ratio < 5e-4:
        return "0"
    if ratio >= 1000:
        return f"{ratio:.0e}".replace("e+0", "e").replace("e+", "e")
    return f"{ratio:.2f}".lstrip("0") if 0.0095 <= ratio < 10 else f"{ratio:.1g}" if ratio < 1 else f"{ratio:.0f}"


def summary(claim: Claim, cells: list[Cell]) -> str:
    """Where each panel is tightest, in a sentence."""
    panels, said = list(dict.fromkeys(cell.panel for cell in cells)), []
    for panel in panels:
        known = [cell for cell in cells if cell.panel == panel and cell.ratio is not None]
        if not known:
            said.append(f"{title_of(panel, panels, claim)}: no instance within the range")
            continue
        top = max(known, key=lambda cell: cell.ratio or 0)
        at = rf"$\gamma L = {top.gamma_L:g}$" + (f", $K = {top.K}$" if top.K else "")
        said.append(f"{title_of(panel, panels, claim)}: largest {top.ratio:.3g}, at {at}")
    return "; ".join(said) + "."


INTRODUCTION = (
    r"For every inequality, the largest left side / right side that gradient ascent found with $\gamma L$ and $K$ "
    r"held: all else about the instance is chosen to make it large. 1 means that the bound is reached and cannot be "
    r"improved there; orange, above 1, that it is violated, in exact arithmetic too; hatched, that no instance was "
    r"found, most often because $\gamma$ is out of the claim's range. One colour scale for all. Every ratio is a "
    r"lower bound of the true maximum, for the sizes d and n in `atlas.csv`."
)


def write(folder: Path, claims: list[Claim], cells: list[Cell]) -> list[Path]:
    """The pictures, atlas.csv, and the contact pages atlas.md and atlas.html, these last."""
    folder.mkdir(parents=True, exist_ok=True)
    markdown, body = ["# Tightness atlas", "", typeset.to_markdown(INTRODUCTION)], ["<h1>Tightness atlas</h1>"]
    body.append(f"<p>{typeset.to_html(INTRODUCTION)}</p>")
    for claim in claims:
        own = [cell for cell in cells if cell.panel.id == claim.id]
        plots.save(picture(claim, own), folder, claim.id)
        said, name = summary(claim, own), html.escape(claim.id)
        heading = f"{claim.id} ({claim.label}, line {claim.line})"
        markdown += ["", f"## {typeset.plain_markdown(heading)}", "", typeset.to_markdown(claim.statement), ""]
        markdown += [f"[![{claim.id}]({claim.id}.png)]({claim.id}.svg)", "", typeset.to_markdown(said)]
        body.append(
            f'<article id="{name}"><h3>{html.escape(heading)}</h3><p>{typeset.to_html(claim.statement)}</p>'
            f'<a href="{name}.svg"><img src="{name}.png" alt="{name}: ratios over gamma L and K" loading="lazy"></a>'
            f"<p>{typeset.to_html(said)}</p></article>"
        )
    lines = ["claim,form,part,d,n,K,gamma_L,ratio"]
    for (id, form, part), d, n, K, g, ratio in cells:
        values = (id, form, part, d, n, K, f"{g:g}", None if ratio is None else f"{ratio:.10g}")
        lines.append(",".join("" if value is None else str(value) for value in values))
    texts = {
        "atlas.csv": "\n".join(lines) + "\n",
        "atlas.md": "\n".join(markdown) + "\n",
        "atlas.html": typeset.page("Tightness atlas", "\n".join(body)),
    }
    for name, text in texts.items():
        write_whole(folder / name, text)
    return [folder / name for name in texts]


def check_ids(ids: Sequence[str]) -> None:
    """Refuse a choice of claims that gives an empty atlas, before anything is run."""
    if not any(panels_of(find(id)) for id in ids):
        raise ValueError(f"--atlas must have a claim with an inequality in gamma, got only {', '.join(ids)}")


def draw(
    folder: Path,
    full: bool = False,
    *,
    ids: Sequence[str] | None = None,
    seed: int = 0,
    jobs: int = 1,
    effort: Effort | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> list[Path]:
    """Draw the atlas of these claims, by default of all, into a folder; nothing is written before all is known."""
    charted = {claim.id: own for claim in CLAIMS if (ids is None or claim.id in ids) and (own := panels_of(claim))}
    claims, panels = [find(id) for id in charted], [panel for own in charted.values() for panel in own]
    cells: list[Cell] = []
    for done, chunk in enumerate(charts(panels, effort or (FULL if full else QUICK), seed, jobs), start=1):
        cells += chunk
        report(f"atlas {done}/{len(panels)} {chunk[0].panel.id} {chunk[0].panel.form}")
    cells.sort(key=lambda cell: panels.index(cell.panel))
    return write(folder, claims, cells)
