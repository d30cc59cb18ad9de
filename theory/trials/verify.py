"""`lur verify`: every claim on trial, over all cores, with a progress bar, a table and a JSON record."""

import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from lur.jax_setup import keep_compiled

COLOURS = {"HOLDS": "green", "FALSE": "red", "TYPO": "yellow", "NEEDS": "yellow", "DEFINITION": "cyan"}


def start_worker() -> None:
    """A worker leaves Ctrl-C to its parent, and ends with it however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    keep_compiled()


def try_by_id(id: str, full: bool, seed: int, budget: float = 1.0) -> dict[str, Any]:
    """One claim's row of the record; runs in a worker process."""
    from theory.claims import find
    from theory.trials import FULL, QUICK, try_claim
    from theory.trials.search import scaled

    result = try_claim(find(id), scaled(FULL if full else QUICK, budget), seed)
    claim, evidence, correction = result.claim, result.evidence, result.correction
    return {
        "id": claim.id,
        "label": claim.label,
        "line": claim.line,
        "verdict": result.verdict,
        "expected": claim.expected,
        "ratio": evidence.ratio if evidence else None,
        "counterexample": evidence.counterexample if evidence else None,
        "worst": evidence.worst if evidence else None,
        "exact_checks": evidence.exact_checks if evidence else 0,
        "findings": list(evidence.findings) if evidence else [],
        "statement": claim.statement,
        "assumptions": list(claim.assumptions),
        "corrected": claim.corrected,
        "correction": None if correction is None else {"outcome": correction.outcome, "ratio": correction.ratio},
        "note": claim.note,
        "seconds": round(result.seconds, 3),
    }


def rows(ids: list[str], full: bool, seed: int, jobs: int, budget: float = 1.0) -> Iterator[dict[str, Any]]:
    """The rows of all claims, as they are decided."""
    if jobs == 1 or len(ids) == 1:
        keep_compiled()
        for id in ids:
            yield try_by_id(id, full, seed, budget)
        return
    with ProcessPoolExecutor(min(jobs, len(ids)), get_context("spawn"), start_worker) as pool:
        futures = [pool.submit(try_by_id, id, full, seed, budget) for id in ids]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in active_children():
                worker.terminate()
            raise


def check_writable(path: Path) -> None:
    """Refuse an output that could not be written, before anything is run."""
    parent = path.absolute().parent
    if not parent.is_dir():
        raise ValueError(f"--json must name a file in an existing folder, got {path}: no folder {parent}")
    if path.is_dir():
        raise ValueError(f"--json must name a file, got the folder {path}")
    if not os.access(path if path.exists() else parent, os.W_OK):
        raise ValueError(f"--json must name a writable file, got {path}")


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o666 & ~current_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def current_umask() -> int:
    """The process's umask; reading it means setting it for a moment."""
    umask = os.umask(0)
    os.umask(umask)
    return umask


def measure(row: dict[str, Any]) -> str:
    """The largest ratio or discrepancy, short."""
    return "" if row["ratio"] is None else f"{row['ratio']:.3g}"


def table_of(decided: list[dict[str, Any]]) -> Table:
    """The verdicts as a table."""
    table = Table(
        "claim", "label", "verdict", "largest", "exact", "seconds", box=None, pad_edge=False, header_style="bold"
    )
    for row in decided:
        colour = COLOURS.get(row["verdict"], "magenta")
        mark = "" if row["verdict"] == row["expected"] else f" (recorded: {row['expected']})"
        verdict = f"[{colour}]{row['verdict']}[/]{mark}"
        table.add_row(row["id"], row["label"], verdict, measure(row), str(row["exact_checks"]), f"{row['seconds']:.1f}")
    return table


def explain(console: Console, row: dict[str, Any]) -> None:
    """What is wrong with a claim that does not simply hold: counterexample and correction."""
    if row["counterexample"] is None and not row["corrected"]:
        return
    console.print(f"\n[bold]{row['id']}[/] {row['label']} (line {row['line']})", highlight=False)
    console.print(f"  printed:   {row['statement']}", markup=False, highlight=False)
    if row["counterexample"]:
        found = row["counterexample"]
        if "instance" in found:
            inputs = ", ".join(f"{name} = {_short(value)}" for name, value in found["instance"].items())
            console.print(
                f"  fails at:  {inputs}: {found['left']} against {found['right']}", markup=False, highlight=False
            )
        else:
            console.print(f"  fails at:  {found['found']}", markup=False, highlight=False)
    if row["corrected"]:
        console.print(f"  true form: {row['corrected']}", markup=False, highlight=False)


def _short(value: Any) -> str:
    return f"[{', '.join(_short(v) for v in value)}]" if isinstance(value, list) else str(value)


def verify(
    ids: list[str], *, json_path: Path | None, full: bool, seed: int, jobs: int, quiet: bool, budget: float = 1.0
) -> int:
    """Try the claims, print the table, write the record. Returns the exit status: 0 if all are as recorded."""
    if json_path is not None:
        check_writable(json_path)
    looked_at = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    console = Console(quiet=quiet, soft_wrap=not looked_at, force_terminal=looked_at)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    decided: list[dict[str, Any]] = []
    interrupted = False
    with Progress(*columns, console=console, transient=True, disable=quiet or not looked_at) as progress:
        bar = progress.add_task(f"trying {len(ids)} claims", total=len(ids))
        try:
            for row in rows(ids, full, seed, jobs, budget):
                decided.append(row)
                progress.update(bar, advance=1, description=f"{row['id']} {row['verdict']}")
                if not looked_at:
                    console.print(f"{len(decided)}/{len(ids)} {row['id']} {row['verdict']}", highlight=False)
        except KeyboardInterrupt:
            interrupted = True
    decided.sort(key=lambda row: ids.index(row["id"]))
    console.print(table_of(decided))
    for row in decided:
        if row["verdict"] not in ("HOLDS", "DEFINITION"):
            explain(console, row)
    different = [row for row in decided if row["verdict"] != row["expected"]]
    if interrupted:
        console.print(
            f"\ninterrupted: {len(decided)} of {len(ids)} claims decided; nothing was written", highlight=False
        )
        return 130
    if json_path is not None:
        write_whole(
            json_path,
            json.dumps(
                {"seed": seed, "budget": "full" if full else "quick", "factor": budget, "claims": decided}, indent=1
            )
            + "\n",
        )
    counts = ", ".join(
        f"{sum(row['verdict'] == verdict for row in decided)} {verdict}"
        for verdict in dict.fromkeys(row["verdict"] for row in decided)
    )
    end = (
        "all as recorded"
        if not different
        else f"{len(different)} not as recorded: {', '.join(r['id'] for r in different)}"
    )
    console.print(f"\n{len(decided)} claims: {counts}; {end}", highlight=False)
    return 1 if different else 0
