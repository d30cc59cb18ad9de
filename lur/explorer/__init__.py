"""The explorer: an interactive page that evaluates the closed forms of `theory` in the browser."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent
INLINED = ("page.css", "formulas.js", "draw.js", "page.js")


def page() -> str:
    """Return the page as one self-contained HTML file: `page.html` with its style sheet and scripts inlined."""
    html = (FOLDER / "page.html").read_text("utf-8")
    for name in INLINED:
        mark = f"/* {name} */"
        if html.count(mark) != 1:
            raise ValueError(f"page.html must contain {mark} once, got {html.count(mark)} times")
        html = html.replace(mark, "\n" + (FOLDER / name).read_text("utf-8"))
    return html
