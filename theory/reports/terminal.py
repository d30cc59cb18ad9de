"""The verdicts on the terminal: a progress bar, a table, and what is wrong with the claims that do not hold."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from theory._extras import exact_extra
from theory.reports.counterexample import as_text
from theory.reports.files import write_atomically
from theory.reports.sizes import describe_sizes
from theory.reports.unicode import from_prose
from theory.trials import verify as trials
from theory.trials.implementation import REFERENCE, Implementation
from theory.trials.workers import do_nothing

with exact_extra("theory.reports"):
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Table

COLOURS = {"HOLDS": "green", "FALSE": "red", "TYPO": "yellow", "NEEDS": "yellow", "DEFINITION": "cyan"}


COLUMNS = """
verdict   HOLDS: no violation found. FALSE, TYPO, NEEDS: refuted in exact numbers (a false statement, a misprint, a
          missing assumption: the kind is on record). DEFINITION: nothing to decide. UNDECIDED: in doubt, see --verbose.
largest   the largest left side / right side that was reached: 1 is attained, above 1 violated; "=" for an equality
exact     how many instances were checked in exact arithmetic, and how many of them had a positive rate and K > 1
tried at  sizes of the problems: d dimension, n clients, K local steps, M clients per round, kappa condition number
"""
"""What the columns of the table mean."""
DIGEST = 5
_WEIGHT = {"thm": 0, "cor": 1, "lem": 2, "Section": 3, "sec": 3}
"""The kinds of a label, the most surprising to be false first."""


def _table(decided: list[dict[str, Any]]) -> Table:
    """The verdicts as a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("claim", "label", "verdict", "largest", "exact", "tried at", "seconds"):
        table.add_column(name, overflow="fold", no_wrap=name in ("claim", "verdict"))
    for row in decided:
        colour = COLOURS.get(row["verdict"], "magenta")
        mark = "" if row["verdict"] == row["expected"] else f" (recorded: {row['expected']})"
        verdict = f"[{colour}]{row['verdict']}[/]{mark}"
        checks = f"{row['exact_checks']}" + (f", {moving}" if (moving := row.get("moving_checks")) else "")
        table.add_row(
            row["id"],
            row["label"],
            verdict,
            _largest(row),
            checks,
            describe_sizes(row.get("sizes", [])),
            f"{row['seconds']:.1f}",
        )
    return table


def _largest(row: dict[str, Any]) -> str:
    """The largest ratio, "=" for an equality that stands."""
    if row.get("unbounded"):
        return "unbounded"
    if row["ratio"] is None:
        return ""
    if row.get("relations") == ["=="] and row["counterexample"] is None:
        return "="
    return f"{row['ratio']:.3g}"


def _explain(console: Console, row: dict[str, Any]) -> None:
    """Print what is wrong with a claim that does not hold as printed: counterexample and correction."""
    if row["counterexample"] is None and not row["corrected"]:
        return

    def show(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    console.print(f"\n[bold]{row['id']}[/] {row['label']} (line {row['line']})", highlight=False)
    show(f"  printed:   {from_prose(row['statement'])}")
    counterexample = row["counterexample"]
    if counterexample and "instance" in counterexample:
        show(f"  fails at:  {as_text(counterexample)}")
    elif counterexample:
        show(f"  fails at:  {from_prose(counterexample['found'])}")
    elif row["verdict"] == "UNDECIDED":
        show(f"  in doubt:  {'; '.join(row.get('findings', []))} {row.get('worst') or ''}")
    if row["corrected"]:
        show(f"  true form: {from_prose(row['corrected'])}")


def digest(decided: list[dict[str, Any]]) -> list[str]:
    """Returns a line for each of the most surprising falsehoods: theorems first, then corollaries and lemmas."""

    def surprise(row: dict[str, Any]) -> tuple[Any, ...]:
        kind = row["label"].partition(":")[0].partition(" ")[0]
        return ("proof" in row["label"], _WEIGHT.get(kind, 4), row["line"])

    false = sorted((row for row in decided if row["verdict"] == "FALSE" and row["counterexample"]), key=surprise)
    lines = []
    for row in false[:DIGEST]:
        found = row["counterexample"]
        where = f"{found['left']} against {found['right']}" if "instance" in found else from_prose(found["found"])
        lines.append(f"{row['id']:4} {from_prose(row['statement'])}  [fails: {where}]")
    return lines


def verify(
    ids: list[str],
    *,
    json_path: Path | None,
    full: bool,
    seed: int,
    jobs: int,
    quiet: bool,
    budget: float = 1.0,
    implementation: Implementation = REFERENCE,
    prepare: Callable[[], None] = do_nothing,
    file: Path | None = None,
    verbose: bool = False,
) -> int:
    """Tries the claims, prints the table and writes the record.

    Args:
      ids: the claims.
      json_path: the file of the record, or None.
      quiet: whether to print nothing.
      verbose: whether to show every claim that does not hold as printed, with its counterexample and its true form.
      full, seed, jobs, budget, implementation, prepare, file: see `theory.trials.verify.rows`.

    Returns:
      The exit status: 0 if all verdicts are as recorded, 1 if not, 130 if interrupted.
    """
    interactive = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    console = Console(quiet=quiet, soft_wrap=not interactive, force_terminal=interactive)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    decided: list[dict[str, Any]] = []
    interrupted = False
    with Progress(*columns, console=console, transient=True, disable=quiet or not interactive) as progress:
        bar = progress.add_task(f"trying {len(ids)} claims", total=len(ids))
        try:
            options: Any = {"implementation": implementation, "prepare": prepare, "file": file}
            for row in trials.rows(ids, full, seed, jobs, budget, **options):
                decided.append(row)
                progress.update(bar, advance=1, description=f"{row['id']} {row['verdict']}")
                if not interactive:
                    console.print(f"{len(decided)}/{len(ids)} {row['id']} {row['verdict']}", highlight=False)
        except KeyboardInterrupt:
            interrupted = True
    decided.sort(key=lambda row: ids.index(row["id"]))
    console.print(_table(decided))
    console.print(COLUMNS, markup=False, highlight=False)
    false = [row for row in decided if row["verdict"] not in ("HOLDS", "DEFINITION")]
    if verbose or len(false) <= DIGEST:
        for row in false:
            _explain(console, row)
    else:
        console.print(f"[bold]The most surprising of {len(false)} that do not hold as printed[/] (--verbose shows all)")
        for line in digest(decided):
            console.print(line, markup=False, highlight=False)
    if interrupted:
        console.print(
            f"\ninterrupted: {len(decided)} of {len(ids)} claims decided; nothing was written", highlight=False
        )
        return 130
    if json_path is not None:
        record = {"seed": seed, "budget": "full" if full else "quick", "factor": budget, "claims": decided}
        write_atomically(json_path, json.dumps(record, indent=1) + "\n")
    different = [row["id"] for row in decided if row["verdict"] != row["expected"]]
    counts = ", ".join(
        f"{sum(row['verdict'] == verdict for row in decided)} {verdict}"
        for verdict in dict.fromkeys(row["verdict"] for row in decided)
    )
    recorded = f"{len(different)} not as recorded: {', '.join(different)}" if different else "all as recorded"
    console.print(f"\n{len(decided)} claims: {counts}; {recorded}", highlight=False)
    return 1 if different else 0
