"""The tightness atlas: a picture per claim of how close its bounds come to being attained, and pages to browse them."""

import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from theory.claims import CLAIMS, find
from theory.claims.claim import Claim
from theory.reports import typeset
from theory.reports.files import write_atomically
from theory.reports.style import DrawingStyle
from theory.reports.tightness import (
    FULL,
    QUICK,
    VIOLATED,
    Cell,
    Effort,
    Panel,
    charts,
    panels_of,
    rate_of,
    trial_of,
)
from theory.trials.implementation import REFERENCE, Implementation
from theory.trials.workers import do_nothing

FAINTEST = 1e-3  # the lowest ratio with a colour of its own


def _title(panel: Panel, panels: list[Panel], claim: Claim) -> str:
    """The form of the bound that a panel shows, numbered if there are several."""
    form = "printed" if panel.form == "printed" else "sharper" if claim.expected == "HOLDS" else "corrected"
    same = [p for p in panels if p.form == panel.form]
    return form if len(same) == 1 else f"{form} ({same.index(panel) + 1})"


def picture(claim: Claim, cells: list[Cell], style: DrawingStyle) -> Any:
    """Returns a figure of a claim's panels, one below the other.

    The colour scale is the same for the whole atlas; orange means that the bound fails.
    """
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm

    panels = list(dict.fromkeys(cell.panel for cell in cells))
    columns = sorted({cell.gamma_L for cell in cells if cell.ratio is not None})
    rows = {panel: sorted({cell.K or 0 for cell in cells if cell.panel == panel}) for panel in panels}
    norm = LogNorm(FAINTEST, VIOLATED)
    colours = colormaps["cividis"].with_extremes(over=style.COLOURS[1])
    figure, axes = style.panels(len(panels), squeeze=False, sharex=True)
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
        visible = np.ma.masked_invalid(np.maximum(grid, FAINTEST))
        image = axis.pcolormesh(visible, norm=norm, cmap=colours, edgecolors="white", linewidth=0.6)
        for (row, column), ratio in np.ndenumerate(grid):
            if np.isfinite(ratio):
                ink = "white" if norm(max(ratio, FAINTEST)) < 0.55 else "black"
                axis.text(column + 0.5, row + 0.5, short_ratio(ratio), ha="center", va="center", fontsize=7, color=ink)
        axis.grid(False)
        axis.set_facecolor("0.93")
        axis.patch.set(hatch="////", edgecolor="0.8")
        axis.set_xticks(np.arange(len(columns)) + 0.5, [f"{g:g}" for g in columns], fontsize=8)
        axis.set_yticks(np.arange(len(grid)) + 0.5, [str(K) if K else "any" for K in rows[panel]], fontsize=8)
        axis.tick_params(length=0, labelbottom=panel == panels[-1])
        axis.set_ylabel("$K$")
        axis.set_title(_title(panel, panels, claim), fontsize=9, loc="left")
    rate = rate_of(trial_of(panels[0]).space) or "gamma"
    axes[0][-1].set_xlabel(f"${typeset.symbol(rate)} L$")
    bar = figure.colorbar(image, ax=list(axes[0]), extend="max", pad=0.02, fraction=0.06, aspect=18)
    bar.set_ticks([1e-3, 1e-2, 1e-1, 1], labels=["0.001", "0.01", "0.1", "1"], fontsize=7)
    bar.ax.minorticks_off()
    bar.set_label("left / right", fontsize=8)
    figure.suptitle(f"{claim.id}  {claim.label}".replace("$", r"\$"), fontsize=10)
    return figure


def short_ratio(ratio: float) -> str:
    """Returns a ratio in the few characters that fit into a cell."""
    if ratio < 5e-4:
        return "0"
    if ratio >= 1000:
        return f"{ratio:.0e}".replace("e+0", "e").replace("e+", "e")
    return f"{ratio:.2f}".lstrip("0") if 0.0095 <= ratio < 10 else f"{ratio:.1g}" if ratio < 1 else f"{ratio:.0f}"


def _summary(claim: Claim, cells: list[Cell]) -> str:
    """Where each panel is tightest, in a sentence."""
    panels, sentences = list(dict.fromkeys(cell.panel for cell in cells)), []
    for panel in panels:
        known = [cell for cell in cells if cell.panel == panel and cell.ratio is not None]
        if not known:
            sentences.append(f"{_title(panel, panels, claim)}: no instance within the range")
            continue
        top = max(known, key=lambda cell: cell.ratio or 0)
        at = rf"$\gamma L = {top.gamma_L:g}$" + (f", $K = {top.K}$" if top.K else "")
        sentences.append(f"{_title(panel, panels, claim)}: largest {top.ratio:.3g}, at {at}")
    return "; ".join(sentences) + "."


INTRODUCTION = (
    r"For every inequality, the largest left side / right side that gradient ascent found with $\gamma L$ and $K$ "
    r"held fixed and the rest of the instance free. 1 means that the bound is attained and cannot be improved there; "
    r"orange, above 1, that it is violated, in exact arithmetic too; hatched, that no instance was found, usually "
    r"because $\gamma$ is out of the claim's range. The colour scale is the same for all claims. Every ratio is a "
    r"lower bound of the true maximum, for the sizes d and n in `atlas.csv`."
)


def _write(folder: Path, claims: list[Claim], cells: list[Cell], style: DrawingStyle) -> list[Path]:
    """Writes the pictures first, then atlas.csv and the pages atlas.md and atlas.html."""
    folder.mkdir(parents=True, exist_ok=True)
    markdown, body = ["# Tightness atlas", "", typeset.to_markdown(INTRODUCTION)], ["<h1>Tightness atlas</h1>"]
    body.append(f"<p>{typeset.to_html(INTRODUCTION)}</p>")
    for claim in claims:
        cells_of_claim = [cell for cell in cells if cell.panel.id == claim.id]
        style.save(picture(claim, cells_of_claim, style), folder, claim.id)
        summary, name = _summary(claim, cells_of_claim), html.escape(claim.id)
        heading = f"{claim.id} ({claim.label}, line {claim.line})"
        markdown += ["", f"## {typeset.escape_markdown(heading)}", "", typeset.to_markdown(claim.statement), ""]
        markdown += [f"[![{claim.id}]({claim.id}.png)]({claim.id}.svg)", "", typeset.to_markdown(summary)]
        body.append(
            f'<article id="{name}"><h3>{html.escape(heading)}</h3><p>{typeset.to_html(claim.statement)}</p>'
            f'<a href="{name}.svg"><img src="{name}.png" alt="{name}: ratios over gamma L and K" loading="lazy"></a>'
            f"<p>{typeset.to_html(summary)}</p></article>"
        )
    lines = ["claim,form,part,d,n,K,gamma_L,ratio"]
    for (id, form, part), d, n, K, g, ratio in cells:
        values = (id, form, part, d, n, K, f"{g:g}", None if ratio is None else f"{ratio:.10g}")
        lines.append(",".join("" if value is None else str(value) for value in values))
    files = {
        "atlas.csv": "\n".join(lines) + "\n",
        "atlas.md": "\n".join(markdown) + "\n",
        "atlas.html": typeset.page("Tightness atlas", "\n".join(body)),
    }
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [folder / name for name in files]


def check_ids(ids: Sequence[str]) -> None:
    """Refuses a choice of claims that would give an empty atlas."""
    if not any(panels_of(find(id)) for id in ids):
        raise ValueError(f"--atlas must have a claim with an inequality in gamma, got only {', '.join(ids)}")


def draw(
    folder: Path,
    full: bool = False,
    *,
    style: DrawingStyle,
    ids: Sequence[str] | None = None,
    seed: int = 0,
    jobs: int = 1,
    effort: Effort | None = None,
    report: Callable[[str], None] = lambda line: None,
    implementation: Implementation = REFERENCE,
    prepare: Callable[[], None] = do_nothing,
) -> list[Path]:
    """Draws the atlas into a folder; nothing is written before all ratios are known.

    Args:
      folder: where it goes; made if necessary.
      full: a finer grid and a longer ascent.
      style: how figures look, such as `lur.plots`.
      ids: the claims, by default all.
      seed: the seed of all sampling.
      jobs: the number of processes.
      effort: in place of `full`.
      report: called with a line after each panel.
      implementation: the algorithms on trial.
      prepare: called once in each process before it computes.
    """
    panels_by_id = {
        claim.id: panels for claim in CLAIMS if (ids is None or claim.id in ids) and (panels := panels_of(claim))
    }
    panels = [panel for panels in panels_by_id.values() for panel in panels]
    options: Any = {"implementation": implementation, "prepare": prepare}
    cells: list[Cell] = []
    for done, chunk in enumerate(charts(panels, effort or (FULL if full else QUICK), seed, jobs, **options), start=1):
        cells += chunk
        report(f"atlas {done}/{len(panels)} {chunk[0].panel.id} {chunk[0].panel.form}")
    cells.sort(key=lambda cell: panels.index(cell.panel))
    return _write(folder, [find(id) for id in panels_by_id], cells, style)
