"""`lur sweep` in a run folder: a grid of rates that can be killed at any moment and goes on to the same numbers.

=====================  ==============================================================================================
``config.toml``        the configuration that all cells share, and a table ``[sweep]``: ``client_lr``, ``server_lr``,
                       ``tied``. Cell k is the k-th pair (gamma, eta), eta changing fastest
``log.jsonl``          a line per group and round: ``group``, ``round``, ``cells`` (those that have not diverged
                       before), and for each of them ``loss`` and ``update_norm``; with a decay rule also
                       ``client_lr``, ``server_lr``, ``decayed``. ``diverged``, where there, says of cells why they
                       diverged in this round: none of their later rounds is in the log
``evaluation.jsonl``   ``group``, ``round``, ``cells``, ``f`` and ``accuracy`` (if it has one)
``timing.jsonl``       ``group``, ``round``, ``rounds`` (since the line before), ``seconds``, ``time``
``result.json``        ``state``, ``rounds``, ``cells``, ``diverged``: of each cell in which round and why
=====================  ==============================================================================================

Groups run one after the other; a checkpoint holds the group that is under way. A checkpoint's number counts the
rounds of all groups.
"""

import hashlib
import json
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from lur.data.store_cache import digest
from lur.runs import folder
from lur.runs.environment import environment
from lur.runs.errors import RunError
from lur.runs.files import write_file
from lur.runs.log import lines, plain
from lur.runs.session import Step, recorded, resumed
from lur.runs.stopping import Stop
from lur.tasks.task import Task
from lur.training import configuration as configs
from lur.training.sweeps import Cursor, Part, Sweep, Way, begin, groups_of, parts, way_of

KIND = "sweep"
LOGS = ("log.jsonl", "evaluation.jsonl", "timing.jsonl")
NAMES = ("loss", "update_norm")
DECAYING = ("client_lr", "server_lr", "decayed")


def sweep_in(
    path: Path,
    task: Task,
    sweep: Sweep,
    *,
    stop: Stop | None = None,
    chunk: int | Callable[[float], int] = 10,
    say: Callable[[str], None] = print,
    memory: int | None = None,
) -> Generator[Part]:
    """The sweep in a run folder, begun or continued; yields what is new. A finished one yields nothing.

    `say` is told what was found; `memory` are the bytes to use, by default half of what is free.
    """
    stop = Stop() if stop is None else stop
    sweep = settled(sweep, task)
    folder.is_begun(path)
    with folder.held(path):
        begun = folder.is_begun(path)
        way = kept_way(path, way_of(task, sweep, memory), task, sweep) if begun else way_of(task, sweep, memory)
        here = environment(layout=str(way.layout), cells_at_once=way.at_once)
        prepare(path, task, sweep, here, begun)
        if (path / "result.json").exists():
            say(f"{path}: finished; nothing is left to do")
            return
        say(f"{path}: {way.why}")
        with resumed(path, LOGS, begin(task, sweep, way, 0), say) as (session, cursor):
            cursor = Cursor(*cursor)
            if begun:
                for change in folder.resume_environment(path, here, session.round):
                    say(f"{path}: not as the sweep began, its last digits may differ: {change}")
                say(f"{path}: goes on after round {int(cursor.round):,} of group {int(cursor.group)}")
            cursor = cursor._replace(state=jax.tree.map(jax.numpy.asarray, cursor.state))
            try:
                yield from recorded_parts(session, task, sweep, way, cursor, stop, chunk)
            except OSError as error:
                kept = "nothing but its logs" if session.saved is None else "its last checkpoint"
                raise OSError(f"{error}; {path} keeps {kept}: mend that and start it again") from error


def recorded_parts(
    session: Any, task: Task, sweep: Sweep, way: Way, cursor: Cursor, stop: Stop, chunk: Any
) -> Iterator[Part]:
    """The rounds that are left, recorded; then how it ended."""
    config = sweep.run
    part: Part | None = None

    def steps() -> Iterator[Step]:
        nonlocal part
        for part in parts(task, sweep, way, cursor, chunk):
            yield step_of(part, sweep)

    for _ in recorded(session, steps(), stop, every=config.checkpoint_every, seconds=config.checkpoint_seconds):
        assert part is not None  # the step was made from it
        yield part
    at = cursor if part is None else part.cursor
    last = int(at.group) == len(groups_of(len(sweep.cells), way.at_once)) - 1
    if last and (int(at.round) == config.rounds or not at.alive.any()):
        write_file(session.path / "result.json", json.dumps(result_of(session.path, sweep), indent=1) + "\n")


def step_of(part: Part, sweep: Sweep) -> Step:
    """The lines of some rounds."""
    at, rounds = part.cursor, len(part.infos.loss)
    group = int(at.group)
    names = (*NAMES, *DECAYING) if sweep.run.decay != "off" else NAMES
    log = []
    for r in range(rounds):
        t = part.first + r + 1
        own = [k for k, cell in enumerate(part.cells) if t <= last_round(part, sweep, int(cell), at)]
        if not own:
            break
        line: dict[str, Any] = {"group": group, "round": t, "cells": part.cells[own]}
        line |= {name: getattr(part.infos, name)[r, own] for name in names}
        why = {str(cell): text for cell, (when, text) in part.ended.items() if when == t and not text.startswith("f(")}
        log.append(line | ({"diverged": why} if why else {}))
    evaluations = []
    if part.evaluations is not None:
        found = part.evaluations
        line = {"group": group, "round": int(at.round), "cells": [*found], "f": [one.loss for one in found.values()]}
        if all(one.accuracy == one.accuracy for one in found.values()):
            line["accuracy"] = [one.accuracy for one in found.values()]
        why = {str(cell): text for cell, (_, text) in part.ended.items() if text.startswith("f(")}
        evaluations.append(line | ({"diverged": why} if why else {}))
    timing = {
        "group": group, "round": int(at.round), "rounds": rounds, "seconds": round(part.seconds, 6),
        "time": round(time.time(), 3),
    }  # fmt: skip
    step = group * sweep.run.rounds + int(at.round)
    return Step(step, part.cursor, {"log.jsonl": log, "evaluation.jsonl": evaluations, "timing.jsonl": [timing]})


def last_round(part: Part, sweep: Sweep, cell: int, at: Cursor) -> int:
    """The last round of a computed cell that counts: of one that diverged in an earlier part none."""
    if cell in part.ended:
        return part.ended[cell][0]
    first = groups_of(len(sweep.cells), len(at.alive))[int(at.group)][0]
    return sweep.run.rounds if at.alive[cell - first] else 0


def result_of(path: Path, sweep: Sweep) -> dict[str, Any]:
    """How a sweep ended, from its logs."""
    diverged = {}
    for name in ("log.jsonl", "evaluation.jsonl"):
        for line in lines(path / name):
            for cell, why in line.get("diverged", {}).items():
                diverged[cell] = {"round": line["round"], "why": why}
    ended = dict(sorted(diverged.items(), key=lambda item: int(item[0])))
    return plain({"state": "finished", "rounds": sweep.run.rounds, "cells": len(sweep.cells), "diverged": ended})


def settled(sweep: Sweep, task: Task) -> Sweep:
    """The sweep with the task's own settings but its rates."""
    return replace(sweep, run=configs.settled(sweep.run, task.settings))


def text(sweep: Sweep) -> str:
    """The sweep as TOML."""
    rates = {"client_lr": sweep.client_lr, "server_lr": sweep.server_lr}
    table = "".join(f"{name} = [{', '.join(map(repr, values))}]\n" for name, values in rates.items())
    return f"{configs.text(sweep.run)}\n[sweep]\n{table}tied = {str(sweep.tied).lower()}\n"


def read(path: Path) -> Sweep:
    """The sweep of a TOML file."""
    values = configs.read_values(path)
    rates = values.pop("sweep", None)
    if not isinstance(rates, dict) or not {"client_lr", "server_lr", "tied"} >= set(rates) >= {"client_lr"}:
        raise RunError(f"{path}: expected a table [sweep] with client_lr, server_lr and tied, found {rates!r}")
    try:
        lists = {name: tuple(rates.get(name, ())) for name in ("client_lr", "server_lr")}
        return Sweep(configs.from_values(values, str(path)), **lists, tied=bool(rates.get("tied", False)))
    except (TypeError, ValueError) as error:
        raise RunError(f"{path}: {error}") from None


def prepare(path: Path, task: Task, sweep: Sweep, here: dict[str, Any], begun: bool) -> None:
    """Begin a sweep in the held folder, or check that the one there is this one."""
    data = hashlib.sha256(json.dumps(digest(task.store), sort_keys=True).encode()).hexdigest()
    if not begun:
        folder.begin(path, KIND, text(sweep), here, data)
        return
    about = folder.about(path, KIND)
    kept = read(path / "config.toml")
    changes = configs.difference(kept.run, sweep.run)
    for name in ("client_lr", "server_lr", "tied"):
        if getattr(kept, name) != getattr(sweep, name):
            changes.append(f"{name} {shown(getattr(kept, name))} -> {shown(getattr(sweep, name))}")
    if changes:
        raise RunError(f"{path}: expected the configuration it was begun with, got {'; '.join(changes)}")
    if about.get("data") != data:
        raise RunError(f"{path}: expected the data it was begun with, got a store with other content")


def shown(value: Any) -> str:
    """Rates in a sentence."""
    return ",".join(f"{one:g}" for one in value) if isinstance(value, tuple) else str(value)


def kept_way(path: Path, way: Way, task: Task, sweep: Sweep) -> Way:
    """The groups that the sweep began with, whatever memory is free now: its checkpoints have their shapes."""
    began = folder.read_json(path / "environment.json").get("begun", {}).get("cells_at_once")
    if not isinstance(began, int) or began < 1 or began == way.at_once:
        return way
    layout = way.layout if began > 1 else way_of(task, replace(sweep), 0).layout
    return Way(began, layout, f"groups of {began}, as it began")


def configured(path: Path) -> Sweep:
    """The sweep of a run folder."""
    folder.about(path, KIND)
    return read(path / "config.toml")
