"""The explorer: one page in which the closed forms of `theory` run as sliders move."""

from pathlib import Path

HERE = Path(__file__).resolve().parent
PARTS = ("page.css", "formulas.js", "draw.js", "page.js")


def page() -> str:
    """The page as one HTML file that needs no other: `page.html` with its style and scripts put in."""
    text = (HERE / "page.html").read_text("utf-8")
    for name in PARTS:
        mark = f"/* {name} */"
        if text.count(mark) != 1:
            raise ValueError(f"page.html must have {mark} once, got it {text.count(mark)} times")
        text = text.replace(mark, "\n" + (HERE / name).read_text("utf-8"))
    return text
