"""The errata: what is printed in the paper, line by line, beside what is true, with counterexamples in fractions.

Made from the rows of `theory.trials.verify`, in Markdown and in HTML. The same rows give the same bytes: no times,
no dates.
"""

import html
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from theory.trials.typeset import (
    markdown_mathematics,
    number,
    page,
    plain_markdown,
    symbol,
    to_html,
    to_markdown,
)
from theory.trials.verify import write_whole

TITLE = "Errata to “On the Outsized Importance of Learning Rates in Local Update Methods”"
MEANINGS = {
    "FALSE": "a counterexample in exact numbers is below; the true form stood the same trial",
    "TYPO": "false as printed, by a misprint; mended, it stood the trial",
    "NEEDS": "false as printed, true under an assumption that is not stated",
    "UNDECIDED": "neither proved false nor left standing",
    "DEFINITION": "nothing to decide; conventions that the text leaves open",
    "HOLDS": "no violation was found; equalities were also checked exactly, in fractions",
}
SHOWN_FINDINGS = 3
SEPARATOR = r",\quad "


class Display(NamedTuple):
    """Formulas on lines of their own, broken between them where they do not fit."""

    formulas: tuple[str, ...]


class Entry(NamedTuple):
    """One claim of the sheet: its row and what there is to say, as (term, texts and formulas)."""

    row: dict[str, Any]
    facts: list[tuple[str, list[str | Display]]]


def kinds(id: str) -> tuple[str, str]:
    """What the measures of a claim and of its correction are: "ratio", "discrepancy", or "" where they are neither."""
    from theory.claims import CLAIMS

    claim = next((claim for claim in CLAIMS if claim.id == id), None)
    if claim is None:
        return "", ""
    relations = [{getattr(part, "relation", "") for part in parts} for parts in (claim.trial, claim.correction)]
    first, second = ("ratio" if "<=" in found else "discrepancy" if "==" in found else "" for found in relations)
    return first, second


def measure(value: float) -> str:
    """A ratio to four digits; one that pursuit drove to nothing is 0."""
    shown = "0" if abs(value) < 1e-20 else f"{value:.4g}"
    return f"${number(shown)}$" if "e" in shown else shown


def entries_of(side: str) -> list[str]:
    """The numbers of one side of a counterexample."""
    return [part.strip() for part in side.strip("[]").split(",")]


def tuple_of(values: Iterable[Any]) -> str:
    """Numbers as one number or a tuple."""
    shown = [number(value) for value in values]
    return shown[0] if len(shown) == 1 else r"\left(" + r",\; ".join(shown) + r"\right)"


def field(name: str, value: Any) -> list[str]:
    """A field of an instance as equations: A as one matrix A_1, A_2, ... for each client, p as a tuple."""
    if not isinstance(value, list):
        return [f"{symbol(name)} = {number(value)}"]
    if not isinstance(value[0], list):
        return [f"{symbol(name)} = {tuple_of(value)}"]
    base, _, suffix = name.partition("_")
    return [
        f"{symbol(f'{base}_{suffix}_{index}' if suffix else f'{base}_{index}')} = {_array(item)}"
        for index, item in enumerate(value, start=1)
    ]


def _array(value: list[Any]) -> str:
    if isinstance(value[0], list):
        if len(value) == 1 and len(value[0]) == 1:
            return number(value[0][0])
        rows = r" \\ ".join(" & ".join(number(v) for v in row) for row in value)
        return rf"\begin{{pmatrix}} {rows} \end{{pmatrix}}"
    if len(value) == 1:
        return number(value[0])
    return r"\begin{pmatrix} " + r" \\ ".join(number(v) for v in value) + r" \end{pmatrix}"


def counterexample(found: dict[str, Any]) -> list[str | Display]:
    """Where a claim fails: the instance and both sides, or what an inspection found."""
    if "instance" not in found:
        return [str(found["found"])]
    equations = [equation for name, value in found["instance"].items() for equation in field(name, value)]
    left, right = (tuple_of(entries_of(found[side])) for side in ("left", "right"))
    return [
        Display(tuple(equations)),
        "where the left side and the right side are",
        Display((left, right)),
    ]


def tightness(row: dict[str, Any]) -> str:
    """How far the printed form is exceeded, and how tight the true one is."""
    kind, corrected_kind = kinds(row["id"])
    correction = row["correction"]
    ratios, said = [], []
    if kind == "ratio" and row["ratio"] is not None:
        ratios.append(f"{measure(row['ratio'])} as printed")
    if correction and correction["outcome"] != "stands":
        said.append(f"The correction did not stand its trial ({correction['outcome']}).")
    elif correction and corrected_kind == "ratio":
        ratios.append(f"{measure(correction['ratio'])} in the true form")
    elif correction and corrected_kind == "discrepancy":
        said.append("The true form is an equality: it held exactly wherever it was tried in fractions.")
    elif correction:
        said.append("The true form stood its trial.")
    if ratios:
        said.insert(0, f"Largest left side / right side found: {', '.join(ratios)}.")
    return " ".join(said)


def entry(row: dict[str, Any]) -> Entry:
    """What there is to say of a claim that does not simply hold."""
    findings = row["findings"] if not row["counterexample"] else []
    shown = "; ".join(findings[:SHOWN_FINDINGS])
    if len(findings) > SHOWN_FINDINGS:
        shown += f"; and {len(findings) - SHOWN_FINDINGS} more"
    facts: list[tuple[str, list[str | Display]]] = [
        ("printed", [row["statement"]]),
        ("assumed", ["; ".join(row["assumptions"])]),
        ("settled as" if row["verdict"] == "DEFINITION" else "true", [row["corrected"]]),
        ("fails at", counterexample(row["counterexample"]) if row["counterexample"] else [""]),
        ("how tight", [tightness(row)]),
        ("looked at", [shown]),
        ("note", [row["note"]]),
    ]
    if row["verdict"] != row["expected"]:
        facts.append(("on record", [f"{row['expected']}; this run found otherwise"]))
    return Entry(row, [(term, content) for term, content in facts if content != [""]])


def standing(row: dict[str, Any]) -> str:
    """How firmly a claim that holds was tried, in a few words."""
    kind, corrected_kind = kinds(row["id"])
    exact = f"{row['exact_checks']} exact checks"
    if kind == "ratio":
        said = measure(row["ratio"])
        if row["correction"] and corrected_kind == "ratio":
            said += f"; sharper form {measure(row['correction']['ratio'])}"
        return said
    return f"equal, {exact}" if kind == "discrepancy" else f"{row['exact_checks']} checks"


def remark(row: dict[str, Any]) -> str:
    """Assumptions, sharpening and note of a claim that holds, as sentences."""
    assumptions = f"Assuming {'; '.join(row['assumptions'])}." if row["assumptions"] else ""
    parts = [assumptions, row["corrected"], row["note"]]
    if row["verdict"] != row["expected"]:
        parts.append(f"On record as {row['expected']}.")
    return " ".join(part if re.search(r"[.:;]$", part) else f"{part}." for part in parts if part)


def introduction(rows: list[dict[str, Any]], full: bool, seed: int) -> list[str]:
    """What this sheet is and how its verdicts come about."""
    from theory.trials.search import FULL, QUICK

    budget = FULL if full else QUICK
    return [
        "To be kept beside the paper by Zachary Charles and Jakub Konečný; line numbers are those of its LaTeX "
        f"source. {len(rows)} claims were put on trial.",
        f"Every verdict is computed. For each size of problem {budget.samples:,} random instances that meet the "
        "claim's assumptions are tried; for an inequality, gradient ascent on left side / right side follows, through "
        f"the instance itself, from {budget.restarts} starts with {budget.steps} steps each (pursuit). A violation is "
        "rounded to small fractions and checked in exact arithmetic, so that a counterexample is a proof. A largest "
        "ratio is the largest that pursuit found: 1 means that the bound is reached, anything else is no supremum "
        "with a proof.",
        f"Budget: {'full' if full else 'quick'}. Seed: {seed}. Made by `lur verify{' --full' if full else ''} --seed "
        f"{seed} --errata FOLDER`.",
    ]


def arrange(rows: list[dict[str, Any]]) -> tuple[list[tuple[str, int]], list[Entry], list[dict[str, Any]]]:
    """The counts per verdict, the entries and the claims that hold, both in the order of the paper's lines."""
    ordered = sorted(rows, key=lambda row: row["line"])  # stable: as listed within a line
    counted = Counter(row["verdict"] for row in rows)
    counts = [(verdict, counted[verdict]) for verdict in MEANINGS if counted[verdict]]
    holds = [row for row in ordered if row["verdict"] == "HOLDS"]
    return counts, [entry(row) for row in ordered if row["verdict"] != "HOLDS"], holds


def markdown(rows: list[dict[str, Any]], full: bool, seed: int) -> str:
    """The sheet in Markdown, its mathematics between dollar signs."""
    counts, entries, holds = arrange(rows)
    lines = [f"# {TITLE}", ""]
    for paragraph in introduction(rows, full, seed):
        lines += [to_markdown(paragraph), ""]
    lines += ["| verdict | claims | meaning |", "| --- | ---: | --- |"]
    lines += [f"| {verdict} | {count} | {MEANINGS[verdict]} |" for verdict, count in counts]
    if entries:
        lines += ["", "## Line by line"]
    for row, facts in entries:
        lines += ["", _markdown_title(row)]
        for term, content in facts:
            first, *more = [""] * isinstance(content[0], Display) + [_markdown_block(block) for block in content]
            lines += ["", f"**{term}**: {first}".rstrip()]
            lines += [line for block in more for line in ("", block)]
    if holds:
        lines += ["", "## What holds as printed", ""]
        lines += [
            "| claim | line | statement | largest ratio | remarks |",
            "| --- | ---: | --- | --- | --- |",
        ]
        lines += [
            f"| {plain_markdown(row['id'])} | {row['line']} | {to_markdown(row['statement'])} "
            f"| {to_markdown(standing(row))} | {to_markdown(remark(row))} |"
            for row in holds
        ]
    return "\n".join(lines) + "\n"


def _markdown_title(row: dict[str, Any]) -> str:
    return f"### Line {row['line']}: {plain_markdown(row['id'])} {row['verdict']} ({plain_markdown(row['label'])})"


def _markdown_block(block: str | Display) -> str:
    if isinstance(block, Display):
        return f"$${markdown_mathematics(SEPARATOR.join(block.formulas))}$$"
    return to_markdown(block)


def as_html(rows: list[dict[str, Any]], full: bool, seed: int) -> str:
    """The sheet as a page, its mathematics in MathML."""
    counts, entries, holds = arrange(rows)
    body = [f"<h1>{html.escape(TITLE)}</h1>"]
    for paragraph in introduction(rows, full, seed):
        body.append(f"<p>{to_html(paragraph)}</p>")
    body.append('<table><thead><tr><th>verdict<th class="number">claims<th>meaning</thead><tbody>')
    body += [
        f'<tr><td>{_badge(verdict)}<td class="number">{count}<td>{html.escape(MEANINGS[verdict])}'
        for verdict, count in counts
    ]
    body.append("</tbody></table>")
    if entries:
        body.append("<h2>Line by line</h2>")
    for row, facts in entries:
        body.append(
            f'<article id="{html.escape(row["id"])}"><h3>Line {row["line"]}: {html.escape(row["id"])} '
            f'{_badge(row["verdict"])} <span class="label">{html.escape(row["label"])}</span></h3><dl>'
        )
        for term, content in facts:
            body.append(f"<dt>{term}<dd>" + "".join(_html_block(block) for block in content))
        body.append("</dl></article>")
    if holds:
        body.append('<h2>What holds as printed</h2><table class="holds"><thead><tr><th>claim<th class="number">line')
        body.append("<th>largest ratio<th>statement, and remarks</thead><tbody>")
        body += [
            f'<tr id="{html.escape(row["id"])}"><td><b>{html.escape(row["id"])}</b><td class="number">{row["line"]}'
            f'<td>{to_html(standing(row))}<td class="long"><div>{to_html(row["statement"])}</div>'
            f'<div class="remark">{to_html(remark(row))}</div>'
            for row in holds
        ]
        body.append("</tbody></table>")
    return page(TITLE, "\n".join(body))


def _badge(verdict: str) -> str:
    return f'<span class="verdict {html.escape(verdict)}">{html.escape(verdict)}</span>'


def _html_block(block: str | Display) -> str:
    if not isinstance(block, Display):
        return to_html(block)
    return f'<div class="formulas">{", ".join(to_html(f"${formula}$") for formula in block.formulas)}</div>'


def write(rows: list[dict[str, Any]], folder: Path, *, full: bool = False, seed: int = 0) -> tuple[Path, Path]:
    """Write errata.md and errata.html into a folder, made if need be; `full` and `seed` are what the rows came from."""
    texts = {"errata.md": markdown(rows, full, seed), "errata.html": as_html(rows, full, seed)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_whole(folder / name, text)
    return folder / "errata.md", folder / "errata.html"


def write_from_record(record: Path, folder: Path) -> tuple[Path, Path]:
    """The same from the JSON record of `lur verify`, which knows its seed and budget."""
    content = json.loads(record.read_text())
    return write(content["claims"], folder, full=content["budget"] == "full", seed=content["seed"])
