"""Reading a run folder from outside, whether the run is finished, still going, or was killed."""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lur.runs import folder
from lur.runs.errors import Damaged, excerpt
from lur.runs.files import read_lines

RunStatus = Literal["running", "finished", "diverged", "stopped"]
NUMERIC_FIELDS = {
    "log.jsonl": ("loss", "update_norm", "client_lr", "server_lr"),
    "evaluation.jsonl": ("f",),
    "timing.jsonl": ("seconds",),
}
"""The logs of a run, and the fields of their lines that must be numbers."""
MAX_ROUND = 2**31
LARGE = 1e150
"""The square of a larger number may be infinite."""


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
    from lur.runs.kept_config import read_kept_config

    config = read_kept_config(path)
    info = folder.read_run_info(path)
    is_running = folder.is_locked(path)
    result = folder.read_result(path, check_logs=not is_running)
    state: RunStatus = "running" if is_running else "stopped" if result is None else result["state"]
    return RunRecord(
        path,
        str(info.get("kind")),
        state,
        None if result is None else result.get("why"),
        config,
        folder.read_environment(path),
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
            largest = max(map(abs, values))
            scale = 2.0 ** (math.frexp(largest)[1] - 1) if largest > LARGE else 1.0  # no sum of squares overflows
            scaled = [value / scale for value in values]
            mean = math.fsum(scaled) / len(values)
            spread = scale * math.sqrt(math.fsum((value - mean) ** 2 for value in scaled) / len(values))
            mean *= scale
            blocks.append(Block(k * size + 1, (k + 1) * size, mean, spread, len(values)))
    return blocks


def _checked_lines(path: Path, numeric: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The lines of a log, which may come from anywhere: `Damaged` is raised unless rounds and numbers are such."""
    for k, line in enumerate(read_lines(path), start=1):
        t = line.get("round")
        if not isinstance(t, int) or isinstance(t, bool) or not 0 <= t < MAX_ROUND:
            raise Damaged(f"{path}, line {k}: expected a round from 0 to 2^31 - 1, found {excerpt(t)}")
        for name in numeric:
            value = line.get(name)
            for number in value if isinstance(value, list) and name == "client_lr" else [value]:
                if not is_number(number):
                    raise Damaged(f"{path}, line {k}: expected a number as {name}, found {excerpt(number)}")
        yield line


def is_number(value: Any) -> bool:
    """Whether a value of a log is a number, finite or not, that a float can hold."""
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < 2**1000
    return isinstance(value, float) or value in ("NaN", "Infinity", "-Infinity")
