"""What a sweep over learning rates runs: its cells (gamma, eta), and how many of them run in one program.

Cells run side by side in one program (`lur.engine.grid`), in groups that fit into memory, one group after another.
Where a program of many cells is not faster, the cells run one after another in one process. `plan_sweep` decides, and
says why.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import jax
from jaxtyping import PyTree

from lur.methods.method import Method
from lur.parallel.layouts import SMALL_MODEL, Layout
from lur.tasks.task import Task
from lur.training.configuration import RunConfig, with_changes
from lur.training.experiment import Experiment, build_method, check_rates, initial_state, num_parameters, resolve

GAMMAS = (0.0, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
"""The client learning rates of the paper."""
ETAS = tuple(float(10 ** (k / 2)) for k in range(-6, 3))
"""The server learning rates of the paper, 10^-3 to 10."""
DECAY_GAMMAS = (100.0, 10.0, 1.0, 0.1, 0.01)
"""The initial client learning rates that LocalUpdateDecay tries, largest first."""
MAX_CELLS = 100_000
"""Most cells of a sweep."""
MEMORY_SHARE = 0.5
"""Fraction of the free memory that a group of cells may take."""


@dataclass(frozen=True)
class SweepConfig:
    """A sweep as it was asked for.

    Attributes:
      run: what all cells share; its own learning rates are left open.
      client_lr: client learning rates gamma.
      server_lr: server learning rates eta; empty where they are tied.
      tied: whether eta = gamma in every cell instead of all pairs.
    """

    run: RunConfig
    client_lr: tuple[float, ...]
    server_lr: tuple[float, ...] = ()
    tied: bool = False

    def __post_init__(self) -> None:
        for name in ("client_lr", "server_lr"):
            values = tuple(float(value) for value in getattr(self, name))
            if not values and not (self.tied and name == "server_lr"):
                raise ValueError(f"{name} must be at least one number, got none")
            bad = [value for value in values if not (math.isfinite(value) and value >= 0)]
            if bad:
                raise ValueError(f"{name} must be finite and >= 0, got {bad[0]}")
            if len(set(values)) != len(values):
                raise ValueError(f"{name} must be distinct, got {', '.join(f'{value:g}' for value in values)}")
            object.__setattr__(self, name, values)
        if len(self.client_lr) * len(self.server_lr) > MAX_CELLS:
            raise ValueError(
                f"client_lr and server_lr must have at most {MAX_CELLS:,} pairs, got {len(self.client_lr):,} times "
                f"{len(self.server_lr):,}"
            )
        if self.tied and self.server_lr:
            raise ValueError(f"server_lr must be left out where it is tied to client_lr, got {self.server_lr}")
        object.__setattr__(self, "run", with_changes(self.run, client_lr=None, server_lr=None))

    @property
    def cells(self) -> tuple[tuple[float, float], ...]:
        """The pairs (gamma, eta), in the order of the log."""
        if self.tied:
            return tuple((rate, rate) for rate in self.client_lr)
        return tuple((gamma, eta) for gamma in self.client_lr for eta in self.server_lr)


class SweepPlan(NamedTuple):
    """A sweep with everything decided.

    Attributes:
      sweep: the sweep, with the task's settings in place of what was left open, except for the rates.
      experiment: what the cells share. Its rates are placeholders, its layout is that of a single cell.
      zero_lr_method: the method of cells with gamma = 0, which has a quicker form.
      grid_layout: layout of the clients in a program of several cells.
      cells_per_group: number of cells in one program.
      reason: why this many, for people.
    """

    sweep: SweepConfig
    experiment: Experiment
    zero_lr_method: Method
    grid_layout: Layout
    cells_per_group: int
    reason: str

    @property
    def layout(self) -> Layout:
        """The layout of the clients in the sweep's programs."""
        return self.experiment.layout if self.cells_per_group == 1 else self.grid_layout

    @property
    def groups(self) -> list[range]:
        """The indices of the cells in each group."""
        cells, size = len(self.sweep.cells), self.cells_per_group
        return [range(first, min(cells, first + size)) for first in range(0, cells, size)]


def plan_sweep(sweep: SweepConfig, task: Task, memory: int | None = None) -> SweepPlan:
    """Decide how a sweep runs on this machine.

    Args:
      sweep: what was asked for.
      task: the loaded task.
      memory: bytes that a group of cells may take; by default half of what is free.
    """
    experiment = resolve(with_changes(sweep.run, client_lr=1.0, server_lr=1.0), task)
    config = experiment.config
    shapes = jax.eval_shape(lambda: initial_state(experiment))
    single = experiment.layout
    grid_layout = single if config.layout != "auto" and single.devices == 1 else Layout(None)
    size, reason = choose_group_size(
        shapes.params,
        cells=len(sweep.cells),
        concurrent_clients=min(config.clients_per_round, grid_layout.chunk_size or config.clients_per_round),
        state_bytes=_num_bytes(shapes),
        memory=free_memory() if memory is None else memory,
        linear=task.linear is not None,
    )
    if size > 1 and experiment.data_on_host:
        size, reason = 1, "the store stays on the host: one cell after another in one process"
    resolved = replace(sweep, run=config)
    check_rates(experiment.method, jax.eval_shape(task.init, jax.random.key(0)), sweep.cells)
    zero_lr_method = build_method(task, replace(config, client_lr=0.0), shapes.params).method
    return SweepPlan(resolved, experiment, zero_lr_method, grid_layout, size, reason)


def choose_group_size(
    params: PyTree, *, cells: int, concurrent_clients: int, state_bytes: int, memory: int, linear: bool = False
) -> tuple[int, str]:
    """How many cells run in one program, and why.

    A CPU gains from many cells at once only where models are small: with many cells, convolutions become grouped
    convolutions, and large matrix products, which keep all cores busy, become many small ones. There, cells run one
    after another.

    Args:
      params: the model, or its shapes.
      cells: number of cells.
      concurrent_clients: number of clients whose models are in memory at the same time.
      state_bytes: size of a cell's state.
      memory: bytes that a group may take.
      linear: whether the model needs no model per client (`lur.engine.fast.linear`).
    """
    size = num_parameters(params)
    if cells == 1:
        return 1, "one cell"
    if jax.default_backend() == "cpu" and (linear or size >= SMALL_MODEL):
        return 1, f"a CPU and {size:,} parameters: one cell after another in one process"
    need = 2 * state_bytes + 4 * concurrent_clients * _num_bytes(params)
    fit = max(1, memory // max(need, 1))
    per_cell = f"about {need / 2**20:.3g} MB per cell"
    if fit >= cells:
        return cells, f"{per_cell}: all {cells} cells in one program"
    if fit == 1:
        return 1, f"{per_cell}, {memory / 2**20:.3g} MB available: one cell at a time"
    groups = math.ceil(cells / fit)
    group_size = math.ceil(cells / groups)
    return group_size, f"{per_cell}: {groups} groups of {group_size} cells, one group after another"


def free_memory() -> int:
    """Bytes that a group of cells may take of the first device's memory, or of this machine's."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(MEMORY_SHARE * (stats["bytes_limit"] - stats.get("bytes_in_use", 0)))
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        kilobytes = 2**21
    return int(MEMORY_SHARE * kilobytes * 1024)


def _num_bytes(tree: PyTree) -> int:
    """Bytes of all arrays of a tree, or of their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
