"""Table 1: clients and examples of the paper's datasets and of those used here.

    lur reproduce table1 --scale small

Seconds. Expect: equal numbers only at scale paper with the real files (`--store`).
"""

from pathlib import Path

from benchmarks.paper.drawing import Result, record, write_csv
from benchmarks.paper.experiments import PaperRuns
from benchmarks.paper.scales import NAMES, tasks_of
from benchmarks.paper.verdicts import Statement

TITLE = "Dataset statistics"
PAPER = {
    "cifar100": (500, 50_000),
    "femnist": (3_400, 671_585),
    "shakespeare": (715, 16_068),
    "stackoverflow_tp": (342_477, 135_818_730),
    "stackoverflow_nwp": (342_477, 135_818_730),
}


def make(runs: PaperRuns, out: Path) -> Result:
    """Counts clients and examples and compares them with the paper's."""
    tasks = runs.tasks or (*tasks_of("sgd", runs.scale), *tasks_of("yogi", runs.scale))
    rows, statements = [], []
    for task in tasks:
        store = runs.task(runs.config(task)).store
        expected = PAPER.get(task)
        rows.append((task, store.clients, store.examples, *(expected or ("", ""))))
        if expected is not None:
            claim = f"{NAMES[task]}: {expected[0]:,} clients, {expected[1]:,} examples"
            shows = f"{runs.describe_data(task)}, as the task prepares them"
            statements.append(Statement(task, claim, shows, (store.clients, store.examples) == expected))
    path = out / "table1.csv"
    write_csv(path, ("task", "clients", "examples", "paper_clients", "paper_examples"), rows)
    return record(runs, "table1", TITLE, tasks, Result([path], statements), out)
