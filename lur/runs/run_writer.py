"""Writing into a run folder: logs and checkpoints that always agree, for any state and any log lines."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxtyping import PyTree

from lur.runs import checkpoint
from lur.runs.files import START, Log, Position, require_descriptors
from lur.training.loop import StopRequest

LogLines = Mapping[str, Sequence[Mapping[str, Any]]]
"""New lines, by the file name of their log."""


class Segment(NamedTuple):
    """Some consecutive rounds of a run, as they are recorded.

    Attributes:
      round: number of rounds done since the beginning of the run.
      state: the state after them.
      lines: the log lines of these rounds.
      final_lines: lines that are written only if the run ends here, such as its last evaluation. They follow the
        last checkpoint, so that a run which is extended later drops them. A run that was killed between its last
        checkpoint and these lines resumes with one segment that has no lines but the final ones.
    """

    round: int
    state: PyTree
    lines: LogLines
    final_lines: LogLines = MappingProxyType({})


class RunWriter:
    """The open logs of a locked run folder, and its checkpoints.

    Attributes:
      path: the run folder.
      round: number of rounds in the logs.
      saved_round: round of the last checkpoint; None if there is none.
      logs: the logs by file name.
    """

    def __init__(self, path: Path, log_names: Iterable[str], restored: checkpoint.Restored | None):
        self.path = path
        self.round = 0 if restored is None else restored.round
        self.saved_round: int | None = None if restored is None else restored.round
        positions = {} if restored is None else restored.positions
        self.logs: dict[str, Log] = {}
        for name in log_names:
            self.logs[name] = Log(path / name, positions.get(name, START))

    def append(self, lines: LogLines) -> None:
        """Append lines to the logs."""
        for name, entries in lines.items():
            self.logs[name].append(entries)

    def save(self, state: PyTree) -> None:
        """Write a checkpoint of the current round, unless there is one."""
        if self.saved_round != self.round:
            checkpoint.save(self.path / "checkpoints", self.round, state, self.positions())
            self.saved_round = self.round

    def positions(self) -> dict[str, Position]:
        """Wait until all lines are on the disk, and return where each log ends."""
        return {name: log.sync() for name, log in self.logs.items()}

    def close(self) -> None:
        """Close the logs."""
        for log in self.logs.values():
            log.close()


@contextmanager
def open_writer(
    path: Path, log_names: Iterable[str], initial_state: PyTree, notify: Callable[[str], None]
) -> Iterator[tuple[RunWriter, PyTree]]:
    """Open a locked run folder at its last good checkpoint, or at the beginning.

    Args:
      path: the run folder.
      log_names: file names of the logs. They are cut back to where the checkpoint was written.
      initial_state: the state before the first round, which also says the shapes of a checkpoint.
      notify: receives a sentence for each damaged checkpoint that is skipped.

    Returns:
      A context manager of the writer and the state to continue from.
    """
    require_descriptors(path)
    has_checkpoints = (path / "checkpoints").exists()
    restored = checkpoint.restore(path / "checkpoints", path, initial_state, notify) if has_checkpoints else None
    writer = RunWriter(path, log_names, restored)
    try:
        yield writer, initial_state if restored is None else restored.state
    finally:
        writer.close()


def record_segments(
    writer: RunWriter,
    segments: Iterable[Segment],
    stop: StopRequest,
    *,
    every: int | None = None,
    seconds: float = 60.0,
) -> Iterator[Segment]:
    """Write the lines of each segment, and checkpoints at intervals and at the end.

    Args:
      writer: from `open_writer`.
      segments: the rounds of the run, in order.
      stop: when it is requested, a checkpoint is written and the run ends there.
      every: rounds between checkpoints; None leaves it to `seconds`.
      seconds: time between checkpoints.

    Yields:
      Each segment, after its lines are written.
    """
    last_save = time.monotonic()
    last: Segment | None = None
    for segment in segments:
        last = segment
        writer.append(segment.lines)
        writer.round = segment.round
        if stop.signal is not None:
            writer.save(segment.state)
        elif (every is not None and segment.round % every == 0) or time.monotonic() - last_save >= seconds:
            writer.save(segment.state)
            last_save = time.monotonic()
        yield segment
        if stop.signal is not None:
            writer.save(segment.state)
            return
    if last is not None:
        writer.save(last.state)
        writer.append(last.final_lines)
        for log in writer.logs.values():
            log.sync()
