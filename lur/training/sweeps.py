"""A sweep over learning rates: many cells (gamma, eta) on the same clients and mini-batches.

Cells run side by side in one program (`lur.engine.grid`), in groups that fit the memory, one group after the other;
or, where a program of many cells gains nothing, one cell after the other in one process. `choose` decides and says why.

A cell diverges with the first round whose loss or update is not finite, or whose loss is above the limit. It is
marked, and dropped from the program at the next mark: after rounds 1, 2, 4, ..., 64 and every 64 from there. The marks
do not depend on where a sweep was cut, so neither do its numbers. A program of fewer cells is compiled only when
about a quarter of them is gone (`bucket`).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from lur.data.gather import resident, size_in_bytes
from lur.engine.grid import advance, start_pairs
from lur.engine.run import DEVICE_BYTES, run
from lur.methods.server import Info, LocalUpdate, State
from lur.parallel import layouts
from lur.parallel.layouts import Layout, replicated, where
from lur.parallel.processes import placed
from lur.tasks.task import Task
from lur.training.configuration import Run, settled
from lur.training.evaluation import Evaluation, evaluate, evaluate_cells
from lur.training.loop import CAPACITY, algorithm, divergence, is_due, trouble

GAMMAS = (0.0, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
"""The paper's client rates."""
ETAS = tuple(float(10 ** (k / 2)) for k in range(-6, 3))
"""The paper's server rates, 10^-3 to 10."""
LARGEST_GAMMAS = (100.0, 10.0, 1.0, 0.1, 0.01)
"""Where LocalUpdateDecay looks for its first client rate."""
SHARE = 0.5
"""Of the free memory that a group may take."""
EVERY = 64
"""Rounds between two chances to drop diverged cells, once the first ones are over."""


@dataclass(frozen=True)
class Sweep:
    """What all cells share, and their rates: all pairs, or where `tied` only gamma = eta."""

    run: Run
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
        if self.tied and self.server_lr:
            raise ValueError(f"server_lr must be left out where it is tied to client_lr, got {self.server_lr}")
        object.__setattr__(self, "run", replace(self.run, client_lr=None, server_lr=None))

    @property
    def cells(self) -> tuple[tuple[float, float], ...]:
        """The pairs (gamma, eta), in the order of the log."""
        if self.tied:
            return tuple((rate, rate) for rate in self.client_lr)
        return tuple((gamma, eta) for gamma in self.client_lr for eta in self.server_lr)


class Way(NamedTuple):
    """How a sweep runs: so many cells at once, each with this layout of its clients, and why."""

    at_once: int
    layout: Layout
    why: str


def choose(
    params: PyTree, cells: int, M: int, state: int, memory: int, layout: str | Layout = "auto", *, linear: bool = False
) -> Way:
    """How many cells run side by side.

    Args:
      params: the model, or its shapes.
      cells, M: how many there are, and clients per round.
      state: bytes of a cell's state: model, server's state, decay's.
      memory: bytes that the sweep may take.
      layout: of the clients axis. On one device, over which cells are dealt.
      linear: whether the model needs no model per client (`lur.engine.fast.linear`).

    A CPU gains from many cells at once only where models are small: convolutions become grouped ones, and matrix
    products that keep its cores busy become many. There, cells run one after the other.
    """
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    single = layouts.choose(params, M, layout, linear=linear).layout
    if cells == 1:
        return Way(1, single, "one cell")
    if jax.default_backend() == "cpu" and (linear or size >= layouts.SMALL):
        return Way(1, single, f"a CPU and {size:,} parameters: one cell after the other in one process")
    side = single if layout != "auto" and single.devices == 1 else Layout(None)
    clients = min(M, side.at_once or M)
    need = 2 * state + 4 * clients * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
    fit = max(1, memory // max(need, 1))
    if fit >= cells:
        return Way(cells, side, f"about {need / 2**20:.3g} MB a cell: all {cells} cells in one program")
    if fit == 1:
        return Way(1, single, f"about {need / 2**20:.3g} MB a cell, {memory / 2**20:.3g} MB to use: one at a time")
    groups = math.ceil(cells / fit)
    at_once = math.ceil(cells / groups)
    return Way(at_once, side, f"about {need / 2**20:.3g} MB a cell: {groups} groups of {at_once} cells, in turn")


def free_memory() -> int:
    """Bytes that a sweep may take of the first device's memory, or of this machine's."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(SHARE * (stats["bytes_limit"] - stats.get("bytes_in_use", 0)))
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        kilobytes = 2**21
    return int(SHARE * kilobytes * 1024)


def way_of(task: Task, sweep: Sweep, memory: int | None = None) -> Way:
    """How the sweep of a task runs here."""
    config = settled(sweep.run, task.settings)
    params = jax.eval_shape(task.init, jax.random.key(0))
    state = jax.eval_shape(lambda: algorithm_of(task, sweep, 1.0).init(task.init(jax.random.key(0)), 0.0, 0.0))
    bytes_of_state = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    assert config.clients_per_round is not None  # settled
    return choose(
        params,
        len(sweep.cells),
        config.clients_per_round,
        bytes_of_state,
        free_memory() if memory is None else memory,
        config.layout,
        linear=task.linear is not None,
    )


def algorithm_of(task: Task, sweep: Sweep, gamma: float) -> LocalUpdate:
    """The method of a cell; that of gamma = 0 has a quicker form."""
    return algorithm(task, replace(sweep.run, client_lr=gamma, server_lr=1.0))


class Cursor(NamedTuple):
    """Where a sweep stands: all that it needs to go on. Arrays only, of the same shapes throughout.

    `alive` are the group's cells that have not diverged, `packed` those that were so at the last mark: the ones that
    the program computes. A group that is not full is filled up with cells that are neither.
    """

    group: np.ndarray
    round: np.ndarray
    alive: np.ndarray
    packed: np.ndarray
    state: State


class Part(NamedTuple):
    """Some rounds of a group.

    `cells` are the indices of those computed and `infos` (numpy) their rounds, with axes (rounds, cells); `ended`
    says of those that diverged in which round and why, so that later rounds of theirs do not count. `evaluations`
    are by cell, where they were due; `seconds` are those of this part.
    """

    cursor: Cursor
    first: int
    cells: np.ndarray
    infos: Info
    ended: dict[int, tuple[int, str]]
    evaluations: dict[int, Evaluation] | None
    seconds: float


def groups_of(cells: int, at_once: int) -> list[range]:
    """The cells' indices, dealt to groups."""
    return [range(first, min(cells, first + at_once)) for first in range(0, cells, at_once)]


def bucket(alive: int, size: int) -> int:
    """The least of size, 3/4, 1/2, 3/8, 1/4, ... of it that holds so many: few sizes, so few programs."""
    fractions = (share for k in range(32) for share in (1 / 2**k, 0.75 / 2**k))
    sizes = {math.ceil(size * share) for share in fractions}
    return min(one for one in sizes if one >= alive)


def next_mark(done: int) -> int:
    """The next round after which diverged cells are dropped."""
    return 1 << done.bit_length() if done < EVERY else done - done % EVERY + EVERY


def next_multiple(done: int, every: int | None, before: int = 0) -> int | None:
    """The next round that brings ``before + round`` to a multiple."""
    return None if every is None else done + every - (before + done) % every


def begin(task: Task, sweep: Sweep, way: Way, group: int) -> Cursor:
    """A group before its first round."""
    own = groups_of(len(sweep.cells), way.at_once)[group]
    pairs = [sweep.cells[k] for k in own]
    alive = np.arange(way.at_once) < len(pairs)
    pairs += [pairs[-1]] * (way.at_once - len(pairs))
    algo = algorithm_of(task, sweep, 1.0)
    state = start_pairs(algo, task.init(jax.random.key(sweep.run.seed)), pairs)
    return Cursor(np.asarray(group, np.int32), np.asarray(0, np.int32), alive, alive.copy(), state)


def parts(
    task: Task, sweep: Sweep, way: Way, start: Cursor | None = None, chunk: int | Callable[[float], int] = 10
) -> Iterator[Part]:
    """The sweep from its beginning or from a cursor on, in parts of about `chunk` rounds."""
    config = settled(sweep.run, task.settings)
    cursor = begin(task, sweep, way, 0) if start is None else start
    go = program(task, sweep, way)
    size = 1 if callable(chunk) else min(chunk, CAPACITY)
    for group in range(int(cursor.group), len(groups_of(len(sweep.cells), way.at_once))):
        if group != int(cursor.group):
            cursor = begin(task, sweep, way, group)
        while int(cursor.round) < config.rounds and cursor.alive.any():
            done = int(cursor.round)
            before = group * config.rounds  # as the checkpoints count
            due = [next_multiple(done, config.evaluate_every), next_multiple(done, config.checkpoint_every, before)]
            stop = min([config.rounds, done + size, next_mark(done), *(t for t in due if t is not None)])
            began = monotonic()
            part = go(cursor, stop - done)
            taken = monotonic() - began
            if callable(chunk):
                size = min(CAPACITY, max(1, chunk(taken / (stop - done))))
            cursor = part.cursor
            yield part._replace(seconds=taken)


def program(task: Task, sweep: Sweep, way: Way) -> Callable[[Cursor, int], Part]:
    """``go(cursor, rounds)``: so many rounds further."""
    config = settled(sweep.run, task.settings)
    groups = groups_of(len(sweep.cells), way.at_once)
    M, B = config.clients_per_round, config.batch_size
    assert M is not None  # settled
    assert B is not None
    many, none = algorithm_of(task, sweep, 1.0), algorithm_of(task, sweep, 0.0)
    small = size_in_bytes(task.store) <= DEVICE_BYTES
    data: Any = resident(task.store, replicated(way.layout)) if small else "host"
    options: dict[str, Any] = {
        "clients_per_round": M, "batch_size": B, "view": task.view, "epochs": config.epochs,
        "weighting": config.weighting, "capacity": CAPACITY, "layout": way.layout, "data": data,
    }  # fmt: skip
    if way.at_once > 1 and not small:
        raise ValueError("a store that is left on the host needs cells one after the other")

    def computed(state: State, rounds: int, kept: np.ndarray, gamma: float) -> tuple[State, Info]:
        """The kept cells' rounds: states and infos as of `lur.engine.grid.advance`."""
        if way.at_once == 1:
            own = jax.tree.map(lambda leaf: leaf[0, 0], state._replace(round=None))._replace(round=state.round)  # pyright: ignore
            own = placed(own, where(own, way.layout))
            own, infos = run(none if gamma == 0 else many, own, task.store, rounds=rounds, seed=config.seed, **options)
            back = jax.tree.map(lambda leaf: leaf[None, None], own._replace(round=None))  # pyright: ignore
            return back._replace(round=own.round), jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], infos)
        index = np.minimum(np.arange(bucket(len(kept), way.at_once)), len(kept) - 1)
        packed = jax.tree.map(lambda leaf: leaf[:, kept[index]], state._replace(round=None))  # pyright: ignore
        new, infos = advance(
            many, packed._replace(round=state.round), task.store, rounds=rounds, seeds=(config.seed,), **options
        )
        put = jax.tree.map(
            lambda leaf, own: jnp.asarray(leaf).at[:, kept].set(own[:, : len(kept)]),
            state._replace(round=None), new._replace(round=None),  # pyright: ignore
        )  # fmt: skip
        return put._replace(round=new.round), infos

    def go(cursor: Cursor, rounds: int) -> Part:
        own, done = groups[int(cursor.group)], int(cursor.round)
        kept = np.flatnonzero(cursor.packed)
        state, infos = computed(cursor.state, rounds, kept, sweep.cells[own[0]][0])
        infos = jax.tree.map(lambda leaf: np.asarray(leaf)[0, : len(kept)].swapaxes(0, 1), infos)
        alive, ended = cursor.alive.copy(), {}
        for k, at in enumerate(kept):
            found = divergence(jax.tree.map(lambda leaf, k=k: leaf[:, k], infos), config.loss_limit)
            if alive[at] and found is not None:
                alive[at], ended[own[at]] = False, (done + found[0] + 1, found[1])
        done += rounds
        evaluations = None
        if (done == config.rounds or is_due(config, done)) and alive.any():
            evaluations = evaluated(task, state, kept, way.at_once)
            evaluations = {own[at]: evaluations[k] for k, at in enumerate(kept) if alive[at]}
            for cell, one in evaluations.items():
                why = trouble("f(x)", one.loss, config.loss_limit)
                if why is not None:
                    alive[cell - own[0]], ended[cell] = False, (done, why)
        if not alive.any():  # nothing is kept of it, so that where its rounds were cut does not show
            state = jax.tree.map(jnp.zeros_like, state)
        packed = alive.copy() if next_mark(done - 1) == done else cursor.packed
        after = Cursor(cursor.group, np.asarray(done, np.int32), alive, packed, state)
        return Part(after, done - rounds, np.asarray(own)[kept], infos, ended, evaluations, 0.0)

    return go


def evaluated(task: Task, state: State, kept: np.ndarray, at_once: int) -> Sequence[Evaluation]:
    """f(x) of the kept cells."""
    if at_once == 1:
        return [evaluate(task, jax.tree.map(lambda leaf: leaf[0, 0], state.params))]
    index = kept[np.minimum(np.arange(bucket(len(kept), at_once)), len(kept) - 1)]
    return evaluate_cells(task, jax.tree.map(lambda leaf: leaf[0, index], state.params))
