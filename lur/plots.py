"""One look for all figures: colour-blind safe, labelled in the paper's symbols, saved as vector and PNG."""

from pathlib import Path
from typing import Any

from lur._extras import optional_imports

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito

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
    """The house style for all figures of a notebook."""
    with optional_imports("lur.plots"):
        import matplotlib.pyplot as plt
        from cycler import cycler

    plt.rcParams.update({**STYLE, "axes.prop_cycle": cycler(color=COLOURS)})


def panels(columns: int, **options: Any) -> tuple[Any, Any]:
    """A figure with a row of panels in the house style, drawn without a display."""
    with optional_imports("lur.plots"):
        from cycler import cycler
        from matplotlib import rc_context
        from matplotlib.figure import Figure

    with rc_context({**STYLE, "axes.prop_cycle": cycler(color=COLOURS)}):
        figure = Figure(figsize=(3.6 * columns, 2.8))
        axes = figure.subplots(1, columns, **options)
    return figure, axes


def save(figure: Any, folder: Path, name: str) -> tuple[Path, Path]:
    """Write NAME.svg and NAME.png into a folder, made if it is not there. The same figure is the same bytes."""
    from matplotlib import rc_context

    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / f"{name}.svg", folder / f"{name}.png"
    with rc_context(STYLE):  # the names inside an SVG are made when it is written
        figure.savefig(paths[0], metadata={"Date": None})
        figure.savefig(paths[1], dpi=200)
    return paths
