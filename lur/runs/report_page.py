"""A report of runs as one self-contained HTML page, without scripts or external resources, and with all text escaped.

It shows what a folder holds so far: a run of `lur train`, a sweep, or the output of `lur reproduce`.
"""

import base64
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from lur.regular_files import kind_of, read_regular
from lur.runs import folder
from lur.runs.errors import RunError, excerpt
from lur.runs.figures import run_figure, sweep_figure
from lur.runs.reader import MAX_ROUND, read_run
from lur.runs.sweep_results import final_loss, format_rate, read_sweep, tune_server_lr

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
VERDICTS = {True: ("yes", "agrees"), False: ("no", "disagrees"), None: ("open", "undecided")}


def report_page(paths: Sequence[Path]) -> str:
    """The report of some folders, as HTML."""
    body = "".join(map(_checked_section, paths))
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>lur: report</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<h1>lur: report</h1>\n{body}</body>\n</html>\n"
    )
    return page.encode("utf-8", "replace").decode()  # JSON can hold halves of surrogate pairs


def _checked_section(path: Path) -> str:
    """The report of one folder. How many levels Python's printer goes down depends on its version."""
    try:
        return _section(path)
    except RecursionError:
        raise RunError(f"{path}: expected JSON of a few levels, found a value that is nested more deeply") from None


def _section(path: Path) -> str:
    """The report of one folder."""
    if not path.is_dir():
        raise RunError(f"{path}: expected the folder of a run, a sweep or `lur reproduce`, found no such folder")
    if kind_of(path / "run.json") is not None:
        kind = folder.read_run_info(path).get("kind")
        return _sweep_section(path) if kind == "sweep" else _train_section(path)
    records = [*path.glob("fig*.json"), *path.glob("table*.json")]
    if records:
        return _reproduced_section(path, sorted(records, key=_figure_order))
    raise RunError(f"{path}: expected run.json, or the fig*.json of `lur reproduce`, found neither")


def _figure_order(path: Path) -> tuple[str, int]:
    """A sort key: figures before tables, by number."""
    digits = "".join(c for c in path.stem if c.isdigit())
    return path.stem.rstrip("0123456789"), int(digits or 0)


def _train_section(path: Path) -> str:
    """A run of `lur train`, as far as it has come."""
    record = read_run(path)
    text = _config_and_environment(path, record.environment)
    done = record.rounds[-1]["round"] if record.rounds else 0
    asked = record.config.get("rounds", 0)
    if type(asked) is not int or not 0 <= asked < MAX_ROUND:
        raise RunError(f"{path / 'config.toml'}: expected an integer as rounds, found {excerpt(asked)}")
    why = f": {escape(str(record.why))}" if record.why else ""
    parts = [f"<h2>{escape(path.name)}</h2><p>{escape(record.state)} after {done:,} of {asked:,} rounds{why}</p>"]
    figure = run_figure(record)
    if figure is not None:
        parts.append(_image(figure, f"loss, norm of the update and rates of {path.name}"))
    if record.evaluations:
        names = [name for name in ("round", "f", "accuracy") if name in record.evaluations[-1]]
        rows = [[_format_value(line.get(name)) for name in names] for line in record.evaluations[-10:]]
        parts.append(_table(names, rows))
    return "".join(parts) + text


def _sweep_section(path: Path) -> str:
    """A sweep, as far as it has come."""
    results = read_sweep(path)
    rounds, sweep = results.sweep.run.rounds, results.sweep
    done = sum(len(cell.loss) for cell in results.cells)
    diverged = sum(cell.diverged is not None for cell in results.cells)
    state = "finished" if results.finished else "running" if folder.is_locked(path) else "stopped"
    parts = [
        f"<h2>{escape(path.name)}</h2><p>{state}: {len(results.cells)} cells of {rounds:,} rounds, {diverged} "
        f"diverged; the log has {done:,} rounds of all cells together</p>"
    ]
    by_rates = {(cell.gamma, cell.eta): cell for cell in results.cells}
    etas = sorted({cell.eta for cell in results.cells})
    grid = []
    for gamma in sorted({cell.gamma for cell in results.cells}):
        row = [f"{gamma:g}"]
        for eta in etas:
            cell = by_rates.get((gamma, eta))
            if cell is None:
                row.append("")
            elif cell.diverged:
                row.append(f"diverged in round {cell.diverged[0]}")
            elif len(cell.loss) >= rounds:
                row.append(_format_value(final_loss(cell, rounds)))
            else:
                row.append(f"{len(cell.loss):,} rounds")
        grid.append(row)
    parts.append(f"<h3>Mean loss over the last {results.window} rounds</h3>")
    parts.append(_table(["gamma \\ eta", *(format_rate(eta) for eta in etas)], grid))
    rows = tune_server_lr(results) if results.finished and not sweep.tied else []
    if rows:
        parts.append("<h3>Best eta for each gamma</h3>")
        best = [
            [
                f"{row.gamma:g}",
                "all diverged" if row.eta is None else format_rate(row.eta),
                _format_value(row.loss),
                _format_value(row.f),
            ]
            for row in rows
        ]
        parts.append(_table(["gamma", "eta", "loss", "f(x)"], best))
    figure = sweep_figure(results)
    if figure is not None:
        parts.append(_image(figure, f"loss of the cells of {path.name}; the best are coloured"))
    return "".join(parts) + _config_and_environment(path, results.environment)


def _reproduced_section(path: Path, records: Sequence[Path]) -> str:
    """The output of `lur reproduce`: each figure with its verdicts."""
    parts = [f"<h2>{escape(path.name)}</h2>"]
    entries = [(record, folder.read_json(record)) for record in records]
    verdicts = {record: _verdicts(record, entry) for record, entry in entries}
    found = [verdict.get("agrees") for entry in verdicts.values() for verdict in entry]
    counts = [sum(agrees is value for agrees in found) for value in (True, False, None)]
    parts.append(f"<p>{counts[0]} statements of the paper agree, {counts[1]} disagree, {counts[2]} are undecided.</p>")
    for record, entry in entries:
        title = str(entry.get("title", "")).replace("$", "").replace("\\", "")  # without the marks of formulas
        parts.append(f"<h3>{escape(str(entry.get('name', record.stem)))}: {escape(title)}</h3>")
        rounds, data = (_object(record, entry, name) for name in ("rounds", "data"))
        texts = "; ".join(f"{task}: {what}, {rounds.get(task)} rounds" for task, what in data.items())
        parts.append(f"<p>Scale {escape(str(entry.get('scale')))}. {escape(texts)}</p>")
        png, svg, table = (record.with_suffix(suffix) for suffix in (".png", ".svg", ".csv"))
        if kind_of(png) is not None:
            parts.append(_embed_image(_read(png), "png", record.stem))
        elif kind_of(svg) is not None:
            parts.append(_embed_image(_read(svg), "svg+xml", record.stem))
        elif kind_of(table) is not None:
            rows = [line.split(",") for line in _read(table).decode("utf-8", "replace").splitlines()[:40]]
            parts.append(_table(rows[0], rows[1:]) if rows else "")
        parts.append(_verdict_table(verdicts[record]))
    last, entry = entries[-1]
    environment = _object(last, entry, "environment")
    parts.append(f"<h3>Environment</h3><pre>{escape(json.dumps(environment, indent=1))}</pre>")
    return "".join(parts)


def _object(file: Path, entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object in a field of a record; an empty one if the field is missing."""
    value = entry.get(name, {})
    if not isinstance(value, dict):
        raise RunError(f"{file}: expected an object as {name}, found {excerpt(value)}")
    return value


def _verdicts(file: Path, entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The verdicts of a record."""
    verdicts = entry.get("verdicts", [])
    if not isinstance(verdicts, list):
        raise RunError(f"{file}: expected a list as verdicts, found {excerpt(verdicts)}")
    for verdict in verdicts:
        agrees = verdict.get("agrees") if isinstance(verdict, dict) else "no verdict"
        if not (agrees is None or isinstance(agrees, bool)):
            raise RunError(f"{file}: expected a verdict that agrees, disagrees or is null, found {excerpt(verdict)}")
    return verdicts


def _read(file: Path) -> bytes:
    """The content of a figure or a table."""
    return read_regular(file, folder.MAX_FILE_BYTES, error=RunError)


def _verdict_table(verdicts: Iterable[Mapping[str, Any]]) -> str:
    """The statements of the paper, what was observed, and whether they agree."""
    rows = []
    for verdict in verdicts:
        css_class, word = VERDICTS[verdict.get("agrees")]
        cells = "".join(f"<td>{escape(str(verdict.get(key)))}</td>" for key in ("task", "paper", "shows"))
        rows.append(f'<tr>{cells}<td class="{css_class}">{word}</td></tr>')
    if not rows:
        return ""
    head = "".join(f"<th>{name}</th>" for name in ("", "the paper", "here", ""))
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _config_and_environment(path: Path, environment: Mapping[str, Any]) -> str:
    """The configuration and environment of a run folder."""
    config = _read(path / "config.toml").decode("utf-8", "replace")
    return (
        f"<h3>Configuration</h3><pre>{escape(config)}</pre>"
        f"<h3>Environment</h3><pre>{escape(json.dumps(environment, indent=1))}</pre>"
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table with right-aligned cells."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f'<td class="n">{escape(str(cell))}</td>' for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _image(figure: Any, alt: str) -> str:
    """A matplotlib figure as an image in the page."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120)
    return _embed_image(file.getvalue(), "png", alt)


def _embed_image(content: bytes, kind: str, alt: str) -> str:
    """An image in the page. Scripts inside an SVG do not run in an <img> element."""
    code = base64.b64encode(content).decode()
    return f'<p><img alt="{escape(alt, quote=True)}" src="data:image/{kind};base64,{code}"></p>'


def _format_value(value: Any) -> str:
    """A value of a table."""
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
