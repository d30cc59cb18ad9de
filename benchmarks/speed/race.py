"""The race: contenders take turns over the same work, the fastest turn of each counts, and the work is compared."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from benchmarks.speed import case
from benchmarks.speed.contenders import STAND_INS, Contender, command_of
from benchmarks.speed.environments import Unavailable
from benchmarks.speed.memory import peak_memory
from benchmarks.speed.work import Sizes, Work

Arrays = dict[str, np.ndarray]
LIMIT = 900.0
"""Seconds that a contender may take to its first round, or for one turn."""
TURN = 10.0
"""Seconds of a turn: contenders that are slower than it allows for run fewer rounds."""
LEAST = 0.5
"""Seconds of a turn below which its rounds are run again: a few milliseconds after others' seconds show cold caches."""
PATIENCE = 15.0
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
        """One turn of its rounds, as often as it takes to last: the mean of these counts."""
        seconds, times = 0.0, 0
        while seconds < LEAST:
            answer = self.contender.ask({"run": self.rounds}, LIMIT)
            seconds, times = seconds + answer["seconds"], times + 1
            self.examples = answer["examples"] / self.rounds
        self.best = min(self.best, seconds / (times * self.rounds))

    def result(self, difference: float | None) -> Result:
        """What was measured."""
        memory = peak_memory(self.contender.process.pid)
        return Result(self.name, self.best, self.rounds, self.warm_up, memory, self.examples, difference, self.versions)


class Race:
    """Contenders that run, and those that were skipped with the reason. The first to start is the reference, lur."""

    def __init__(self, folder: Path, setup: Mapping[str, object], report: Callable[[str], None]):
        self.folder, self.setup, self.report = folder, setup, report
        self.entries: list[Entry] = []
        self.skipped: dict[str, str] = {}

    def start(self, name: str, command: Sequence[str] | None, rounds: int) -> bool:
        """Start a contender; one round says how many it can run in a turn. False where it is skipped."""
        self.report(f"{name}: starting")
        contender = None
        try:
            command = command or command_of(name)
            began = time.perf_counter()
            contender = Contender(name, command, self.folder / f"{name}.log")
            versions = contender.ask({"setup": dict(self.setup)}, LIMIT)["versions"]
            entry = Entry(name, contender, time.perf_counter() - began, versions)
            entry.turn()
        except Unavailable as why:
            self.skipped[name] = str(why)
            if contender:
                contender.close()
            return False
        entry.rounds = max(1, min(rounds, int(TURN / entry.best)))
        self.entries.append(entry)
        return True

    def take_turns(self, turns: int) -> None:
        """All contenders, one after the other, so many times."""
        for turn in range(turns):
            for entry in [entry for entry in self.entries if turn == 0 or entry.best < PATIENCE]:
                self.report(f"turn {turn + 1} of {turns}: {entry.name}")
                try:
                    entry.turn()
                except Unavailable as why:
                    self.skipped[entry.name] = str(why)
                    self.entries.remove(entry)
                    entry.contender.close()

    def parameters(self, entry: Entry) -> Arrays:
        """The parameters after a contender's last turn."""
        file = self.folder / "result.npz"
        entry.contender.ask({"result": str(file)}, LIMIT)
        with np.load(file) as content:
            return {name: content[name] for name in content.files}

    def results(self, initial: Arrays) -> list[Result]:
        """What was measured, each contender's last parameters compared with lur's after as many rounds."""
        finals = [(entry, self.parameters(entry)) for entry in self.entries]
        reference = Entry("reference", self.entries[0].contender, 0.0, {})
        expected: dict[int, Arrays] = {}
        for rounds in {entry.rounds for entry in self.entries}:
            reference.rounds = rounds
            reference.turn()
            expected[rounds] = self.parameters(reference)

        def gap(entry: Entry, found: Arrays) -> float | None:
            return None if entry.name == "floor" else difference(found, expected[entry.rounds], initial)

        return [entry.result(gap(entry, found)) for entry, found in finals]

    def close(self) -> None:
        """End all contenders."""
        for entry in self.entries:
            entry.contender.close()


def difference(found: Arrays, expected: Arrays, initial: Arrays) -> float:
    """|found - expected| / |expected - initial| over all parameters."""
    if {name: array.shape for name, array in found.items()} != {name: array.shape for name, array in expected.items()}:
        return float("inf")

    def distance(a: Arrays, b: Arrays) -> float:
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
    commands: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> tuple[list[Result], dict[str, str]]:
    """Measure contenders, the first of them lur, the reference. Returns results, and why the others were skipped."""
    with tempfile.TemporaryDirectory(prefix="lur-bench-") as scratch:
        file = Path(scratch) / "case.npz"
        initial = case.write(file, work, sizes, rounds)
        entered = Race(Path(scratch), {"file": str(file), "task": task, "client_lr": work.client_lr}, report)
        try:
            for name in names:
                if not entered.start(name, commands.get(name), rounds) and name in STAND_INS:
                    entered.start(STAND_INS[name], None, rounds)
            entered.take_turns(turns)
            if names[0] in entered.skipped:
                raise ValueError(f"{names[0]} must run, it did not: {entered.skipped[names[0]]}")
            return entered.results(initial), entered.skipped
        finally:
            entered.close()
