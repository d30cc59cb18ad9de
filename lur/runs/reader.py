"""Reading a run folder from outside: one that is finished, still going, or was cut off."""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lur.runs import folder
from lur.runs.errors import Damaged
from lur.runs.log import lines, number

State = Literal["running", "finished", "diverged", "stopped"]


class Record(NamedTuple):
    """What a run folder holds. `state` is running if a process is at it, stopped if none is and it has not ended."""

    path: Path
    kind: str
    state: State
    why: str | None
    config: dict[str, Any]
    environment: dict[str, Any]
    rounds: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    timings: list[dict[str, Any]]


def read_run(path: Path) -> Record:
    """A run folder, as far as it goes."""
    from lur.training.configuration import read_values

    about = folder.about(path)
    result = folder.read_json(path / "result.json") if (path / "result.json").exists() else None
    if folder.is_held(path):
        state: State = "running"
    elif result is None:
        state = "stopped"
    else:
        state = "diverged" if result.get("state") == "diverged" else "finished"
    return Record(
        path,
        str(about.get("kind")),
        state,
        None if result is None else result.get("why"),
        read_values(path / "config.toml"),
        folder.read_json(path / "environment.json"),
        *([*checked(path / name, numbers)] for name, numbers in NUMBERS.items()),
    )


NUMBERS = {
    "log.jsonl": ("loss", "update_norm", "client_lr", "server_lr"),
    "evaluation.jsonl": ("f",),
    "timing.jsonl": ("seconds",),
}
"""The logs of a run, and what of a line must be numbers beside its round."""
LAST = 2**31


def checked(path: Path, numbers: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The lines of a log, which may come from anywhere: with a round, and numbers where a reader counts on them."""
    for k, line in enumerate(lines(path), start=1):
        t = line.get("round")
        if not isinstance(t, int) or isinstance(t, bool) or not 0 <= t < LAST:
            raise Damaged(f"{path}, line {k}: expected a round from 0 to 2^31 - 1, found {str(t)[:80]!r}")
        for name in numbers:
            value = line.get(name)
            for one in value if isinstance(value, list) and name == "client_lr" else [value]:
                if not is_number(one):
                    raise Damaged(f"{path}, line {k}: expected a number as {name}, found {str(one)[:80]!r}")
        yield line


def is_number(value: Any) -> bool:
    """Whether a log's value is a number, finite or not, that a float can hold."""
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < 2**1000
    return isinstance(value, float) or value in ("NaN", "Infinity", "-Infinity")


class Block(NamedTuple):
    """A quantity over rounds `first` to `last`: mean and standard deviation over the `rounds` of them that count."""

    first: int
    last: int
    mean: float
    spread: float
    rounds: int


def blocks(rounds: Iterable[Mapping[str, Any]], name: str = "update_norm", size: int = 1000) -> list[Block]:
    """A quantity of the log per block of rounds, say ||q_t|| per 1,000. What is not finite is left out."""
    if isinstance(size, bool) or int(size) != size or size < 1:
        raise ValueError(f"size must be an integer >= 1, got {size!r}")
    values: dict[int, list[float]] = {}
    for line in rounds:
        own = values.setdefault((line["round"] - 1) // size, [])
        value = number(line[name])
        if math.isfinite(value):
            own.append(value)
    return [block(k * size + 1, (k + 1) * size, own) for k, own in sorted(values.items()) if own]


def block(first: int, last: int, values: list[float]) -> Block:
    """Mean and spread of some values."""
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return Block(first, last, mean, spread, len(values))
