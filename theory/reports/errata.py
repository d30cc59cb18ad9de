"""The errata: what the paper prints, line by line, next to what is true, with counterexamples in fractions.

Made from the rows of `theory.trials.verify`, in Markdown and in HTML. The same rows give the same bytes: there are no
times and no dates.
"""

import html
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from theory.claims import CLAIMS
from theory.claims.outsized_importance import PAPER
from theory.reports.counterexample import equations, side_entries
from theory.reports.files import write_atomically
from theory.reports.sizes import describe_sizes
from theory.reports.typeset import (
    escape_markdown,
    markdown_mathematics,
    number,
    page,
    to_html,
    to_markdown,
)
from theory.trials.search import FULL, QUICK

TITLE = f"Errata to “{PAPER.title}”"
MEANINGS = {
    "FALSE": "a counterexample in exact numbers is below; the true form, where there is one, stood the same trial",
    "TYPO": "false as printed, by a misprint; once corrected, it stood the trial",
    "NEEDS": "false as printed, true under an assumption that is not stated",
    "UNDECIDED": "neither proved false nor left standing",
    "DEFINITION": "nothing to decide; conventions that the text leaves open",
    "HOLDS": "no violation was found; equalities were also checked exactly, in fractions",
}
MAX_FINDINGS = 3
LARGE = 1_000_000  # a ratio above this only says that the right side can all but vanish
SEPARATOR = r",\quad "


class Display(NamedTuple):
    """Formulas on lines of their own, broken between formulas where they do not fit.

    Attributes:
      formulas: in LaTeX.
    """

    formulas: tuple[str, ...]


class Entry(NamedTuple):
    """One claim that does not hold as printed.

    Attributes:
      row: its row of the record.
      facts: pairs of a term, such as "fails at", and paragraphs or displayed formulas.
    """

    row: dict[str, Any]
    facts: list[tuple[str, list[str | Display]]]


def _measures(id: str) -> tuple[str, str]:
    """What the evidence on a claim and on its correction measures: "ratio", "discrepancy", or "" for neither."""
    claim = next((claim for claim in CLAIMS if claim.id == id), None)
    if claim is None:
        return "", ""
    relations = [{getattr(part, "relation", "") for part in parts} for parts in (claim.trial, claim.correction)]
    printed, corrected = ("ratio" if "<=" in used else "discrepancy" if "==" in used else "" for used in relations)
    return printed, corrected


def _ratio(value: float) -> str:
    """A ratio to four digits; 0 if it vanishes up to underflow."""
    digits = "0" if abs(value) < 1e-20 else f"{value:.4g}"
    return f"${number(digits)}$" if "e" in digits else digits


def _counterexample(found: dict[str, Any]) -> list[str | Display]:
    """Where a claim fails: the instance and both sides, or the finding of an inspection."""
    if "instance" not in found:
        return [str(found["found"])]
    return [
        Display(tuple(equations(found["instance"]))),
        "where the left side and the right side are",
        Display(side_entries(found)),
    ]


def _tightness(row: dict[str, Any]) -> str:
    """How far the printed form is exceeded, and how tight the true one is."""
    measure, corrected_measure = _measures(row["id"])
    correction = row["correction"]
    ratios, sentences = [], []
    if measure == "ratio" and row.get("unbounded"):
        ratios.append("unbounded as printed")
    elif measure == "ratio" and row["ratio"] is not None:
        large = row["ratio"] > LARGE
        ratios.append(f"more than {LARGE:,} as printed" if large else f"{_ratio(row['ratio'])} as printed")
    if correction and correction["outcome"] != "stands":
        sentences.append(f"The correction did not stand its trial ({correction['outcome']}).")
    elif correction and corrected_measure == "ratio":
        ratios.append(f"{_ratio(correction['ratio'])} in the true form")
    elif correction and corrected_measure == "discrepancy":
        sentences.append("The true form is an equality: it held exactly wherever it was tried in fractions.")
    elif correction:
        sentences.append("The true form stood its trial.")
    if ratios:
        sentences.insert(0, f"Largest left side / right side found: {', '.join(ratios)}.")
    return " ".join(sentences)


def _tried(row: dict[str, Any]) -> str:
    """The sizes at which the printed and the true form were tried, and how often exactly."""
    forms = (("printed form", row), ("true form", row["correction"] or {}))
    return "; ".join(f"{form}: {tried}" for form, part in forms if (tried := _sizes(part)))


def _sizes(part: dict[str, Any]) -> str:
    """The sizes of a form and its number of exact checks."""
    if _is_inspected(part):
        return f"inspected, {part['exact_checks']} cases chosen by hand"
    if not part.get("sizes"):
        return ""
    return f"{describe_sizes(part['sizes'])} ({part['exact_checks']} exact checks)"


def _entry(row: dict[str, Any]) -> Entry:
    """The entry of a claim that does not hold as printed."""
    findings = row["findings"] if not row["counterexample"] else []
    findings_line = "; ".join(findings[:MAX_FINDINGS])
    if len(findings) > MAX_FINDINGS:
        findings_line += f"; and {len(findings) - MAX_FINDINGS} more"
    facts: list[tuple[str, list[str | Display]]] = [
        ("printed", [row["statement"]]),
        ("assumed", ["; ".join(row["assumptions"])]),
        ("read as" if row["verdict"] == "DEFINITION" else "true", [row["corrected"]]),
        ("fails at", _counterexample(row["counterexample"]) if row["counterexample"] else [""]),
        ("how tight", [_tightness(row)]),
        ("tried at", [_tried(row)]),
        ("checked", [findings_line]),
        ("note", [row["note"]]),
    ]
    if row["verdict"] != row["expected"]:
        facts.append(("on record", [f"{row['expected']}; this run found otherwise"]))
    return Entry(row, [(term, content) for term, content in facts if content != [""]])


def _trial_summary(row: dict[str, Any]) -> str:
    """How firmly a claim that holds was tried, in a few words."""
    measure, corrected_measure = _measures(row["id"])
    if measure == "ratio":
        sharper = row["correction"] and corrected_measure == "ratio"
        return _ratio(row["ratio"]) + (f"; sharper form {_ratio(row['correction']['ratio'])}" if sharper else "")
    return f"equal, {row['exact_checks']} exact checks" if measure == "discrepancy" else f"{row['exact_checks']} checks"


def _remark(row: dict[str, Any]) -> str:
    """Assumptions, sharper form and note of a claim that holds, as sentences."""
    assumptions = f"Assuming {'; '.join(row['assumptions'])}." if row["assumptions"] else ""
    tried = "Inspected in cases chosen by hand" if _is_inspected(row) else ""
    if row.get("sizes"):
        tried = f"Tried at {describe_sizes(row['sizes'])}"
    parts = [assumptions, row["corrected"], row["note"], tried]
    if row["verdict"] != row["expected"]:
        parts.append(f"On record as {row['expected']}.")
    return " ".join(part if re.search(r"[.:;]$", part) else f"{part}." for part in parts if part)


def _introduction(rows: list[dict[str, Any]], full: bool, seed: int) -> list[str]:
    """What these errata are and where the verdicts come from."""
    budget = FULL if full else QUICK
    return [
        f"A companion to the paper by {PAPER.authors}; line numbers are those of its LaTeX source. {len(rows)} claims "
        "were put on trial.",
        "Whether a claim stands or falls is computed. For each size of problem "
        f"{budget.samples:,} random instances that meet the claim's assumptions are tried; for an inequality, gradient "
        f"ascent on the violation with respect to the instance follows, from {budget.restarts} starts with "
        f"{budget.steps} steps each (pursuit), and a random search at larger sizes. The worst instances, and random "
        "rational ones of every size with condition numbers up to $10^{12}$, are checked in exact arithmetic, so that "
        "a counterexample is a proof. A largest ratio is the largest that the search found: 1 means that the bound is "
        "attained; a smaller one is only a lower bound of the supremum. HOLDS means that nothing was found, not that "
        "the claim is proved.",
        "What is not computed: the kind of a falsehood (FALSE, TYPO or NEEDS) is on record, and so is how a loose "
        "sentence of the paper is read. What is called printed is the paper's claim in our words; the line says where "
        f"to compare. {_inspected(rows)} marked “inspected” rest on cases chosen by hand, not on a search. Of a true "
        "form, the formulas were tried as told under “how tight”; explanations around them were not.",
        _checked(rows),
        f"Budget: {'full' if full else 'quick'}. Seed: {seed}. Made by `lur verify{' --full' if full else ''} --seed "
        f"{seed} --errata FOLDER`.",
    ]


def _inspected(rows: list[dict[str, Any]]) -> str:
    """How many claims were inspected rather than searched."""
    count = sum(_is_inspected(row) for row in rows)
    return f"{count} claim{'s' if count != 1 else ''}"


def _is_inspected(row: dict[str, Any]) -> bool:
    """Whether the verdict rests on cases that were chosen by hand."""
    return bool(row.get("exact_checks")) and not row.get("sizes")


def _checked(rows: list[dict[str, Any]]) -> str:
    """How many instances were checked exactly, and how many of them had a positive rate and several steps."""
    searched = [part for row in rows for part in (row, row["correction"] or {}) if part.get("sizes")]
    checks = sum(part["exact_checks"] for part in searched)
    moving = sum(part["moving_checks"] for part in searched)
    return (
        f"{checks:,} instances were checked in exact arithmetic; in {moving:,} of them a rate was positive and "
        "$K > 1$. The rest are counterexamples, which are made as simple as possible, claims about $K = 1$ or "
        "$\\gamma = 0$, and claims without a rate or without $K$."
    )


def _arrange(rows: list[dict[str, Any]]) -> tuple[list[tuple[str, int]], list[Entry], list[dict[str, Any]]]:
    """The count of each verdict, the entries, and the claims that hold, in the order of the paper's lines."""
    ordered = sorted(rows, key=lambda row: row["line"])  # stable: as listed within a line
    counted = Counter(row["verdict"] for row in rows)
    counts = [(verdict, counted[verdict]) for verdict in MEANINGS if counted[verdict]]
    holds = [row for row in ordered if row["verdict"] == "HOLDS"]
    return counts, [_entry(row) for row in ordered if row["verdict"] != "HOLDS"], holds


def markdown(rows: list[dict[str, Any]], full: bool, seed: int) -> str:
    """Returns the errata in Markdown, with mathematics between dollar signs."""
    counts, entries, holds = _arrange(rows)
    lines = [f"# {TITLE}", ""]
    for paragraph in _introduction(rows, full, seed):
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
            f"| {escape_markdown(row['id'])} | {row['line']} | {to_markdown(row['statement'])} "
            f"| {to_markdown(_trial_summary(row))} | {to_markdown(_remark(row))} |"
            for row in holds
        ]
    return "\n".join(lines) + "\n"


def _markdown_title(row: dict[str, Any]) -> str:
    return f"### Line {row['line']}: {escape_markdown(row['id'])} {row['verdict']} ({escape_markdown(row['label'])})"


def _markdown_block(block: str | Display) -> str:
    if isinstance(block, Display):
        return f"$${markdown_mathematics(SEPARATOR.join(block.formulas))}$$"
    return to_markdown(block)


def as_html(rows: list[dict[str, Any]], full: bool, seed: int) -> str:
    """Returns the errata as an HTML page, with mathematics in MathML."""
    counts, entries, holds = _arrange(rows)
    body = [f"<h1>{html.escape(TITLE)}</h1>"]
    for paragraph in _introduction(rows, full, seed):
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
            f'<td>{to_html(_trial_summary(row))}<td class="long"><div>{to_html(row["statement"])}</div>'
            f'<div class="remark">{to_html(_remark(row))}</div>'
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
    """Writes errata.md and errata.html.

    Args:
      rows: the record's rows.
      folder: where they go; made if necessary.
      full: whether the rows come from the full budget.
      seed: the seed the rows come from.
    """
    contents = {"errata.md": markdown(rows, full, seed), "errata.html": as_html(rows, full, seed)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return folder / "errata.md", folder / "errata.html"


def write_from_record(record: Path, folder: Path) -> tuple[Path, Path]:
    """Writes the same from the JSON record of `lur verify`, which contains seed and budget."""
    content = json.loads(record.read_text())
    return write(content["claims"], folder, full=content["budget"] == "full", seed=content["seed"])
