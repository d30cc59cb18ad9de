"""A grid of digits as one sweep against as many calls of `lur train`, as processes and inside one process.

    lur bench sweep

The same cells, rounds and numbers. Of the separate processes only some are timed, spread over the grid, and their mean
counts for the others, unless all are asked for. Compiled programs are kept on the disk in all cases, and each
contender has run once before it is timed.
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
from lur.runs.sweep_run import sweep_in
from lur.training.configuration import Run
from lur.training.loop import train
from lur.training.sweeps import Sweep, algorithm_of

GAMMAS = (0.001, 0.01, 0.1, 0.3, 1.0, 3.0)
ETAS = tuple(float(10 ** (k / 2)) for k in range(-6, 3))
LUR = [sys.executable, "-c", "import sys; from lur.cli import main; sys.exit(main())"]


class Spent(NamedTuple):
    """Seconds on the clock, and of the processors: the second are the same if others hold the machine up."""

    clock: float
    cpu: float

    def times(self, n: float) -> "Spent":
        """n times as much."""
        return Spent(n * self.clock, n * self.cpu)


class Measured(NamedTuple):
    """What each contender takes, and the differences of losses, relative to each cell's largest.

    `early` is the largest of the first ten rounds, `median` and `difference` are over cells of the largest of all
    rounds. Cells whose rates make the loss leap first amplify the last bit, and `difference` is theirs.
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
    """The 9 x 6 grid of digits, all contenders one after the other in one run."""
    asked = Sweep(Run("digits", rounds), GAMMAS, ETAS)
    task = tasks.load("digits")
    cells = asked.cells
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        # inside one process
        swept(folder / "first", task, asked)
        one = timed(lambda: swept(folder / "sweep", task, asked))
        say(f"  one program, in this process: {one.clock:.1f} s")
        found = read_sweep(folder / "sweep")
        losses: dict[int, Any] = {}
        trained(task, asked, 0)
        calls = timed(lambda: losses.update({k: trained(task, asked, k) for k in range(len(cells))}))
        say(f"  {len(cells)} calls of train, in this process: {calls.clock:.1f} s")
        shared = timed(lambda: shared_program(task, asked))
        say(f"  {len(cells)} runs of one compiled program, in this process: {shared.clock:.1f} s")
        gaps = [np.abs(cell.loss - losses[cell.number][: len(cell.loss)]) / cell.loss.max() for cell in found.cells]
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
    spent = (process, mean.times(len(cells)), len(each), one, calls, shared)
    largest = [float(gap.max()) for gap in gaps]
    early = max(float(gap[:10].max()) for gap in gaps)
    return Measured(len(cells), rounds, *spent, early, float(np.median(largest)), max(largest))


def swept(path: Path, task: Any, sweep: Sweep) -> None:
    """The sweep in a folder."""
    with closing(sweep_in(path, task, sweep, say=lambda line: None, chunk=64)) as parts:
        for _ in parts:
            pass


def trained(task: Any, sweep: Sweep, k: int) -> np.ndarray:
    """One cell by `lur.training.loop`: its losses."""
    gamma, eta = sweep.cells[k]
    found = [*train(task, replace(sweep.run, client_lr=gamma, server_lr=eta), chunk=64)]
    return np.concatenate([at.infos.loss for at in found])


def shared_program(task: Any, sweep: Sweep) -> None:
    """All cells by `lur.run`, with one compiled program and nothing between."""
    algo, settings = algorithm_of(task, sweep, 1.0), task.settings
    data, params = resident(task.store), task.init(jax.random.key(0))
    for gamma, eta in sweep.cells:
        state, _ = run(
            algo, algo.init(params, gamma, eta), task.store, rounds=sweep.run.rounds, view=task.view, data=data,
            clients_per_round=settings.clients_per_round, batch_size=settings.batch_size,
        )  # fmt: skip
        jax.block_until_ready(state.params)


def timed(do: Callable[[], Any]) -> Spent:
    """What it takes, with its child processes."""
    began, before = time.monotonic(), cpu_seconds()
    do()
    return Spent(time.monotonic() - began, cpu_seconds() - before)


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def command(arguments: list[str], accepted: tuple[int, ...] = (0,)) -> None:
    """A process of lur; exit status 1 of `lur train` is a run that diverged."""
    done = subprocess.run([*LUR, *arguments], capture_output=True, text=True, check=False)
    if done.returncode not in accepted:
        raise RuntimeError(f"lur {' '.join(arguments)}: {done.stderr.strip()}")


def report(found: Measured) -> str:
    """In words."""
    note = "all timed" if found.timed == found.cells else f"from {found.timed} that were timed"
    rows = [
        ("lur sweep, a process", found.sweep_process, found.sweep_process),
        (f"{found.cells} processes of lur train, {note}", found.train_processes, found.sweep_process),
        ("one sweep in a process", found.sweep, found.sweep),
        (f"{found.cells} calls of train in a process", found.train_calls, found.sweep),
        (f"{found.cells} runs of one compiled program", found.shared_program, found.sweep),
    ]
    lines = [
        f"  {name:50} {own.clock:8.1f} s {own.clock / base.clock:6.1f}x"
        f"   {own.cpu:8.1f} CPU s {own.cpu / base.cpu:6.1f}x"
        for name, own, base in rows
    ]
    head = f"digits, {found.cells} cells, {found.rounds} rounds"
    gaps = (
        f"  largest difference of a loss, relative to the largest of its cell: {found.early:.1e} in the first ten "
        f"rounds; in all rounds {found.median:.1e} in the median cell, {found.difference:.1e} in the one farthest off"
    )
    return "\n".join([head, *lines, gaps])


def record(found: Measured) -> dict[str, Any]:
    """For a file."""
    return {
        "benchmark": "sweep",
        **found._asdict(),
        "environment": {name: value for name, value in environment().items() if name != "host"},
    }
