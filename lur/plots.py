"""The style of all figures: colour-blind safe colours, saved as SVG and PNG.

matplotlib is imported when a figure is drawn.
"""

import io
from pathlib import Path
from typing import Any

from lur._extras import optional_imports

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito's palette

STYLE: Any = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.dpi": 120,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "svg.hashsalt": "lur",
}


def use() -> None:
    """Apply the style to all figures of a notebook."""
    with optional_imports("lur.plots"):
        import matplotlib.pyplot as plt
        from cycler import cycler

    plt.rcParams.update({**STYLE, "axes.prop_cycle": cycler(color=COLOURS)})


def panels(columns: int, **options: Any) -> tuple[Any, Any]:
    """Return a figure with a row of panels, and its axes. The figure needs no display.

    Args:
      columns: the number of panels.
      **options: arguments of `matplotlib.figure.Figure.subplots`.
    """
    with optional_imports("lur.plots"):
        from cycler import cycler
        from matplotlib import rc_context
        from matplotlib.figure import Figure

    with rc_context({**STYLE, "axes.prop_cycle": cycler(color=COLOURS)}):
        figure = Figure(figsize=(3.6 * columns, 2.8))
        axes = figure.subplots(1, columns, **options)
    return figure, axes


def save(figure: Any, folder: Path, name: str) -> tuple[Path, Path]:
    """Write a figure as NAME.svg and NAME.png; equal figures give equal files.

    Args:
      figure: the figure.
      folder: the folder, created if it does not exist.
      name: the name of the files without suffix.

    Returns:
      The paths of the two files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / f"{name}.svg", folder / f"{name}.png"
    for path, content in zip(paths, render(figure), strict=True):
        path.write_bytes(content)
    return paths


def render(figure: Any) -> tuple[bytes, bytes]:
    """Return a figure as SVG and as PNG; equal figures give equal bytes."""
    from matplotlib import rc_context

    svg, png = io.BytesIO(), io.BytesIO()
    with rc_context(STYLE):  # the ids inside an SVG depend on svg.hashsalt when it is written
        figure.savefig(svg, format="svg", metadata={"Date": None})
        figure.savefig(png, format="png", dpi=200)
    return svg.getvalue(), png.getvalue()
