"""The code blocks of the README and of docs/."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "benchmarks" / "speed" / "README.md")
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>slow|not run): (?P<why>[^\n]+) -->\n\n?)?```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """A block of code: where, in which language, and whether a comment before it says that it is slow or cannot run."""

    page: str
    line: int
    language: str
    code: str
    mark: str | None
    why: str | None


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a page, in order. Python that begins with % is a line for a notebook."""
    text, found = path.read_text(), []
    for match in BLOCK.finditer(text):
        page, line = str(path.relative_to(ROOT)), text.count("\n", 0, match.start("code"))
        language = "notebook" if match["language"] == "python" and match["code"].startswith("%") else match["language"]
        found.append(Block(page, line, language, match["code"], match["mark"], match["why"]))
    return found


ALL = tuple(block for path in PAGES for block in blocks(path))
