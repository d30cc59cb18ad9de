"""`lur bench speed --task femnist`: lur, its floor and its peers over the same work, in one run."""

import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.speed.contenders import PEERS, variants
from benchmarks.speed.race import race
from benchmarks.speed.table import machine, record, same_work, table
from benchmarks.speed.work import WORKS, Sizes
from lur.cli.output import check_json, write_json


def chosen(peers: str) -> tuple[str, ...]:
    """The peers in a list with commas, each of them known."""
    names = tuple(dict.fromkeys(name.strip() for name in peers.split(",") if name.strip()))
    for name in names:
        if name not in PEERS:
            raise ValueError(f"--peers must be among {', '.join(PEERS)}, got {name!r}")
    return names


def own_forms(task: str, forms: str) -> tuple[str, ...]:
    """lur, and those of its other forms that are in a list with commas."""
    asked = {name.strip() for name in forms.split(",") if name.strip()}
    if unknown := asked - {*variants(task)}:
        raise ValueError(f"--forms must be among {', '.join(variants(task))}, got {', '.join(sorted(unknown))}")
    return tuple(name for name in variants(task) if name == "lur" or name in asked)


def measure(
    task: str,
    peers: str,
    rounds: int | None = None,
    turns: int = 5,
    clients_per_round: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    json: Path | None = None,
    forms: str | None = None,
    say: Callable[[str], None] = print,
) -> int:
    """Race, print the table, keep the record. Exit status 1 if a contender did other work than lur."""
    if task not in WORKS:
        raise ValueError(f"--task of speed must be one of quadratic, {', '.join(WORKS)}, got {task!r}")
    work = WORKS[task]
    names = chosen(peers)
    own = variants(task) if forms is None else own_forms(task, forms)
    given = (clients_per_round, steps, batch_size)
    sizes = Sizes(*(usual if size is None else size for size, usual in zip(given, work.sizes, strict=True)))
    options = (*zip(("--clients-per-round", "--steps", "--batch-size"), sizes, strict=True), ("--rounds", rounds))
    for option, value in options:
        if value is not None and value < 1:
            raise ValueError(f"{option} must be >= 1, got {value}")
    check_json(json)
    before = machine()

    def report(line: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    results, skipped = race(task, work, sizes, (*own, *names), rounds=rounds or work.rounds, turns=turns, report=report)
    report("")
    M, K, B = sizes
    load = before["load"][0]
    say(f"{task}: M = {M}, K = {K}, B = {B}, best of {turns} turns, {before['cores']} cores, load {load} before")
    say(table(results, skipped, sizes, work.tolerance))
    if json is not None:
        write_json(json, record(task, sizes, turns, results, skipped, before))
    return 0 if all(same_work(result, sizes, work.tolerance) for result in results) else 1
