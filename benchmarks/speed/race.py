"""The race: contenders take turns over the same work, the fastest turn of each counts, and the work is compared."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.speed import case
from benchmarks.speed.contenders import Contender, command_of
from benchmarks.speed.environments import Unavailable
from benchmarks.speed.memory import peak_memory
from benchmarks.speed.work import Sizes, Work

LIMIT = 900.0
"""Seconds that a contender may take to its first round, or for one turn."""
TURN = 10.0
"""Seconds of a turn: contenders that are slower than it allows for run fewer rounds."""
PATIENCE = 60.0
"""Seconds of a round from which on one turn is enough."""


class Result(NamedTuple):
    """What was measured of a contender.

    Seconds a round in its fastest turn; rounds in a turn; seconds from its start to the end of its first round;
    peak memory in bytes; example gradients a round; how far its final parameters are from lur's after as many
    rounds, as a share of the way that lur's went (None for the floor, which goes none); versions of its packages.
    """

    name: str
    seconds: float
    rounds: int
    warm_up: float
    memory: int | None
    examples: float
    difference: float | None
    versions: dict[str, str]


class Entry:
    """A contender on its way through a race."""

    def __init__(self, name: str, contender: Contender, warm_up: float, versions: dict[str, str]):
        self.name, self.contender, self.warm_up, self.versions = name, contender, warm_up, versions
        self.rounds, self.best, self.examples = 1, float("inf"), 0.0

    def turn(self) -> None:
        """One turn of its rounds."""
        answer = self.contender.ask({"run": self.rounds}, LIMIT)
        self.best = min(self.best, answer["seconds"] / self.rounds)
        self.examples = answer["examples"] / self.rounds


def started(name: str, folder: Path, setup: dict[str, object], command: Sequence[str] | None = None) -> Entry:
    """A contender that has run its first round."""
    command = command or command_of(name)
    start = time.perf_counter()
    contender = Contender(name, command, folder / f"{name}.log")
    try:
        answer = contender.ask({"setup": setup}, LIMIT)
    except BaseException:
        contender.close()
        raise
    return Entry(name, contender, time.perf_counter() - start, answer["versions"])


def parameters(contender: Contender, folder: Path) -> dict[str, np.ndarray]:
    """The parameters after a contender's last run."""
    file = folder / "result.npz"
    contender.ask({"result": str(file)}, LIMIT)
    with np.load(file) as content:
        return {name: content[name] for name in content.files}


def difference(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], initial: dict[str, np.ndarray]) -> float:
    """|found - expected| / |expected - initial| over all parameters."""
    if {name: array.shape for name, array in found.items()} != {name: array.shape for name, array in expected.items()}:
        return float("inf")

    def distance(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> float:
        return float(np.sqrt(sum(np.square(a[name] - b[name], dtype=np.float64).sum() for name in a)))

    return distance(found, expected) / distance(expected, initial)


def race(
    task: str,
    work: Work,
    sizes: Sizes,
    names: Sequence[str],
    *,
    rounds: int,
    turns: int,
    report: Callable[[str], None] = lambda line: None,
    commands: dict[str, Sequence[str]] | None = None,
) -> tuple[list[Result], dict[str, str]]:
    """Measure contenders, the first of them lur, the reference. Returns results, and why the others were skipped."""
    skipped: dict[str, str] = {}
    entries: list[Entry] = []
    results: list[Result] = []

    def leave(entry: Entry, why: Unavailable) -> None:
        skipped[entry.name] = str(why)
        entries.remove(entry)
        entry.contender.close()

    with tempfile.TemporaryDirectory(prefix="lur-bench-") as scratch:
        folder = Path(scratch)
        file = folder / "case.npz"
        case.write(file, work, sizes, rounds)
        with np.load(file) as content:
            initial = {n.removeprefix("params:"): content[n] for n in content.files if n.startswith("params:")}
        setup = {"file": str(file), "task": task, "client_lr": work.client_lr}
        try:
            for name in names:
                report(f"{name}: starting")
                try:
                    entry = started(name, folder, setup, (commands or {}).get(name))
                    entries.append(entry)
                    entry.turn()
                    entry.rounds = max(1, min(rounds, int(TURN / entry.best)))
                except Unavailable as why:
                    if entries and entries[-1].name == name:
                        leave(entries[-1], why)
                    skipped[name] = str(why)
                    report(f"{name}: skipped")
            if not entries or entries[0].name != names[0]:
                raise ValueError(f"{names[0]} must run, it did not: {skipped.get(names[0])}")
            for turn in range(turns):
                for entry in [entry for entry in entries if turn == 0 or entry.best < PATIENCE]:
                    report(f"turn {turn + 1} of {turns}: {entry.name}")
                    try:
                        entry.turn()
                    except Unavailable as why:
                        leave(entry, why)
            finals = {entry.name: (entry.rounds, parameters(entry.contender, folder)) for entry in entries}
            memory = {entry.name: peak_memory(entry.contender.process.pid) for entry in entries}
            reference = entries[0].contender
            expected = {}
            for count in {count for count, _ in finals.values()}:
                reference.ask({"run": count}, LIMIT)
                expected[count] = parameters(reference, folder)
            for entry in entries:
                count, found = finals[entry.name]
                gap = difference(found, expected[count], initial) if found else None
                results.append(
                    Result(
                        entry.name, entry.best, entry.rounds, entry.warm_up, memory[entry.name], entry.examples, gap,
                        entry.versions,
                    )
                )  # fmt: skip
        finally:
            for entry in entries:
                entry.contender.close()
    return results, skipped
