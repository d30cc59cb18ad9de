"""`lur bench speed --task femnist`: lur, its floor and other frameworks over the same work, in one run.

The *floor* is one gradient of all the examples of a round with shared weights: what a round would cost without local
steps.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.speed.contenders import PEERS, variants
from benchmarks.speed.race import race
from benchmarks.speed.table import does_same_work, machine, record, table
from benchmarks.speed.workloads import WORKLOADS, Sizes


class Comparison(NamedTuple):
    """The result of a race.

    Attributes:
        record: What `--json` writes: sizes, results, skipped contenders and the machine.
        all_do_same_work: Whether every contender took the same example gradients as lur and ended where lur did.
    """

    record: dict[str, Any]
    all_do_same_work: bool


def split_names(option: str, names: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a comma-separated list without repetitions. Raises ValueError where one is unknown."""
    listed = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    for name in listed:
        if name not in known:
            raise ValueError(f"{option} must be among {', '.join(known)}, got {name!r}")
    return listed


def measure(
    task: str,
    peers: str,
    rounds: int | None = None,
    turns: int = 5,
    clients_per_round: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    forms: str | None = None,
    say: Callable[[str], None] = print,
) -> Comparison:
    """Runs the race and prints its table.

    Args:
        task: One of `WORKLOADS`.
        peers: Other frameworks, separated by commas.
        rounds: Rounds in a turn; by default the workload's.
        turns: Turns of every contender.
        clients_per_round: M; by default the paper's.
        steps: K; by default the paper's.
        batch_size: B; by default the paper's.
        forms: Variants of lur, separated by commas; by default all of them. lur itself always runs.
        say: Receives the lines of the table.
    """
    if task not in WORKLOADS:
        raise ValueError(f"--task of speed must be one of quadratic, {', '.join(WORKLOADS)}, got {task!r}")
    workload = WORKLOADS[task]
    frameworks = split_names("--peers", peers, tuple(PEERS))
    requested = variants(task) if forms is None else ("lur", *split_names("--forms", forms, variants(task)))
    lur_variants = [name for name in variants(task) if name in requested]
    given = (clients_per_round, steps, batch_size)
    sizes = Sizes(*(default if size is None else size for size, default in zip(given, workload.sizes, strict=True)))
    options = (*zip(("--clients-per-round", "--steps", "--batch-size"), sizes, strict=True), ("--rounds", rounds))
    for option, value in options:
        if value is not None and value < 1:
            raise ValueError(f"{option} must be >= 1, got {value}")
    before = machine()

    def show_progress(line: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    results, skipped = race(
        task,
        workload,
        sizes,
        (*lur_variants, *frameworks),
        rounds=rounds or workload.rounds,
        turns=turns,
        report=show_progress,
    )
    show_progress("")
    M, K, B = sizes
    load = before["load"][0]
    say(f"{task}: M = {M}, K = {K}, B = {B}, best of {turns} turns, {before['cores']} cores, load {load} before")
    say(table(results, skipped, sizes, workload.tolerance))
    return Comparison(
        record(task, sizes, turns, results, skipped, before),
        all(does_same_work(result, sizes, workload.tolerance) for result in results),
    )
