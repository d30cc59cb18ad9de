"""A sweep as it runs: all cells (gamma, eta) on the same clients and mini-batches, group after group.

A cell diverges in the first round whose loss or update is not finite, or whose loss exceeds the limit. It is marked
then, and dropped from the program at the next compaction: after rounds 1, 2, 4, ..., 64 and every 64 rounds from there.
These rounds do not depend on where a sweep was interrupted, so neither do its numbers. A program of fewer cells is
compiled only when about a quarter of the cells is gone (`padded_size`).
"""

import math
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from lur.engine.cells import CELL_AXES
from lur.engine.grid import advance_grid, init_cells
from lur.methods.method import RoundInfo, ServerState
from lur.training.evaluation import Evaluation, evaluate, evaluate_cells
from lur.training.experiment import MAX_ROUNDS_PER_CALL, Data, place_data, place_state, run_rounds
from lur.training.loop import ChunkSize, divergence_reason, first_divergence, is_evaluation_due
from lur.training.option_text import parse_steps
from lur.training.sweep_plan import SweepPlan

COMPACT_EVERY = 64
"""Rounds between two compactions, once the first ones are over."""


class SweepPosition(NamedTuple):
    """Where a sweep stands: all that it needs to continue. Arrays only, of the same shapes throughout.

    Attributes:
      group: index of the group that runs.
      round: number of its rounds that are done.
      alive: which of the group's cells have not diverged.
      packed: which had not diverged at the last compaction: the cells that the program computes. A group that is not
        full is padded with cells that are neither alive nor packed.
      state: the states of the group's cells, with leading axes (1, cells).
    """

    group: Int[np.ndarray, ""]
    round: Int[np.ndarray, ""]
    alive: Bool[np.ndarray, "cells"]
    packed: Bool[np.ndarray, "cells"]
    state: ServerState


class SweepProgress(NamedTuple):
    """Some rounds of a group.

    Attributes:
      position: where the sweep stands after them.
      rounds_before: number of the group's rounds before these.
      cells: indices of the cells that were computed.
      infos: their infos, as numpy arrays with leading axes (rounds, cells).
      diverged: for cells that diverged, the round and the reason. Their later rounds do not count.
      evaluations: evaluations by cell; None where they were not due.
      seconds: time that these rounds took.
    """

    position: SweepPosition
    rounds_before: int
    cells: Int[np.ndarray, "cells"]
    infos: RoundInfo
    diverged: dict[int, tuple[int, str]]
    evaluations: dict[int, Evaluation] | None
    seconds: float


def run_sweep(plan: SweepPlan, start: SweepPosition | None = None, chunk: ChunkSize = 10) -> Iterator[SweepProgress]:
    """Run a sweep, and report progress after about every `chunk` rounds.

    Args:
      plan: from `lur.training.sweep_plan.plan_sweep`.
      start: where to continue; by default the sweep begins.
      chunk: rounds per progress report, or a function of the seconds per round.
    """
    config = plan.experiment.config
    position = initial_position(plan, 0) if start is None else start
    data = place_data(plan.experiment, plan.layout)
    size = 1 if callable(chunk) else min(chunk, MAX_ROUNDS_PER_CALL)
    for group in range(int(position.group), len(plan.groups)):
        if group != int(position.group):
            position = initial_position(plan, group)
        while int(position.round) < config.rounds and position.alive.any():
            done, checkpoint_offset = int(position.round), group * config.rounds
            stops = [config.rounds, done + size, next_compaction(done)]
            if config.evaluate_every is not None:
                stops.append(done + config.evaluate_every - done % config.evaluate_every)
            if config.checkpoint_every is not None:  # checkpoints count the rounds of all groups
                stops.append(done + config.checkpoint_every - (checkpoint_offset + done) % config.checkpoint_every)
            rounds, began = min(stops) - done, monotonic()
            progress = advance_group(plan, data, position, rounds)
            seconds = monotonic() - began
            if callable(chunk):
                size = min(MAX_ROUNDS_PER_CALL, max(1, chunk(seconds / rounds)))
            position = progress.position
            yield progress._replace(seconds=seconds)


def initial_position(plan: SweepPlan, group: int) -> SweepPosition:
    """A group before its first round."""
    pairs = [plan.sweep.cells[k] for k in plan.groups[group]]
    alive = np.arange(plan.cells_per_group) < len(pairs)
    pairs += [pairs[-1]] * (plan.cells_per_group - len(pairs))
    params = plan.experiment.task.init(jax.random.key(plan.experiment.config.seed))
    state = init_cells(plan.experiment.method, params, pairs, clients=plan.experiment.program.plan.N)
    return SweepPosition(np.asarray(group, np.int32), np.asarray(0, np.int32), alive, alive.copy(), state)


def advance_group(plan: SweepPlan, data: Data, position: SweepPosition, rounds: int) -> SweepProgress:
    """Run some rounds of a group, mark the cells that diverge, and evaluate where it is due."""
    config = plan.experiment.config
    cells, done = plan.groups[int(position.group)], int(position.round) + rounds
    computed = np.flatnonzero(position.packed)
    state, infos = _run_cells(plan, data, position, computed, rounds)
    infos = jax.tree.map(lambda leaf: np.asarray(leaf)[0, : len(computed)].swapaxes(0, 1), infos)
    alive, diverged = position.alive.copy(), {}
    for column, k in enumerate(computed):
        divergence = first_divergence(jax.tree.map(lambda leaf, i=column: leaf[:, i], infos), config.loss_limit)
        if alive[k] and divergence is not None:
            index, reason = divergence
            alive[k], diverged[cells[k]] = False, (done - rounds + index + 1, reason)
    evaluations = None
    if (done == config.rounds or is_evaluation_due(config, done)) and alive.any():
        found = _evaluate_cells(plan, state, computed)
        evaluations = {cells[k]: found[column] for column, k in enumerate(computed) if alive[k]}
        for cell, evaluation in evaluations.items():
            reason = divergence_reason("f(x)", evaluation.loss, config.loss_limit)
            if reason is not None:
                alive[cell - cells[0]], diverged[cell] = False, (done, reason)
    if not alive.any():  # a state that nobody continues must not depend on how its rounds were cut into parts
        state = jax.tree.map(jnp.zeros_like, state)
    packed = alive.copy() if next_compaction(done - 1) == done else position.packed
    after = SweepPosition(position.group, np.asarray(done, np.int32), alive, packed, state)
    return SweepProgress(after, done - rounds, np.asarray(cells)[computed], infos, diverged, evaluations, 0.0)


def padded_size(cells: int, full: int) -> int:
    """The smallest of 1, 3/4, 1/2, 3/8, 1/4, ... of `full` that holds the cells: few sizes, so few programs."""
    fractions = (fraction for k in range(32) for fraction in (1 / 2**k, 0.75 / 2**k))
    sizes = {math.ceil(full * fraction) for fraction in fractions}
    return min(size for size in sizes if size >= cells)


def next_compaction(done: int) -> int:
    """The next round after which diverged cells are dropped from the program."""
    return 1 << done.bit_length() if done < COMPACT_EVERY else done - done % COMPACT_EVERY + COMPACT_EVERY


def _run_cells(
    plan: SweepPlan, data: Data, position: SweepPosition, computed: np.ndarray, rounds: int
) -> tuple[ServerState, RoundInfo]:
    """The rounds of the computed cells: states of the whole group, and infos with leading axes (1, cells, rounds)."""
    experiment, config, state = plan.experiment, plan.experiment.config, position.state
    if plan.cells_per_group == 1:
        gamma, _ = plan.sweep.cells[int(position.group)]
        if gamma == 0:
            experiment = experiment._replace(program=experiment.program._replace(method=plan.zero_lr_method))
        single = place_state(experiment, _map_cells(lambda leaf: leaf[0, 0], state))
        single, infos = run_rounds(experiment, data, single, rounds)
        return _map_cells(lambda leaf: leaf[None, None], single), jax.tree.map(lambda leaf: leaf[None, None], infos)
    index = _padded_index(plan, computed)
    packed, infos = advance_grid(
        experiment.method,
        _map_cells(lambda leaf: leaf[:, index], state),
        experiment.task.store,
        rounds=rounds,
        seeds=(config.seed,),
        clients_per_round=config.clients_per_round,
        batch_size=config.batch_size,
        epochs=config.epochs,
        weighting=config.weighting,
        steps=parse_steps(config.steps),
        sampling=config.sampling,
        view=experiment.task.view,
        layout=plan.layout,
        data=None if isinstance(data, str) else data,
        capacity=MAX_ROUNDS_PER_CALL,
    )
    merged = _map_cells(lambda new, old: jnp.asarray(old).at[:, computed].set(new[:, : len(computed)]), packed, state)
    return merged, infos


def _evaluate_cells(plan: SweepPlan, state: ServerState, computed: np.ndarray) -> list[Evaluation]:
    """f(x) of the computed cells; padding may follow."""
    task, model = plan.experiment.task, plan.experiment.method.model
    if plan.cells_per_group == 1:
        return [evaluate(task, model(_map_cells(lambda leaf: leaf[0, 0], state)))]
    index = _padded_index(plan, computed)
    cells = _map_cells(lambda leaf: leaf[0, index], state._replace(clients=()))
    return evaluate_cells(task, jax.vmap(model, in_axes=(CELL_AXES,))(cells))


def _padded_index(plan: SweepPlan, computed: np.ndarray) -> np.ndarray:
    """The computed cells' places in the group, padded with the last one to a size that has a program."""
    size = padded_size(len(computed), plan.cells_per_group)
    return computed[np.minimum(np.arange(size), len(computed) - 1)]


def _map_cells(function: Callable[..., Any], state: ServerState, *others: ServerState) -> ServerState:
    """The function of every leaf of the states but the round, which all cells share."""
    first, *rest = (one._replace(round=None) for one in (state, *others))  # pyright: ignore[reportArgumentType]
    return jax.tree.map(function, first, *rest)._replace(round=state.round)
