"""Reading a run folder from outside, whether the run is finished, still going, or was killed."""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lur.runs import folder
from lur.runs.errors import Damaged
from lur.runs.files import read_lines

RunStatus = Literal["running", "finished", "diverged", "stopped"]
NUMERIC_FIELDS = {
    "log.jsonl": ("loss", "update_norm", "client_lr", "server_lr"),
    "evaluation.jsonl": ("f",),
    "timing.jsonl": ("seconds",),
}
"""The logs of a run, and the fields of their lines that must be numbers."""
MAX_ROUND = 2**31


class RunRecord(NamedTuple):
    """The content of a run folder.

    Attributes:
      path: the folder.
      kind: "train" or "sweep".
      state: "running" if a process has locked the folder, "stopped" if none has and the run has not ended.
      why: why the run diverged; None if it has not.
      config: the configuration, as in config.toml.
      environment: the content of environment.json.
      rounds: the lines of log.jsonl.
      evaluations: the lines of evaluation.jsonl.
      timings: the lines of timing.jsonl.
    """

    path: Path
    kind: str
    state: RunStatus
    why: str | None
    config: dict[str, Any]
    environment: dict[str, Any]
    rounds: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    timings: list[dict[str, Any]]


def read_run(path: Path) -> RunRecord:
    """Read a run folder, as far as the run has come."""
    from lur.training.configuration import read_toml

    info = folder.read_run_info(path)
    result = folder.read_json(path / "result.json") if (path / "result.json").exists() else None
    if folder.is_locked(path):
        state: RunStatus = "running"
    elif result is None:
        state = "stopped"
    else:
        state = "diverged" if result.get("state") == "diverged" else "finished"
    return RunRecord(
        path,
        str(info.get("kind")),
        state,
        None if result is None else result.get("why"),
        read_toml(path / "config.toml"),
        folder.read_json(path / "environment.json"),
        *([*_checked_lines(path / name, fields)] for name, fields in NUMERIC_FIELDS.items()),
    )


class Block(NamedTuple):
    """Statistics of a quantity over a block of rounds.

    Attributes:
      first: first round of the block.
      last: last round of the block.
      mean: mean over the rounds that count.
      spread: standard deviation over them.
      rounds: number of rounds that count: those with a finite value.
    """

    first: int
    last: int
    mean: float
    spread: float
    rounds: int


def block_statistics(rounds: Iterable[Mapping[str, Any]], name: str = "update_norm", size: int = 1000) -> list[Block]:
    """Statistics of a quantity per block of rounds, for example ||q_t|| per 1,000 rounds.

    Args:
      rounds: lines of log.jsonl.
      name: the quantity.
      size: rounds per block.
    """
    if isinstance(size, bool) or int(size) != size or size < 1:
        raise ValueError(f"size must be an integer >= 1, got {size!r}")
    values_by_block: dict[int, list[float]] = {}
    for line in rounds:
        values = values_by_block.setdefault((line["round"] - 1) // size, [])
        value = float(line[name])
        if math.isfinite(value):
            values.append(value)
    blocks = []
    for k, values in sorted(values_by_block.items()):
        if values:
            mean = math.fsum(values) / len(values)
            spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
            blocks.append(Block(k * size + 1, (k + 1) * size, mean, spread, len(values)))
    return blocks


def _checked_lines(path: Path, numeric: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The lines of a log, which may come from anywhere: `Damaged` is raised unless rounds and numbers are such."""
    for k, line in enumerate(read_lines(path), start=1):
        t = line.get("round")
        if not isinstance(t, int) or isinstance(t, bool) or not 0 <= t < MAX_ROUND:
            raise Damaged(f"{path}, line {k}: expected a round from 0 to 2^31 - 1, found {str(t)[:80]!r}")
        for name in numeric:
            value = line.get(name)
            for number in value if isinstance(value, list) and name == "client_lr" else [value]:
                if not _is_number(number):
                    raise Damaged(f"{path}, line {k}: expected a number as {name}, found {str(number)[:80]!r}")
        yield line


def _is_number(value: Any) -> bool:
    """Whether a value of a log is a number, finite or not, that a float can hold."""
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < 2**1000
    return isinstance(value, float) or value in ("NaN", "Infinity", "-Infinity")
