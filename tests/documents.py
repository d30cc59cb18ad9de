"""The code blocks of the README and of docs/."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "benchmarks" / "speed" / "README.md")
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>slow|not run|needs): (?P<reason>[^\n]+) -->\n\n?)?```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """A block of code.

    Attributes:
        page: Path of the page, relative to the repository.
        line: Line of the page before the code.
        language: Its language; "notebook" for Python that begins with %.
        code: The code.
        mark: What the comment before the block says about running it: "slow", "not run" or "needs"; None without one.
        reason: The rest of that comment; for "needs" the name of a package.
    """

    page: str
    line: int
    language: str
    code: str
    mark: str | None
    reason: str | None

    @property
    def is_runnable(self) -> bool:
        """Whether the package that the block needs is installed."""
        return self.mark != "needs" or find_spec(str(self.reason)) is not None


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text, listed = path.read_text(), []
    for match in BLOCK.finditer(text):
        page, line = str(path.relative_to(ROOT)), text.count("\n", 0, match.start("code"))
        language = "notebook" if match["language"] == "python" and match["code"].startswith("%") else match["language"]
        listed.append(Block(page, line, language, match["code"], match["mark"], match["reason"]))
    return listed


ALL = tuple(block for path in PAGES for block in blocks(path))
