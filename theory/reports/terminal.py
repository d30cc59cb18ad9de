"""The verdicts on the terminal: a progress bar, a table, and what is wrong with the claims that do not hold."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from theory._extras import exact_extra
from theory.reports.files import write_atomically
from theory.trials import verify as trials
from theory.trials.implementation import REFERENCE, Implementation
from theory.trials.workers import do_nothing

with exact_extra("theory.reports"):
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Table

COLOURS = {"HOLDS": "green", "FALSE": "red", "TYPO": "yellow", "NEEDS": "yellow", "DEFINITION": "cyan"}


def _table(decided: list[dict[str, Any]]) -> Table:
    """The verdicts as a table."""
    table = Table(
        "claim", "label", "verdict", "largest", "exact", "seconds", box=None, pad_edge=False, header_style="bold"
    )
    for row in decided:
        colour = COLOURS.get(row["verdict"], "magenta")
        mark = "" if row["verdict"] == row["expected"] else f" (recorded: {row['expected']})"
        verdict = f"[{colour}]{row['verdict']}[/]{mark}"
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.3g}"
        table.add_row(row["id"], row["label"], verdict, ratio, str(row["exact_checks"]), f"{row['seconds']:.1f}")
    return table


def _explain(console: Console, row: dict[str, Any]) -> None:
    """Print what is wrong with a claim that does not hold as printed: counterexample and correction."""
    if row["counterexample"] is None and not row["corrected"]:
        return

    def show(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    console.print(f"\n[bold]{row['id']}[/] {row['label']} (line {row['line']})", highlight=False)
    show(f"  printed:   {row['statement']}")
    counterexample = row["counterexample"]
    if counterexample and "instance" in counterexample:
        inputs = ", ".join(f"{name} = {_bracketed(value)}" for name, value in counterexample["instance"].items())
        show(f"  fails at:  {inputs}: {counterexample['left']} against {counterexample['right']}")
    elif counterexample:
        show(f"  fails at:  {counterexample['found']}")
    if row["corrected"]:
        show(f"  true form: {row['corrected']}")


def _bracketed(value: Any) -> str:
    return f"[{', '.join(_bracketed(v) for v in value)}]" if isinstance(value, list) else str(value)


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
) -> int:
    """Tries the claims, prints the table and writes the record.

    Args:
      ids: the claims.
      json_path: the file of the record, or None.
      quiet: whether to print nothing.
      full, seed, jobs, budget, implementation, prepare: see `theory.trials.verify.rows`.

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
            for row in trials.rows(ids, full, seed, jobs, budget, implementation=implementation, prepare=prepare):
                decided.append(row)
                progress.update(bar, advance=1, description=f"{row['id']} {row['verdict']}")
                if not interactive:
                    console.print(f"{len(decided)}/{len(ids)} {row['id']} {row['verdict']}", highlight=False)
        except KeyboardInterrupt:
            interrupted = True
    decided.sort(key=lambda row: ids.index(row["id"]))
    console.print(_table(decided))
    for row in decided:
        if row["verdict"] not in ("HOLDS", "DEFINITION"):
            _explain(console, row)
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
