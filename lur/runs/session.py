"""A run folder at work: its logs and its checkpoints move together, whatever the state and the lines are."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxtyping import PyTree

from lur.runs import checkpoint
from lur.runs.log import START, Log
from lur.runs.stopping import Stop

Lines = Mapping[str, Sequence[Mapping[str, Any]]]
"""New lines by the file name of their log."""


class Step(NamedTuple):
    """Some rounds done: the state after them and their lines.

    `closing` are lines that only the end of the run brings, as its last evaluation: they come after the last
    checkpoint, so that a run which is later extended drops them. Steps that start at the end, after a kill between
    the two, are one step without new lines but with the closing ones.
    """

    round: int
    state: PyTree
    lines: Lines
    closing: Lines = MappingProxyType({})


class Session:
    """The logs of a held run folder, open where the state in hand was."""

    def __init__(self, path: Path, names: Iterable[str], restored: checkpoint.Restored | None):
        self.path = path
        self.round = 0 if restored is None else restored.round
        self.saved: int | None = None if restored is None else restored.round
        positions = {} if restored is None else restored.positions
        self.logs: dict[str, Log] = {}
        for name in names:
            self.logs[name] = Log(path / name, positions.get(name, START))

    def append(self, lines: Lines) -> None:
        """Write lines."""
        for name, entries in lines.items():
            self.logs[name].append(entries)

    def save(self, state: PyTree) -> None:
        """Write a checkpoint of the present round, unless there is one."""
        if self.saved != self.round:
            positions = {name: log.sync() for name, log in self.logs.items()}
            checkpoint.save(self.path / "checkpoints", self.round, state, positions)
            self.saved = self.round

    def close(self) -> None:
        """Close the logs."""
        for log in self.logs.values():
            log.close()


@contextmanager
def resumed(
    path: Path, names: Iterable[str], like: PyTree, say: Callable[[str], None]
) -> Iterator[tuple[Session, PyTree]]:
    """The last good state of a held folder, or `like`, the first one, and its logs cut back to it."""
    restored = checkpoint.restore(path / "checkpoints", path, like, say)
    session = Session(path, names, restored)
    try:
        yield session, like if restored is None else restored.state
    finally:
        session.close()


def recorded(
    session: Session, steps: Iterable[Step], stop: Stop, *, every: int | None = None, seconds: float = 60.0
) -> Iterator[Step]:
    """Write the lines of each step, and a checkpoint every so many rounds or seconds and at the end.

    Yields each step when its lines are written. If `stop` asks, the checkpoint is written and the steps end there.
    """
    since = time.monotonic()
    last: Step | None = None
    for step in steps:
        last = step
        session.append(step.lines)
        session.round = step.round
        if stop.signal is not None:
            session.save(step.state)
        elif (every is not None and step.round % every == 0) or time.monotonic() - since >= seconds:
            session.save(step.state)
            since = time.monotonic()
        yield step
        if stop.signal is not None:
            session.save(step.state)
            return
    if last is not None:
        session.save(last.state)
        session.append(last.closing)
        for log in session.logs.values():
            log.sync()
