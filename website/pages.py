"""Pages that are made from the repository when the site is built, so that they cannot drift from it."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markdown.extensions.toc import slugify

from theory.claims import CLAIMS
from theory.trials.errata import MEANINGS
from theory.trials.typeset import to_markdown

PEERS = {
    "lur": "lur",
    "floor": "floor: one gradient of all the round's examples: no local steps",
    "torch": "a hand-written PyTorch loop",
    "fedjax": "FedJAX",
    "pfl": "pfl",
    "flower": "Flower",
    "flower-1.41": "Flower 1.41",
}
FIRST = {
    "lur": (
        "methods.server",
        "methods.client",
        "theta",
        "methods.maml",
        "methods.decay",
        "methods.extrapolation",
        "methods.optimizers",
        "engine.run",
        "engine.grid",
        "parallel.layouts",
        "training.evaluation",
    ),
    "theory": ("problems", "surrogate", "spectrum", "distance", "moments", "convergence", "rates", "optimal", "affine"),
}
"""The modules that a reader wants first; the others follow by name."""
DEEPER = {"lur": ("tasks.task", "data.store", "data.writer", "data.sampling", "runs.train_run"), "theory": ()}
INNER = {"lur": ("jax_setup", "cache_folder", "plots"), "theory": ("enumeration", "exact", "precision")}
"""Modules for lur's own use."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A Markdown table; numbers to the right."""
    rule = ["---:" if column in right else "---" for column in range(len(header))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


def errata_anchors(errata: str) -> dict[str, str]:
    """Claim id -> anchor of its heading in the errata."""
    found = {}
    for line in errata.splitlines():
        if line.startswith("### Line "):
            title = line.removeprefix("### ").replace("\\", "")
            found[title.split(": ", 1)[1].split()[0]] = slugify(title, "-")
    return found


def claims(errata: str) -> str:
    """Every claim with the verdict on record, which `lur verify` must find again or fail."""
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
        "sides, and in exact arithmetic. It fails unless every verdict is the one on record, which this page shows. "
        "The [errata](errata.md) have what is true instead, with counterexamples in fractions; "
        "[the falsifier](falsifier.md) has been on trial itself.",
        table(("verdict", "claims", "meaning"), kinds, right=(1,)),
        "## Line by line",
        "Lines are those of the paper's LaTeX source.",
        table(("line", "claim", "verdict", "as printed"), rows, right=(0,)),
    ]) + "\n"  # fmt: skip


def benchmarks(results: Path) -> str:
    """The records of `lur bench speed` and of `lur reproduce`, as they are committed."""
    parts = [
        "# Benchmarks",
        "Measured by `lur bench speed`, in one run side by side, on the machine named; "
        "[how, and who takes part](speed.md). The records are JSON files in `benchmarks/results`; "
        "this page is made from them.",
    ]
    for path in sorted(results.glob("speed-*.json")):
        parts += race(json.loads(path.read_text()))
    parts += ["## The paper's figures", "At scale `small`, on stand-in data ([what that means](experiments.md))."]
    rows, pictures = [], []
    for path in sorted((results / "small").glob("*.json"), key=lambda path: (path.stem[:3], len(path.stem), path.stem)):
        record = json.loads(path.read_text())
        seen = Counter(verdict["agrees"] for verdict in record["verdicts"])
        title = record["title"].replace("$", "").replace("\\", "")
        rows.append((f"`{record['name']}`", title, *(str(seen[value]) for value in (True, False, None))))
        if path.with_suffix(".svg").exists():
            pictures.append(
                f"![{record['name']}: {title}](figures/small/{path.stem}.svg)\n\n*{record['name']}: {title}*"
            )
    parts.append(table(("", "", "agrees", "disagrees", "cannot tell"), rows, right=(2, 3, 4)))
    return "\n\n".join([*parts, *pictures]) + "\n"


def race(record: dict[str, Any]) -> list[str]:
    """One record of `lur bench speed`."""
    machine, results = record["machine"], sorted(record["results"], key=lambda row: row["seconds"])
    own = next((row["seconds"] for row in results if row["name"] == "lur"), None)
    rows = []
    for row in results:
        memory = "" if row["memory"] is None else f"{row['memory'] / 2**20:.0f}"
        times = "" if own is None else f"{row['seconds'] / own:.2f}"
        name = PEERS.get(row["name"], f"`{row['name']}`")
        rows.append((name, f"{row['seconds']:.4g}", times, f"{row['warm_up']:.1f}", memory))
    sizes = f"M = {record['M']}, K = {record['K']}, B = {record['B']}"
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['date']}"
    skipped = [
        f"Skipped: {PEERS.get(name, name)}: {why.splitlines()[0].split(' | ')[0]}."
        for name, why in (record.get("skipped") or {}).items()
    ]
    header = ("", "seconds a round", "times lur's", "warm-up, s", "memory, MB")
    return [f"## {record['task']}", f"{sizes}; {where}.", table(header, rows, right=(1, 2, 3, 4)), *skipped]


def api(package: str, root: Path) -> str:
    """The modules of a package, from their docstrings."""
    there = sorted(path.stem for path in (root / package).glob("*.py") if not path.stem.startswith("_"))
    others = [name for name in there if name not in FIRST[package] and name not in INNER[package]]
    blocks = [f"::: {package}.{module}" for module in (*FIRST[package], *others, *DEEPER[package])]
    return "\n\n".join([f"# `{package}`", *blocks]) + "\n"
