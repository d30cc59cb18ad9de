"""A page about runs: one HTML file with everything in it, no scripts, nothing from elsewhere, all text escaped.

It shows what a folder holds so far: a run of `lur train`, a sweep, or what `lur reproduce` wrote.
"""

import base64
import io
import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from lur.runs import folder
from lur.runs.errors import RunError
from lur.runs.figures import run_figure, sweep_figure
from lur.runs.reader import read_run
from lur.runs.sweep_results import power, read_sweep, tail, tuned

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #111 }
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem; border-top: 1px solid #ccc; padding-top: 1rem } h3 { font-size: 1rem }
table { border-collapse: collapse; margin: .5rem 0 }
td, th { padding: .15rem .7rem; text-align: left; vertical-align: top }
th { border-bottom: 1px solid #999 } td.n { text-align: right; font-variant-numeric: tabular-nums }
img { max-width: 100% } pre { background: #f5f5f5; padding: .7rem; overflow-x: auto; font-size: 12px }
.yes { color: #00724f } .no { color: #b34700; font-weight: 600 } .open { color: #555 }
@media (prefers-color-scheme: dark) { body { background: #fff } }
"""
AGREES = {True: ("yes", "agrees"), False: ("no", "disagrees"), None: ("open", "cannot tell")}


def page(paths: Sequence[Path]) -> str:
    """The report of some folders."""
    body = "".join(section(path) for path in paths)
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>lur: report</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<h1>lur: report</h1>\n{body}</body>\n</html>\n"
    )


def section(path: Path) -> str:
    """One folder."""
    if not path.is_dir():
        raise RunError(f"{path}: expected the folder of a run, a sweep or `lur reproduce`, found none")
    if (path / "run.json").exists():
        kind = folder.about(path).get("kind")
        return sweep_section(path) if kind == "sweep" else train_section(path)
    records = [*path.glob("fig*.json"), *path.glob("table*.json")]
    if records:
        return reproduced_section(path, sorted(records, key=figure_order))
    raise RunError(f"{path}: expected run.json, or the fig*.json of `lur reproduce`, found neither")


def figure_order(path: Path) -> tuple[str, int]:
    """Figures before tables, by their numbers."""
    digits = "".join(c for c in path.stem if c.isdigit())
    return path.stem.rstrip("0123456789"), int(digits or 0)


def train_section(path: Path) -> str:
    """A run of `lur train`, as far as it is."""
    record = read_run(path)
    done = record.rounds[-1]["round"] if record.rounds else 0
    asked = record.config.get("rounds", 0)
    if not isinstance(asked, int):
        raise RunError(f"{path / 'config.toml'}: expected a whole number of rounds, found {str(asked)[:80]!r}")
    why = f": {escape(str(record.why))}" if record.why else ""
    parts = [f"<h2>{escape(path.name)}</h2><p>{escape(record.state)} after {done:,} of {asked:,} rounds{why}</p>"]
    figure = run_figure(record)
    if figure is not None:
        parts.append(image(figure, f"loss, norm of the update and rates of {path.name}"))
    if record.evaluations:
        names = [name for name in ("round", "f", "accuracy") if name in record.evaluations[-1]]
        parts.append(table(names, [[shown(line.get(name)) for name in names] for line in record.evaluations[-10:]]))
    return "".join(parts) + about(path, record.environment)


def sweep_section(path: Path) -> str:
    """A sweep, as far as it is."""
    found = read_sweep(path)
    rounds, sweep = found.sweep.run.rounds, found.sweep
    done = sum(len(cell.loss) for cell in found.cells)
    gone = sum(cell.diverged is not None for cell in found.cells)
    state = "finished" if found.finished else "running" if folder.is_held(path) else "stopped"
    parts = [
        f"<h2>{escape(path.name)}</h2><p>{state}: {len(found.cells)} cells of {rounds:,} rounds, {gone} diverged; "
        f"{done:,} rounds of cells in the log</p>"
    ]
    by = {(cell.gamma, cell.eta): cell for cell in found.cells}
    etas = sorted({cell.eta for cell in found.cells})
    grid = []
    for gamma in sorted({cell.gamma for cell in found.cells}):
        row = [f"{gamma:g}"]
        for eta in etas:
            cell = by.get((gamma, eta))
            if cell is None:
                row.append("")
            elif cell.diverged:
                row.append(f"diverged in round {cell.diverged[0]}")
            else:
                row.append(shown(tail(cell, rounds)) if len(cell.loss) >= rounds else f"{len(cell.loss):,} rounds")
        grid.append(row)
    parts.append(f"<h3>Mean loss over the last {found.window} rounds</h3>")
    parts.append(table(["gamma \\ eta", *(power(eta) for eta in etas)], grid))
    rows = tuned(found) if found.finished and not sweep.tied else []
    if rows:
        parts.append("<h3>Best eta for each gamma</h3>")
        best = [
            [f"{r.gamma:g}", "none left" if r.eta is None else power(r.eta), shown(r.loss), shown(r.f)] for r in rows
        ]
        parts.append(table(["gamma", "eta", "loss", "f(x)"], best))
    figure = sweep_figure(found)
    if figure is not None:
        parts.append(image(figure, f"loss of the cells of {path.name}; the best are coloured"))
    return "".join(parts) + about(path, found.environment)


def reproduced_section(path: Path, records: Sequence[Path]) -> str:
    """What `lur reproduce` wrote: each figure with its verdicts."""
    parts = [f"<h2>{escape(path.name)}</h2>"]
    entries = [(one, folder.read_json(one)) for one in records]
    verdicts = [v for _, entry in entries for v in entry.get("verdicts", []) if isinstance(v, dict)]
    counts = [sum(v.get("agrees") is value for v in verdicts) for value in (True, False, None)]
    parts.append(f"<p>{counts[0]} statements of the paper agree, {counts[1]} disagree, {counts[2]} cannot be told.</p>")
    for one, entry in entries:
        parts.append(
            f"<h3>{escape(str(entry.get('name', one.stem)))}: {escape(plain_title(entry.get('title', '')))}</h3>"
        )
        data = entry.get("data", {})
        text = "; ".join(f"{task}: {what}, {entry.get('rounds', {}).get(task)} rounds" for task, what in data.items())
        parts.append(f"<p>Scale {escape(str(entry.get('scale')))}. {escape(text)}</p>")
        picture = one.with_suffix(".png")
        vector = one.with_suffix(".svg")
        if picture.exists():
            parts.append(embedded(picture.read_bytes(), "png", one.stem))
        elif vector.exists():
            parts.append(embedded(vector.read_bytes(), "svg+xml", one.stem))
        elif one.with_suffix(".csv").exists():
            rows = [line.split(",") for line in one.with_suffix(".csv").read_text().splitlines()[:40]]
            parts.append(table(rows[0], rows[1:]) if rows else "")
        parts.append(judged(entry.get("verdicts", [])))
    environment = entries[-1][1].get("environment", {})
    parts.append(f"<h3>Environment</h3><pre>{escape(json.dumps(environment, indent=1))}</pre>")
    return "".join(parts)


def judged(verdicts: Iterable[Any]) -> str:
    """The paper's statements beside what was seen."""
    rows = []
    for one in verdicts:
        name, word = AGREES.get(one.get("agrees"), AGREES[None])
        cells = "".join(f"<td>{escape(str(one.get(key)))}</td>" for key in ("task", "paper", "shows"))
        rows.append(f'<tr>{cells}<td class="{name}">{word}</td></tr>')
    if not rows:
        return ""
    head = "".join(f"<th>{name}</th>" for name in ("", "the paper", "here", ""))
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def about(path: Path, environment: dict[str, Any]) -> str:
    """Configuration and environment of a run folder."""
    config = (path / "config.toml").read_text("utf-8", "replace")
    return (
        f"<h3>Configuration</h3><pre>{escape(config)}</pre>"
        f"<h3>Environment</h3><pre>{escape(json.dumps(environment, indent=1))}</pre>"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table; numbers to the right."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f'<td class="n">{escape(str(text))}</td>' for text in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def image(figure: Any, alt: str) -> str:
    """A figure inside the page."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120)
    return embedded(file.getvalue(), "png", alt)


def embedded(content: bytes, kind: str, alt: str) -> str:
    """A picture inside the page: as an image, so that nothing in it runs."""
    code = base64.b64encode(content).decode()
    return f'<p><img alt="{escape(alt, quote=True)}" src="data:image/{kind};base64,{code}"></p>'


def plain_title(title: str) -> str:
    """A title without the marks of formulas."""
    return str(title).replace("$", "").replace("\\", "")


def shown(value: Any) -> str:
    """A value of a table."""
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
