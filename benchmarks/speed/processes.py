"""One run over processes and devices: whether it is the same run, and what a second core brings.

    lur bench processes --task femnist

Two tables. The first runs the task on one device, on eight devices of one process, and on eight devices of two and of
four processes: rounds per second, how far the final parameters are from the single device's, as a share of the way
that these went, and the collectives of a round's compiled program. Eight virtual devices on fewer cores share them.

The second is weak scaling: twice the clients on two processes pinned to a core each, beside one process pinned to one
core, in clients per second; of several turns, in which they alternate, the fastest of each counts. It should be at
least 1.7.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

LUR = """
import os, sys
cores = int(sys.argv.pop(1))
if cores:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
from lur.cli import main
sys.exit(main())
"""
SHAPES = ((1, 1), (1, 8), (2, 4), (4, 2))
DATA_CLIENTS = 100
LEAST = 3
"""Rounds: one compiles, one evaluates, what is between is timed."""


class Work(NamedTuple):
    """A task, M of one process, rounds, the layout on several devices."""

    task: str
    M: int
    rounds: int
    layout: str


WORK = {
    "digits": Work("digits", 10, 600, "sharded:vmap"),
    "femnist": Work("femnist", 10, 24, "sharded"),
    "stackoverflow_nwp": Work("stackoverflow_nwp", 10, 12, "sharded"),
}


class Measured(NamedTuple):
    """Rounds per second, where the parameters ended, and where they began."""

    rate: float
    end: list[np.ndarray]
    start: list[np.ndarray]


def run(work: Work, M: int, processes: int, devices: int, cores: int = 0) -> Measured:
    """A run of the command line; pinned to the first `cores` where given."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        train = ["train", work.task, "--rounds", str(work.rounds), "--clients", str(DATA_CLIENTS), "--theta", "1:10"]
        train += ["--clients-per-round", str(M), "--run-dir", str(folder), "--checkpoint-every", str(work.rounds)]
        train += ["--layout", work.layout] if processes * devices > 1 else []
        pin = ["--pin"] if cores else []
        launch = ["launch", "--processes", str(processes), "--devices", str(devices), *pin, "--"]
        environ = {**os.environ, "JAX_NUM_CPU_DEVICES": str(devices)}
        done = subprocess.run(
            [sys.executable, "-c", LUR, str(cores), *launch, *train],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ValueError(f"{work.task} on {processes} x {devices} failed: {done.stderr.strip()[-500:]}")
        lines = [json.loads(line) for line in (folder / "timing.jsonl").read_text().splitlines()]
        timed = lines[2:-1] or lines[1:]  # the first compile, the last evaluates if it can be left out
        rate = sum(line["rounds"] for line in timed) / sum(line["seconds"] for line in timed)
        return Measured(rate, *parameters_of(folder))


def parameters_of(folder: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The parameters at a run's end and at its beginning."""
    import jax

    from lur.cli.train import data_options
    from lur.runs import checkpoint
    from lur.runs.train_run import configured
    from lur.tasks import load
    from lur.training.loop import initial_state

    config = configured(folder)
    start = initial_state(load(config.task, **data_options(config)), config)
    found = checkpoint.restore(folder / "checkpoints", folder, start, print)
    assert found is not None  # a run ends with one
    return tuple([np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(s.params)] for s in (found.state, start))  # pyright: ignore


def distance(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    """The norm of the difference of two models."""
    return float(np.sqrt(sum(((x - y) ** 2).sum() for x, y in zip(a, b, strict=True))))


COLLECTIVES = """
import json, sys
from lur import tasks
from lur.training import programs
from lur.training.configuration import Run
task = tasks.load(sys.argv[1], clients=int(sys.argv[2]))
config = Run(sys.argv[1], theta="1:10", clients_per_round=int(sys.argv[3]))
make = programs.hosted_program if sys.argv[4] == "hosted" else programs.program
print(json.dumps(programs.compiled(make(task, config, sys.argv[5]))[0]))
"""


def collectives(work: Work, processes: int, devices: int) -> list[Any]:
    """The collectives of the compiled program, made by one process with as many devices as all have."""
    count = processes * devices
    kind = "hosted" if processes > 1 else "resident"
    layout = work.layout if count > 1 else "vmap"
    done = subprocess.run(
        [sys.executable, "-c", COLLECTIVES, work.task, str(DATA_CLIENTS), str(work.M), kind, layout],
        env={**os.environ, "JAX_NUM_CPU_DEVICES": str(count)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def shapes(work: Work, report: Callable[[str], None]) -> list[dict[str, Any]]:
    """The first table."""
    report(f"{work.task}: M = {work.M}, {work.rounds} rounds")
    report("| processes x devices | rounds/s | difference from 1 x 1 | collectives a round |")
    report("|---|---|---|---|")
    first, found = None, []
    for processes, devices in SHAPES:
        measured = run(work, work.M, processes, devices)
        first = measured if first is None else first
        apart = distance(measured.end, first.end) / distance(first.end, first.start)
        sent = collectives(work, processes, devices)
        words = ", ".join(f"one {kind} of {elements:,} numbers" for kind, elements in sent) or "none"
        report(f"| {processes} x {devices} | {measured.rate:.3g} | {apart:.1e} | {words} |")
        found.append({"processes": processes, "devices": devices, "rate": measured.rate, "apart": apart, "sent": sent})
    return found


def weak_scaling(work: Work, turns: int, report: Callable[[str], None]) -> float:
    """The second table: clients per second of two pinned processes as a multiple of those of one."""
    if len(os.sched_getaffinity(0)) < 2:
        raise ValueError("weak scaling needs at least 2 cores, got 1")
    pairs = [(run(work, work.M, 1, 1, cores=1), run(work, 2 * work.M, 2, 1, cores=2)) for _ in range(turns)]
    one, two = (max(pair[k].rate for pair in pairs) * (k + 1) * work.M for k in range(2))
    report(f"{work.task}, weak scaling, best of {turns} turns:")
    report(f"  1 process pinned to 1 core, M = {work.M}: {one:.3g} clients/s")
    report(f"  2 processes pinned to a core each, M = {2 * work.M}: {two:.3g} clients/s, {two / one:.2f} times")
    return two / one


def measure(task: str, turns: int, rounds: int | None, report: Callable[[str], None]) -> dict[str, Any]:
    """Both tables."""
    if task not in WORK:
        raise ValueError(f"--task of processes must be one of {', '.join(WORK)}, got {task!r}")
    if rounds is not None and rounds < LEAST:
        raise ValueError(f"--rounds of processes must be >= {LEAST}, got {rounds}")
    work = WORK[task] if rounds is None else WORK[task]._replace(rounds=rounds)
    return {"task": task, "shapes": shapes(work, report), "weak_scaling": weak_scaling(work, turns, report)}
