"""A race: contenders take turns over the same work, the fastest turn of each counts, and their models are compared."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from benchmarks.speed.case import write_case
from benchmarks.speed.contenders import STAND_INS, Contender, command_of
from benchmarks.speed.environments import Unavailable
from benchmarks.speed.memory import peak_memory
from benchmarks.speed.workloads import Sizes, Workload

Arrays = dict[str, np.ndarray]
LIMIT = 900.0
"""Most seconds to a contender's first round, and for one turn."""
MAX_TURN_SECONDS = 10.0
"""Length of a turn: slower contenders run fewer rounds in it."""
MIN_TURN_SECONDS = 0.5
"""Shorter turns repeat their rounds: a few milliseconds after another contender's turn would measure cold caches."""
ONE_TURN_SECONDS = 15.0
"""Contenders with slower rounds take one turn only."""


class Result(NamedTuple):
    """Measurements of a contender.

    Attributes:
        name: The contender.
        seconds: Seconds per round in its fastest turn.
        rounds: Rounds in a turn.
        warm_up: Seconds from its start to the end of its first round.
        memory: Peak memory in bytes; None if unknown.
        examples: Example gradients per round.
        difference: Distance of its final parameters from lur's after the same number of rounds, relative to the
            distance that lur's moved. None for the floor, which takes no steps.
        versions: Versions of its packages.
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
    """A contender in a race and its measurements so far."""

    def __init__(self, name: str, contender: Contender, warm_up: float, versions: dict[str, str]):
        self.name, self.contender, self.warm_up, self.versions = name, contender, warm_up, versions
        self.rounds, self.best, self.examples = 1, float("inf"), 0.0

    def turn(self) -> None:
        """Takes a turn: repeats its rounds for at least `MIN_TURN_SECONDS` and counts the mean."""
        seconds, repeats = 0.0, 0
        while seconds < MIN_TURN_SECONDS:
            answer = self.contender.ask({"run": self.rounds}, LIMIT)
            seconds, repeats = seconds + answer["seconds"], repeats + 1
            self.examples = answer["examples"] / self.rounds
        self.best = min(self.best, seconds / (repeats * self.rounds))

    def result(self, difference: float | None) -> Result:
        """Its measurements."""
        memory = peak_memory(self.contender.process.pid)
        return Result(self.name, self.best, self.rounds, self.warm_up, memory, self.examples, difference, self.versions)


class Race:
    """Running contenders, and the reasons why others were skipped. The first one started is the reference, lur."""

    def __init__(self, folder: Path, setup: Mapping[str, object], report: Callable[[str], None]):
        self.folder, self.setup, self.report = folder, setup, report
        self.entries: list[Entry] = []
        self.skipped: dict[str, str] = {}

    def start(self, name: str, command: Sequence[str] | None, rounds: int) -> bool:
        """Starts a contender and sets the rounds of its turns from the time of one round. False if it is skipped."""
        self.report(f"{name}: starting")
        contender = None
        try:
            command = command or command_of(name)
            began = time.perf_counter()
            contender = Contender(name, command, self.folder / f"{name}.log")
            versions = contender.ask({"setup": dict(self.setup)}, LIMIT)["versions"]
            entry = Entry(name, contender, time.perf_counter() - began, versions)
            entry.turn()
        except Unavailable as error:
            self.skipped[name] = str(error)
            if contender:
                contender.close()
            return False
        entry.rounds = max(1, min(rounds, int(MAX_TURN_SECONDS / entry.best)))
        self.entries.append(entry)
        return True

    def take_turns(self, turns: int) -> None:
        """Runs the contenders in turns."""
        for turn in range(turns):
            for entry in [entry for entry in self.entries if turn == 0 or entry.best < ONE_TURN_SECONDS]:
                self.report(f"turn {turn + 1} of {turns}: {entry.name}")
                try:
                    entry.turn()
                except Unavailable as error:
                    self.skipped[entry.name] = str(error)
                    self.entries.remove(entry)
                    entry.contender.close()

    def parameters(self, entry: Entry) -> Arrays:
        """The parameters after a contender's last turn."""
        file = self.folder / "result.npz"
        entry.contender.ask({"result": str(file)}, LIMIT)
        with np.load(file) as content:
            return {name: content[name] for name in content.files}

    def results(self, initial: Arrays) -> list[Result]:
        """All measurements; compares each contender's last parameters with lur's after the same number of rounds."""
        finals = [(entry, self.parameters(entry)) for entry in self.entries]
        reference = Entry("reference", self.entries[0].contender, 0.0, {})
        expected: dict[int, Arrays] = {}
        for rounds in {entry.rounds for entry in self.entries}:
            reference.rounds = rounds
            reference.turn()
            expected[rounds] = self.parameters(reference)

        def difference_from_lur(entry: Entry, final: Arrays) -> float | None:
            return None if entry.name == "floor" else relative_difference(final, expected[entry.rounds], initial)

        return [entry.result(difference_from_lur(entry, final)) for entry, final in finals]

    def close(self) -> None:
        """Ends all contenders."""
        for entry in self.entries:
            entry.contender.close()


def relative_difference(final: Arrays, expected: Arrays, initial: Arrays) -> float:
    """|final - expected| / |expected - initial| over all parameters; infinite if names or shapes differ."""
    if {name: array.shape for name, array in final.items()} != {name: array.shape for name, array in expected.items()}:
        return float("inf")

    def distance(a: Arrays, b: Arrays) -> float:
        return float(np.sqrt(sum(np.square(a[name] - b[name], dtype=np.float64).sum() for name in a)))

    return distance(final, expected) / distance(expected, initial)


def race(
    task: str,
    workload: Workload,
    sizes: Sizes,
    names: Sequence[str],
    *,
    rounds: int,
    turns: int,
    report: Callable[[str], None] = lambda line: None,
    commands: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> tuple[list[Result], dict[str, str]]:
    """Races contenders against each other.

    Args:
        task: Name of the workload.
        workload: What is timed.
        sizes: M, K and B.
        names: The contenders; the first is the reference, lur.
        rounds: Most rounds in a turn.
        turns: Turns of each contender.
        report: Receives lines of progress.
        commands: Commands that start contenders, by name, instead of the usual ones.

    Returns:
        The results, and by name the reason why a contender was skipped.
    """
    with tempfile.TemporaryDirectory(prefix="lur-bench-") as scratch:
        file = Path(scratch) / "case.npz"
        initial = write_case(file, workload, sizes, rounds)
        running = Race(Path(scratch), {"file": str(file), "task": task, "client_lr": workload.client_lr}, report)
        try:
            for name in names:
                if not running.start(name, commands.get(name), rounds) and name in STAND_INS:
                    running.start(STAND_INS[name], None, rounds)
            running.take_turns(turns)
            if names[0] in running.skipped:
                raise ValueError(f"the reference {names[0]} must run, but it was skipped: {running.skipped[names[0]]}")
            return running.results(initial), running.skipped
        finally:
            running.close()
