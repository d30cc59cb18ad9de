"""Pages generated from the repository when the site is built: claims, benchmarks and the API."""

import ast
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markdown.extensions.toc import slugify

from theory.claims import CLAIMS
from theory.reports.errata import MEANINGS
from theory.reports.typeset import to_markdown

PEERS = {
    "lur": "lur",
    "floor": "floor: one gradient of all the examples of a round, without local steps",
    "torch": "a hand-written PyTorch loop",
    "fedjax": "FedJAX",
    "pfl": "pfl",
    "flower": "Flower",
    "flower-1.41": "Flower 1.41",
}


class Room(NamedTuple):
    """A package whose public modules an API page documents.

    Attributes:
        package: Dotted name of the package.
        first: Modules that a reader needs first, if they exist; the others follow in alphabetical order.
        internal: Modules that only the package itself uses.
    """

    package: str
    first: tuple[str, ...] = ()
    internal: tuple[str, ...] = ()


ROOMS = (
    Room("lur", ("theta",), internal=("cache_folder", "jax_setup", "plots")),
    Room("lur.methods", ("method", "local_update", "decay", "maml", "optimizers", "aggregation")),
    Room("lur.engine", ("run", "grid", "batches")),
    Room("lur.engine.fast"),
    Room("lur.parallel", ("layouts",)),
    Room("lur.data", ("store", "writer", "prepare", "sampling")),
    Room("lur.models"),
    Room("lur.tasks", ("task",)),
    Room("lur.training", ("configuration", "loop", "evaluation")),
    Room("lur.runs", ("train_run", "sweep_run", "sweep_results")),
    Room("lur.analysis"),
    Room(
        "theory",
        ("problems", "surrogate", "spectrum", "distance", "moments", "convergence", "rates", "optimal", "affine"),
        internal=("enumeration", "exact", "precision"),
    ),
)
"""The API pages, one for each room. The command line, the readers of files and the generators of data have none."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A Markdown table; the columns in `right` are aligned to the right."""
    rule = ["---:" if column in right else "---" for column in range(len(header))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


def errata_anchors(errata: str) -> dict[str, str]:
    """Maps the id of a claim to the anchor of its heading in the errata."""
    anchors = {}
    for line in errata.splitlines():
        if line.startswith("### Line "):
            title = line.removeprefix("### ").replace("\\", "")
            anchors[title.split(": ", 1)[1].split()[0]] = slugify(title, "-")
    return anchors


def claims(errata: str) -> str:
    """The page of claims: each with its recorded verdict, which `lur verify` must reproduce."""
    anchors = errata_anchors(errata)
    counts = Counter(claim.expected for claim in CLAIMS)
    rows = []
    for claim in sorted(CLAIMS, key=lambda claim: claim.line):
        verdict = f"[{claim.expected}](errata.md#{anchors[claim.id]})" if claim.id in anchors else claim.expected
        rows.append((str(claim.line), f"`{claim.id}`", verdict, to_markdown(claim.statement)))
    kinds = [
        (name, str(counts[name]), meaning.replace("is below", "is in the errata"))
        for name, meaning in MEANINGS.items()
        if counts[name]
    ]
    return "\n\n".join([
        "# The paper's claims",
        f"`lur verify` puts all {len(CLAIMS)} claims on trial: by sampling, by gradient ascent on the ratio of the two "
        "sides, and in exact arithmetic. It fails unless every verdict is the recorded one, which this page shows. "
        "The [errata](errata.md) state what is true instead, with counterexamples in fractions; "
        "[the falsifier](falsifier.md) is itself on trial.",
        table(("verdict", "claims", "meaning"), kinds, right=(1,)),
        "## Line by line",
        "Line numbers refer to the paper's LaTeX source.",
        table(("line", "claim", "verdict", "as printed"), rows, right=(0,)),
    ]) + "\n"  # fmt: skip


def benchmarks(results: Path) -> str:
    """The page of benchmarks: the committed records of `lur bench speed` and `lur reproduce`."""
    parts = [
        "# Benchmarks",
        "Measured by `lur bench speed`: each table is one run, in which the contenders alternate on the machine named. "
        "[How speed is measured](speed.md) describes the contenders. The floor is one gradient of all the examples of "
        "a round, its cost without local steps. This page is generated from the records in `benchmarks/results`.",
    ]
    for path in sorted(results.glob("speed-*.json")):
        parts += race(json.loads(path.read_text()))
    parts += ["## The paper's figures", "At scale `small`, on built-in data ([what that means](experiments.md))."]
    rows, pictures = [], []
    for path in sorted((results / "small").glob("*.json"), key=lambda path: (path.stem[:3], len(path.stem), path.stem)):
        record = json.loads(path.read_text())
        verdicts = Counter(verdict["agrees"] for verdict in record["verdicts"])
        title = record["title"].replace("$", "").replace("\\", "")
        rows.append((f"`{record['name']}`", title, *(str(verdicts[value]) for value in (True, False, None))))
        if path.with_suffix(".svg").exists():
            pictures.append(
                f"![{record['name']}: {title}](figures/small/{path.stem}.svg)\n\n*{record['name']}: {title}*"
            )
    parts.append(table(("", "", "agrees", "disagrees", "cannot tell"), rows, right=(2, 3, 4)))
    return "\n\n".join([*parts, *pictures]) + "\n"


def race(record: dict[str, Any]) -> list[str]:
    """The section of one record of `lur bench speed`."""
    machine, results = record["machine"], sorted(record["results"], key=lambda row: row["seconds"])
    lur_seconds = next((row["seconds"] for row in results if row["name"] == "lur"), None)
    rows = []
    for row in results:
        memory = "" if row["memory"] is None else f"{row['memory'] / 2**20:.0f}"
        times = "" if lur_seconds is None else f"{row['seconds'] / lur_seconds:.2f}"
        name = PEERS.get(row["name"], f"`{row['name']}`")
        rows.append((name, f"{row['seconds']:.4g}", times, f"{row['warm_up']:.1f}", memory))
    sizes = f"M = {record['M']}, K = {record['K']}, B = {record['B']}"
    hardware = f"{machine['processor']}, {machine['cores']} cores, {machine['date']}"
    skipped = [
        f"Skipped: {PEERS.get(name, name)}: {reason.splitlines()[0].split(' | ')[0]}."
        for name, reason in (record.get("skipped") or {}).items()
    ]
    header = ("", "seconds per round", "relative to lur", "warm-up, s", "memory, MB")
    return [f"## {record['task']}", f"{sizes}; {hardware}.", table(header, rows, right=(1, 2, 3, 4)), *skipped]


def public_modules(room: Path, first: Sequence[str], internal: Sequence[str] = ()) -> list[str]:
    """Names of the documented public modules in a folder: without underscore, those in `first` before the others."""
    names = sorted(
        path.stem
        for path in room.glob("*.py")
        if not path.stem.startswith("_") and path.stem not in internal and defines_anything(path)
    )
    return sorted(names, key=lambda name: first.index(name) if name in first else len(first))


def defines_anything(path: Path) -> bool:
    """Whether a module defines a public function or class."""
    nodes = ast.parse(path.read_text()).body
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_") for node in nodes)


def documented_modules(room: Room, root: Path) -> list[str]:
    """Dotted names of what the page of a room documents: the package, if it defines anything, and its modules."""
    folder = root / room.package.replace(".", "/")
    modules = [f"{room.package}.{name}" for name in public_modules(folder, room.first, room.internal)]
    return [room.package, *modules] if defines_anything(folder / "__init__.py") else modules


def shortcuts(root: Path) -> str:
    """A table of the names that `import lur` makes reachable, with links to their modules."""
    documented = {module: room.package for room in ROOMS for module in documented_modules(room, root)}
    rows = []
    for node in ast.walk(ast.parse((root / "lur" / "__init__.py").read_text())):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("lur"):
            continue
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            module = next((name for name in (full, node.module) if name in documented), None)
            target = f"`{full}`" if module is None else f"[`{full}`]({documented[module]}.md#{module})"
            rows.append((f"`lur.{alias.asname or alias.name}`", target))
    return table(("name", "defined as"), sorted(rows))


def api(room: Room, root: Path) -> str:
    """The API page of a room: the package's description, then its public modules from their docstrings."""
    docstring = ast.get_docstring(ast.parse((root / room.package.replace(".", "/") / "__init__.py").read_text()))
    rooms = [other.package for other in ROOMS if other.package.startswith(f"{room.package}.")]
    links = [shortcuts(root)] if room.package == "lur" else []
    links += ["Packages: " + ", ".join(f"[`{name}`]({name}.md)" for name in rooms) + "."] if rooms else []
    blocks = [f"::: {module}" for module in documented_modules(room, root)]
    return "\n\n".join([f"# `{room.package}`", docstring or "", *links, *blocks]) + "\n"
