"""`./run docs`: builds the site in build/site from the pages in docs/ and from the repository itself.

It first stages the pages in build/docs, with rewritten links and included code, together with those that
`website.pages` generates. Then Zensical, the successor of Material for MkDocs (which gets fixes until May 2027), builds
the site; a warning fails the build. The site needs no network: it loads no fonts or scripts, and mathematics is MathML.
Opened as files, without a server, only its search does not work.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from lur.explorer import page as explorer
from website import pages
from website.included_code import ROOT, with_code

STAGE = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"
ELSEWHERE = {"benchmarks/speed/README.md": "speed.md"}  # pages that are next to their subject
LINK = re.compile(r"(?<!`)(\[[^\]]*\]\()([^)\s]+)(\))")
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".md": "markdown", ".sh": "bash", ".js": "javascript"}


class Links:
    """Turns links between files of the repository into links of the site; linked source files become pages.

    Attributes:
        wanted: Source files that pages link to.
    """

    def __init__(self) -> None:
        self.wanted: set[Path] = set()

    def rewritten(self, text: str, origin: Path, staged: Path) -> str:
        """The Markdown of the file `origin` with links that work from the page `staged`."""

        def rewrite(match: re.Match[str]) -> str:
            target, _, anchor = match[2].partition("#")
            if not target or "://" in target or target.startswith("mailto:"):
                return match[0]
            path = Path(os.path.normpath(origin.parent / target))
            if not path.is_relative_to(ROOT):
                raise ValueError(f"{origin} must link to a file in the repository, got {match[2]}")
            name = path.relative_to(ROOT)
            if name.parts[0] == "docs" or str(name) in ELSEWHERE:
                goal = STAGE / ELSEWHERE.get(str(name), Path(*name.parts[1:]))
            elif path.exists():
                self.wanted.add(path)
                goal = STAGE / "source" / f"{name}.md"
            else:
                raise ValueError(f"{origin} must link to an existing file, got {match[2]}")
            return f"{match[1]}{os.path.relpath(goal, staged.parent)}{'#' + anchor if anchor else ''}{match[3]}"

        parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)  # links in code stay
        return "".join(part if k % 2 else LINK.sub(rewrite, part) for k, part in enumerate(parts))


def source_page(path: Path) -> str:
    """A page that shows a file or lists a folder."""
    name = path.relative_to(ROOT)
    if path.is_dir():
        listed = sorted(child.name for child in path.iterdir() if not child.name.startswith(("_", ".")))
        return f"# {name}/\n\n" + "\n".join(f"- `{child}`" for child in listed) + "\n"
    return f"# {name}\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text().rstrip()}\n````\n"


def stage() -> None:
    """Writes all pages into build/docs."""
    shutil.rmtree(STAGE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", STAGE, ignore=shutil.ignore_patterns("*.md", "errata.html"))
    links = Links()
    for origin in [*sorted((ROOT / "docs").glob("*.md")), *(ROOT / name for name in ELSEWHERE)]:
        staged = STAGE / ELSEWHERE.get(str(origin.relative_to(ROOT)), origin.name)
        staged.write_text(links.rewritten(with_code(origin.read_text()), origin, staged))
    generated = {
        "claims.md": pages.claims((ROOT / "docs" / "errata.md").read_text()),
        "benchmarks.md": pages.benchmarks(ROOT / "benchmarks" / "results"),
        **{f"api/{room.package}.md": pages.api(room, ROOT) for room in pages.ROOMS},
        **{f"source/{path.relative_to(ROOT)}.md": source_page(path) for path in links.wanted},
        "explorer-page.html": explorer(),
        "site.css": (Path(__file__).parent / "site.css").read_text(),
    }
    for name, text in generated.items():
        (STAGE / name).parent.mkdir(parents=True, exist_ok=True)
        (STAGE / name).write_text(text)
    (STAGE / "figures" / "small").mkdir(parents=True)
    for path in (ROOT / "benchmarks" / "results" / "small").glob("*.svg"):
        shutil.copy(path, STAGE / "figures" / "small")


def main() -> int:
    """Stages and builds the site. Returns the exit status: 1 if there is a warning."""
    stage()
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=ROOT, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    if done.returncode == 0:
        print(SITE / "index.html")
    return 1 if done.returncode else 0


if __name__ == "__main__":
    raise SystemExit(main())
