"""One run over several processes and devices: whether the result is the same, and how much a second core gains.

    lur bench processes --task femnist

Prints two tables. The first runs the task on one device, on eight devices of one process, and on eight devices of two
and of four processes. It shows rounds per second, the distance of the final parameters from those of the single device,
relative to the distance that these moved, and the collectives in a round's compiled program. Eight virtual devices
share the cores of the machine.

The second measures weak scaling in clients per second: two processes, each pinned to a core, with twice the clients,
against one process pinned to one core. The two alternate, and the fastest turn of each counts. Expect at least 1.7.
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

PINNED_LUR = """
import os, runpy, sys
cores = int(sys.argv.pop(1))
if cores:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
runpy.run_module("lur", run_name="__main__", alter_sys=True)
"""
"""`python -m lur` on the first cores only; all cores for 0."""
SHAPES = ((1, 1), (1, 8), (2, 4), (4, 2))
DATA_CLIENTS = 100
MIN_ROUNDS = 3
"""The first round compiles and the last one evaluates; the rounds between them are timed."""


class Case(NamedTuple):
    """What is run.

    Attributes:
        task: Name of the task.
        M: Clients per round of one process.
        rounds: Rounds of a run.
        layout: The layout on several devices.
    """

    task: str
    M: int
    rounds: int
    layout: str


CASES = {
    "digits": Case("digits", 10, 600, "sharded:vmap"),
    "femnist": Case("femnist", 10, 24, "sharded"),
    "stackoverflow_nwp": Case("stackoverflow_nwp", 10, 12, "sharded"),
}


class Measured(NamedTuple):
    """A finished run.

    Attributes:
        rate: Rounds per second.
        end: The final parameters.
        start: The initial parameters.
    """

    rate: float
    end: list[np.ndarray]
    start: list[np.ndarray]


def run(case: Case, M: int, processes: int, devices: int, cores: int = 0) -> Measured:
    """Runs `lur launch`, pinned to the first `cores` cores unless `cores` is 0."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        train = ["train", case.task, "--rounds", str(case.rounds), "--clients", str(DATA_CLIENTS), "--theta", "1:10"]
        train += ["--clients-per-round", str(M), "--run-dir", str(folder), "--checkpoint-every", str(case.rounds)]
        train += ["--layout", case.layout] if processes * devices > 1 else []
        pin = ["--pin"] if cores else []
        launch = ["launch", "--processes", str(processes), "--devices", str(devices), *pin, "--"]
        environ = {**os.environ, "JAX_NUM_CPU_DEVICES": str(devices)}
        done = subprocess.run(
            [sys.executable, "-c", PINNED_LUR, str(cores), *launch, *train],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ValueError(f"{case.task} on {processes} x {devices} failed: {done.stderr.strip()[-500:]}")
        lines = [json.loads(line) for line in (folder / "timing.jsonl").read_text().splitlines()]
        timed = lines[2:-1] or lines[1:]  # the first ones compile; the last one evaluates
        rate = sum(line["rounds"] for line in timed) / sum(line["seconds"] for line in timed)
        return Measured(rate, *parameters_of(folder))


def parameters_of(folder: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The final and the initial parameters of the run in a folder."""
    import jax

    from lur.runs import checkpoint
    from lur.runs.train_run import read_run_config
    from lur.training.experiment import initial_state, load_task, resolve

    config = read_run_config(folder)
    start = initial_state(resolve(config, load_task(config)))
    restored = checkpoint.restore(folder / "checkpoints", folder, start, print)
    assert restored is not None  # every run ends with a checkpoint

    def leaves(state: Any) -> list[np.ndarray]:
        return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(state.params)]

    return leaves(restored.state), leaves(start)


def distance(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    """The norm of the difference of two models."""
    return float(np.sqrt(sum(((x - y) ** 2).sum() for x, y in zip(a, b, strict=True))))


COLLECTIVES = """
import json, sys
from lur import tasks
from lur.training import programs
from lur.training.configuration import RunConfig
from lur.training.experiment import resolve
task = tasks.load(sys.argv[1], clients=int(sys.argv[2]))
config = RunConfig(sys.argv[1], theta="1:10", clients_per_round=int(sys.argv[3]), layout=sys.argv[5])
make = programs.host_program if sys.argv[4] == "host" else programs.resident_program
print(json.dumps(programs.compile_program(make(resolve(config, task)))[0]))
"""


def collectives(case: Case, processes: int, devices: int) -> list[Any]:
    """The collectives of the compiled program, from one process with as many devices as all processes have."""
    count = processes * devices
    kind = "host" if processes > 1 else "resident"
    layout = case.layout if count > 1 else "vmap"
    done = subprocess.run(
        [sys.executable, "-c", COLLECTIVES, case.task, str(DATA_CLIENTS), str(case.M), kind, layout],
        env={**os.environ, "JAX_NUM_CPU_DEVICES": str(count)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def compare_shapes(case: Case, report: Callable[[str], None]) -> list[dict[str, Any]]:
    """Prints the first table and returns its rows."""
    report(f"{case.task}: M = {case.M}, {case.rounds} rounds")
    report("| processes x devices | rounds/s | difference from 1 x 1 | collectives per round |")
    report("|---|---|---|---|")
    first, rows = None, []
    for processes, devices in SHAPES:
        measured = run(case, case.M, processes, devices)
        first = measured if first is None else first
        difference = distance(measured.end, first.end) / distance(first.end, first.start)
        sent = collectives(case, processes, devices)
        words = ", ".join(f"one {kind} of {elements:,} numbers" for kind, elements in sent) or "none"
        report(f"| {processes} x {devices} | {measured.rate:.3g} | {difference:.1e} | {words} |")
        row = {"processes": processes, "devices": devices, "rate": measured.rate}
        rows.append({**row, "difference": difference, "collectives": sent})
    return rows


def weak_scaling(case: Case, turns: int, report: Callable[[str], None]) -> float:
    """Prints the second table; returns clients per second of two pinned processes relative to one."""
    if len(os.sched_getaffinity(0)) < 2:
        raise ValueError("weak scaling needs at least 2 cores, got 1")
    pairs = [(run(case, case.M, 1, 1, cores=1), run(case, 2 * case.M, 2, 1, cores=2)) for _ in range(turns)]
    one, two = (max(pair[k].rate for pair in pairs) * (k + 1) * case.M for k in range(2))
    report(f"{case.task}, weak scaling, best of {turns} turns:")
    report(f"  1 process pinned to 1 core, M = {case.M}: {one:.3g} clients/s")
    report(f"  2 processes, each pinned to a core, M = {2 * case.M}: {two:.3g} clients/s, {two / one:.2f} times")
    return two / one


def measure(task: str, turns: int, rounds: int | None, report: Callable[[str], None]) -> dict[str, Any]:
    """Prints both tables and returns their numbers."""
    if task not in CASES:
        raise ValueError(f"--task of processes must be one of {', '.join(CASES)}, got {task!r}")
    if rounds is not None and rounds < MIN_ROUNDS:
        raise ValueError(f"--rounds of processes must be >= {MIN_ROUNDS}, got {rounds}")
    case = CASES[task] if rounds is None else CASES[task]._replace(rounds=rounds)
    return {"task": task, "shapes": compare_shapes(case, report), "weak_scaling": weak_scaling(case, turns, report)}
