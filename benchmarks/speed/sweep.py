"""A grid of digits as one sweep, against one `lur train` per cell; both as processes and inside one process.

    lur bench sweep

All contenders run the same cells and rounds and get the same numbers. Unless `--processes 0` asks for all, only some of
the `lur train` processes are timed, spread over the grid, and their mean stands for the others. Compiled programs are
cached on disk, and every contender runs once before it is timed.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from lur import tasks
from lur.data.gather import resident
from lur.engine.run import run
from lur.runs.environment import environment
from lur.runs.sweep_results import read_sweep
from lur.runs.sweep_run import sweep_in_folder
from lur.training.configuration import RunConfig
from lur.training.experiment import resolve
from lur.training.loop import train
from lur.training.sweep_plan import SweepConfig, plan_sweep

GAMMAS = (0.001, 0.01, 0.1, 0.3, 1.0, 3.0)
ETAS = tuple(float(10 ** (k / 2)) for k in range(-6, 3))
LUR = [sys.executable, "-m", "lur"]


class Spent(NamedTuple):
    """Seconds spent.

    Attributes:
        clock: Wall-clock seconds.
        cpu: Processor seconds, which do not depend on the load from other processes.
    """

    clock: float
    cpu: float

    def times(self, n: float) -> "Spent":
        """These seconds multiplied by n."""
        return Spent(n * self.clock, n * self.cpu)


class Measured(NamedTuple):
    """Seconds of each contender, and differences of losses relative to the largest loss of a cell.

    Attributes:
        cells: Pairs of rates.
        rounds: Rounds of each.
        sweep_process: One process of `lur sweep`.
        train_processes: One process of `lur train` per cell.
        timed: Processes of `lur train` that were timed.
        sweep: The sweep inside one process.
        train_calls: One call of `lur.training.loop.train` per cell, inside one process.
        shared_program: One call of `lur.run` per cell, inside one process, with one compiled program.
        early: Largest difference of a loss in the first ten rounds.
        median: Median over cells of the largest difference in any round.
        difference: Largest difference of all, from a cell whose loss first grows and thereby amplifies rounding.
    """

    cells: int
    rounds: int
    sweep_process: Spent
    train_processes: Spent
    timed: int
    sweep: Spent
    train_calls: Spent
    shared_program: Spent
    early: float
    median: float
    difference: float


def measure(rounds: int = 200, processes: int | None = 6, say: Callable[[str], None] = print) -> Measured:
    """Times all contenders on the 6 x 9 grid of digits, one after the other."""
    requested = SweepConfig(RunConfig("digits", rounds), GAMMAS, ETAS)
    task = tasks.load("digits")
    cells = requested.cells
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        # inside one process
        run_sweep(folder / "first", task, requested)
        sweep_spent = timed(lambda: run_sweep(folder / "sweep", task, requested))
        say(f"  one program, in this process: {sweep_spent.clock:.1f} s")
        results = read_sweep(folder / "sweep")
        losses: dict[int, Any] = {}
        train_cell(task, requested, 0)
        calls = timed(lambda: losses.update({k: train_cell(task, requested, k) for k in range(len(cells))}))
        say(f"  {len(cells)} calls of train, in this process: {calls.clock:.1f} s")
        shared = timed(lambda: shared_program(task, requested))
        say(f"  {len(cells)} runs of one compiled program, in this process: {shared.clock:.1f} s")
        gaps = [np.abs(cell.loss - losses[cell.number][: len(cell.loss)]) / cell.loss.max() for cell in results.cells]
        # as processes
        rates = ["--client-lr", ",".join(map(repr, GAMMAS)), "--server-lr", ",".join(map(repr, ETAS))]
        options = ["--rounds", str(rounds), "--quiet"]
        sweeping = ["sweep", "digits", *rates, *options, "--run-dir"]
        command([*sweeping, str(folder / "p0")])
        process = timed(lambda: command([*sweeping, str(folder / "p1")]))
        say(f"  lur sweep: {process.clock:.1f} s")
        chosen = np.linspace(0, len(cells) - 1, processes or len(cells)).round().astype(int)

        def training(k: int, name: str) -> None:
            gamma, eta = cells[k]
            rate = ["--client-lr", repr(gamma), "--server-lr", repr(eta)]
            command(["train", "digits", *rate, *options, "--run-dir", str(folder / name)], (0, 1))

        training(0, "t")
        each = [timed(lambda k=k: training(int(k), f"t{k}")) for k in chosen]
        mean = Spent(*(float(np.mean(seconds)) for seconds in zip(*each, strict=True)))
        say(f"  lur train: {mean.clock:.1f} s each, {len(each)} timed")
    spent = (process, mean.times(len(cells)), len(each), sweep_spent, calls, shared)
    largest = [float(gap.max()) for gap in gaps]
    early = max(float(gap[:10].max()) for gap in gaps)
    return Measured(len(cells), rounds, *spent, early, float(np.median(largest)), max(largest))


def run_sweep(path: Path, task: Any, sweep: SweepConfig) -> None:
    """Runs the sweep in a folder."""
    with closing(sweep_in_folder(path, plan_sweep(sweep, task), notify=lambda line: None, chunk=64)) as parts:
        for _ in parts:
            pass


def train_cell(task: Any, sweep: SweepConfig, k: int) -> np.ndarray:
    """The losses of one cell, trained by `lur.training.loop`."""
    gamma, eta = sweep.cells[k]
    parts = train(resolve(replace(sweep.run, client_lr=gamma, server_lr=eta), task), chunk=64)
    return np.concatenate([part.infos.loss for part in parts])


def shared_program(task: Any, sweep: SweepConfig) -> None:
    """Runs all cells by `lur.run` with one compiled program."""
    method, settings = plan_sweep(sweep, task).experiment.method, task.settings
    data, params = resident(task.store), task.init(jax.random.key(0))
    for gamma, eta in sweep.cells:
        state, _ = run(
            method, method.init(params, gamma, eta), task.store, rounds=sweep.run.rounds, view=task.view, data=data,
            clients_per_round=settings.clients_per_round, batch_size=settings.batch_size,
        )  # fmt: skip
        jax.block_until_ready(state.params)


def timed(function: Callable[[], Any]) -> Spent:
    """Seconds of a call, its child processes included."""
    began, before = time.monotonic(), cpu_seconds()
    function()
    return Spent(time.monotonic() - began, cpu_seconds() - before)


def cpu_seconds() -> float:
    """Processor seconds of this process and of its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def command(arguments: list[str], accepted: tuple[int, ...] = (0,)) -> None:
    """Runs a command of lur. `lur train` exits with status 1 if the run diverges."""
    done = subprocess.run([*LUR, *arguments], capture_output=True, text=True, check=False)
    if done.returncode not in accepted:
        raise RuntimeError(f"lur {' '.join(arguments)}: {done.stderr.strip()}")


def report(measured: Measured) -> str:
    """The comparison as lines of text."""
    note = "all timed" if measured.timed == measured.cells else f"from {measured.timed} that were timed"
    rows = [
        ("one process of lur sweep", measured.sweep_process, measured.sweep_process),
        (f"{measured.cells} processes of lur train, {note}", measured.train_processes, measured.sweep_process),
        ("one sweep inside a process", measured.sweep, measured.sweep),
        (f"{measured.cells} calls of train inside a process", measured.train_calls, measured.sweep),
        (f"{measured.cells} runs of one compiled program", measured.shared_program, measured.sweep),
    ]
    lines = [
        f"  {name:50} {spent.clock:8.1f} s {spent.clock / base.clock:6.1f}x"
        f"   {spent.cpu:8.1f} CPU s {spent.cpu / base.cpu:6.1f}x"
        for name, spent, base in rows
    ]
    head = f"digits, {measured.cells} cells, {measured.rounds} rounds"
    gaps = (
        f"  largest difference of a loss, relative to the largest of its cell: {measured.early:.1e} in the first ten "
        f"rounds; in all rounds {measured.median:.1e} in the median cell, {measured.difference:.1e} in the worst cell"
    )
    return "\n".join([head, *lines, gaps])


def record(measured: Measured) -> dict[str, Any]:
    """The comparison for a JSON file."""
    return {
        "benchmark": "sweep",
        **measured._asdict(),
        "environment": {name: value for name, value in environment().items() if name != "host"},
    }
