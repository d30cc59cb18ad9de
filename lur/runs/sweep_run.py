"""A sweep in a run folder: a grid of rates that can be killed at any moment, and then resumes to the same numbers.

=====================  ==============================================================================================
``config.toml``        the configuration that all cells share, and a table ``[sweep]``: ``client_lr``, ``server_lr``,
                       ``tied``. Cell k is the k-th pair (gamma, eta), with eta changing fastest
``log.jsonl``          one line per group and round: ``group``, ``round``, ``cells`` (those that have not diverged
                       before), and for each of them ``loss`` and ``update_norm``; with a decay rule also
                       ``client_lr``, ``server_lr``, ``decayed``. ``diverged`` says why cells diverged in this round;
                       their later rounds are not in the log
``evaluation.jsonl``   ``group``, ``round``, ``cells``, ``f`` and ``accuracy`` (if the task has one)
``timing.jsonl``       ``group``, ``round``, ``rounds`` (since the previous line), ``seconds``, ``time``
``result.json``        ``state``, ``rounds``, ``cells``, ``diverged``: in which round each of these cells did, and why
=====================  ==============================================================================================

Groups run one after another; a checkpoint holds the group that runs. The number of a checkpoint counts the rounds of
all groups.
"""

import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import jax

from lur.runs import folder
from lur.runs.environment import environment
from lur.runs.errors import Damaged, RunError
from lur.runs.files import read_lines, to_json
from lur.runs.kept_config import read_kept_config, update_kept_config
from lur.runs.run_writer import RunWriter, Segment, open_writer, record_segments
from lur.training.configuration import config_changes, config_from_values, read_toml, to_toml
from lur.training.loop import ChunkSize, StopRequest
from lur.training.sweep_plan import SweepConfig, SweepPlan
from lur.training.sweeps import SweepPosition, SweepProgress, initial_position, run_sweep

KIND = "sweep"
LOGS = ("log.jsonl", "evaluation.jsonl", "timing.jsonl")
LOGGED = ("loss", "update_norm")
LOGGED_WITH_DECAY = ("client_lr", "server_lr", "decayed")


def sweep_in_folder(
    path: Path,
    plan: SweepPlan,
    *,
    stop: StopRequest | None = None,
    chunk: ChunkSize = 10,
    notify: Callable[[str], None] = print,
) -> Generator[SweepProgress]:
    """Run a sweep in a run folder, which is created or resumed.

    Args:
      path: the run folder.
      plan: from `lur.training.sweep_plan.plan_sweep`. A sweep that resumes keeps the groups it began with.
      stop: ends the sweep after a checkpoint once it is requested.
      chunk: rounds per progress report.
      notify: receives sentences for people.

    Yields:
      The new progress. A sweep that is finished yields nothing.
    """
    stop = StopRequest() if stop is None else stop
    folder.has_run(path)  # refuses a folder with other content before a lock is created in it
    with folder.lock_folder(path):
        resuming = folder.has_run(path)
        if resuming:
            plan = _with_first_group_size(path, plan)
        here = environment(layout=str(plan.layout), cells_at_once=plan.cells_per_group)
        _create_or_check(path, plan, here, resuming)
        try:
            if folder.read_result(path, check_logs=True) is not None:
                notify(f"{path}: finished; nothing to do")
                return
        except Damaged as error:
            notify(f"{error}; the sweep goes on from its last intact checkpoint")
        (path / "result.json").unlink(missing_ok=True)
        notify(f"{path}: {plan.reason}")
        with open_writer(path, LOGS, initial_position(plan, 0), notify) as (writer, position):
            position = SweepPosition(*position)
            if resuming:
                for change in folder.record_environment_changes(path, here, writer.round):
                    notify(f"{path}: the environment has changed, so the last digits may differ: {change}")
                notify(f"{path}: resuming after round {int(position.round):,} of group {int(position.group)}")
            position = position._replace(state=jax.tree.map(jax.numpy.asarray, position.state))
            try:
                yield from _record_sweep(writer, plan, position, stop, chunk)
            except OSError as error:
                kept = "only its logs" if writer.saved_round is None else "its last checkpoint"
                raise OSError(
                    f"{error}; {path} keeps {kept}: fix the problem and run the same command again"
                ) from error


def read_sweep_config(path: Path) -> SweepConfig:
    """The sweep of a run folder."""
    return _sweep_from_values(read_kept_config(path, KIND), path / "config.toml")


def sweep_to_toml(sweep: SweepConfig) -> str:
    """The sweep as TOML."""
    rates = {"client_lr": sweep.client_lr, "server_lr": sweep.server_lr}
    table = "".join(f"{name} = [{', '.join(map(repr, values))}]\n" for name, values in rates.items())
    return f"{to_toml(sweep.run)}\n[sweep]\n{table}tied = {str(sweep.tied).lower()}\n"


def read_sweep_toml(path: Path) -> SweepConfig:
    """The sweep in a TOML file."""
    return _sweep_from_values(read_toml(path), path)


def _sweep_from_values(values: dict[str, Any], path: Path) -> SweepConfig:
    """The sweep of a configuration's values; `path` is their file, for messages."""
    values = {**values}
    rates = values.pop("sweep", None)
    if not isinstance(rates, dict) or not {"client_lr", "server_lr", "tied"} >= set(rates) >= {"client_lr"}:
        raise RunError(f"{path}: expected a table [sweep] with client_lr, server_lr and tied, found {rates!r}")
    try:
        lists = {name: tuple(rates.get(name, ())) for name in ("client_lr", "server_lr")}
        return SweepConfig(config_from_values(values, str(path)), **lists, tied=bool(rates.get("tied", False)))
    except (TypeError, ValueError, OverflowError) as error:
        raise RunError(f"{path}: {error}") from None


def _with_first_group_size(path: Path, plan: SweepPlan) -> SweepPlan:
    """The plan with the group size that the sweep began with: its checkpoints have that size, so it must not change."""
    size = folder.read_run_info(path).get("cells_at_once")
    if size is None:  # earlier versions of lur kept it in environment.json only
        size = folder.read_environment(path)["begun"].get("cells_at_once")
    if type(size) is not int or not 1 <= size <= len(plan.sweep.cells) or size == plan.cells_per_group:
        return plan
    return plan._replace(cells_per_group=size, reason=f"groups of {size}, as the sweep began")


def _create_or_check(path: Path, plan: SweepPlan, here: dict[str, Any], resuming: bool) -> None:
    """Create a sweep in the locked folder, or check that the sweep there is this one."""
    sweep, data = plan.sweep, folder.data_digest(plan.experiment.task)
    if not resuming:
        folder.create_run(path, KIND, sweep_to_toml(sweep), here, data, cells_at_once=plan.cells_per_group)
        return
    kept = read_sweep_config(path)
    changes = config_changes(kept.run, sweep.run)
    for name in ("client_lr", "server_lr"):
        before, after = (",".join(f"{rate:g}" for rate in getattr(one, name)) for one in (kept, sweep))
        if getattr(kept, name) != getattr(sweep, name):
            changes.append(f"{name} {before} -> {after}")
    if kept.tied != sweep.tied:
        changes.append(f"tied {kept.tied} -> {sweep.tied}")
    if changes:
        raise RunError(f"{path}: expected the configuration that the run began with, got {'; '.join(changes)}")
    folder.check_data(path, data)
    update_kept_config(path, sweep_to_toml(sweep))


def _record_sweep(
    writer: RunWriter, plan: SweepPlan, start: SweepPosition, stop: StopRequest, chunk: ChunkSize
) -> Iterator[SweepProgress]:
    """Run the sweep from where it stands, record it, and write how it ended."""
    config = plan.experiment.config
    progress: SweepProgress | None = None

    def segments() -> Iterator[Segment]:
        nonlocal progress
        for progress in run_sweep(plan, start, chunk):
            yield _segment(progress, plan)

    for _ in record_segments(
        writer, segments(), stop, every=config.checkpoint_every, seconds=config.checkpoint_seconds
    ):
        assert progress is not None  # the segment was made from it
        yield progress
    position = start if progress is None else progress.position
    in_last_group = int(position.group) == len(plan.groups) - 1
    if in_last_group and (int(position.round) == config.rounds or not position.alive.any()):
        folder.write_result(writer.path, _result(writer.path, plan.sweep), writer.positions())


def _segment(progress: SweepProgress, plan: SweepPlan) -> Segment:
    """The log lines of some rounds of a group."""
    position, config, rounds = progress.position, plan.experiment.config, len(progress.infos.loss)
    group, done = int(position.group), int(position.round)
    names = LOGGED if config.decay == "off" else (*LOGGED, *LOGGED_WITH_DECAY)
    last_rounds = [_last_round(progress, plan, int(cell)) for cell in progress.cells]
    log = []
    for r in range(rounds):
        t = progress.rounds_before + r + 1
        columns = [k for k, last in enumerate(last_rounds) if t <= last]
        if not columns:
            break
        line: dict[str, Any] = {"group": group, "round": t, "cells": progress.cells[columns]}
        line |= {name: getattr(progress.infos, name)[r, columns] for name in names}
        diverged = {
            str(cell): reason
            for cell, (when, reason) in progress.diverged.items()
            if when == t and not reason.startswith("f(x)")
        }
        log.append(line | ({"diverged": diverged} if diverged else {}))
    evaluations = []
    if progress.evaluations is not None:
        found = progress.evaluations.values()
        line = {"group": group, "round": done, "cells": [*progress.evaluations], "f": [one.loss for one in found]}
        if all(one.accuracy == one.accuracy for one in found):  # nan: the task has none
            line["accuracy"] = [one.accuracy for one in found]
        diverged = {str(c): reason for c, (_, reason) in progress.diverged.items() if reason.startswith("f(x)")}
        evaluations.append(line | ({"diverged": diverged} if diverged else {}))
    seconds, now = round(progress.seconds, 6), round(time.time(), 3)
    timing = {"group": group, "round": done, "rounds": rounds, "seconds": seconds, "time": now}
    lines = {"log.jsonl": log, "evaluation.jsonl": evaluations, "timing.jsonl": [timing]}
    return Segment(group * config.rounds + done, position, lines)


def _last_round(progress: SweepProgress, plan: SweepPlan, cell: int) -> int:
    """The last round of a computed cell that counts; 0 for a cell that diverged in earlier rounds."""
    if cell in progress.diverged:
        return progress.diverged[cell][0]
    position = progress.position
    first = plan.groups[int(position.group)][0]
    return plan.experiment.config.rounds if position.alive[cell - first] else 0


def _result(path: Path, sweep: SweepConfig) -> dict[str, Any]:
    """How a sweep ended, from its logs."""
    diverged = {}
    for name in ("log.jsonl", "evaluation.jsonl"):
        for line in read_lines(path / name):
            for cell, why in line.get("diverged", {}).items():
                diverged[cell] = {"round": line["round"], "why": why}
    in_order = dict(sorted(diverged.items(), key=lambda item: int(item[0])))
    return to_json({"state": "finished", "rounds": sweep.run.rounds, "cells": len(sweep.cells), "diverged": in_order})
