"""A grid of learning rates as one compiled program: every cell (gamma, eta) sees the same clients and mini-batches.

Sampling and gather do not depend on the rates, so they are done once for all cells. The cells, one model each, are a
vmapped axis inside each client's local steps, and are sharded over the devices, which need not wait for each other.
With a layout that shards the clients too, the mesh has two axes: each group of devices has some cells, and each device
of a group has some clients.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PyTree

from lur import _checks
from lur.data.gather import Resident, resident
from lur.data.store import Store
from lur.engine.batches import View, as_stored
from lur.engine.cells import CELL_AXES, stack_cells
from lur.engine.fast.choice import choose_form
from lur.engine.rounds import Rounds, resident_rounds
from lur.engine.run import checked_rounds, checked_seed
from lur.engine.sampling_plan import Sampling, Steps, check_kept_states, plan_sampling
from lur.jax_setup import keep_compiled
from lur.methods.compiled import jit_per_settings
from lur.methods.method import Method, RoundInfo, ServerState
from lur.parallel.client_states import check_client_states, fits_device, is_on_host
from lur.parallel.layouts import Layout, devices_needed, parse_layout
from lur.parallel.mesh import CLIENTS_AXIS, block_if_cpu_mesh, packed

CELLS_AXIS = "cells"


def run_grid(
    method: Method,
    params: PyTree,
    store: Store,
    *,
    client_lr: Sequence[float],
    server_lr: Sequence[float],
    seeds: Sequence[int] = (0,),
    **options: Any,
) -> tuple[ServerState, RoundInfo]:
    """Run R rounds of every (gamma, eta, seed) from the same initial model.

    Args:
      method: a local update method.
      params: the initial model of all cells.
      store: the clients' examples.
      client_lr: the rates gamma.
      server_lr: the rates eta; the grid is the product of the two.
      seeds: each further seed repeats the whole grid with other clients and mini-batches.
      options: those of `advance_grid`.

    Returns:
      States with leading axes (gammas, etas, seeds), and infos with leading axes (gammas, etas, seeds, R).
    """
    S, *rates = (len(values) if np.ndim(values) else 0 for values in (seeds, client_lr, server_lr))
    states = init_grid(method, params, client_lr, server_lr, seeds=S, clients=store.clients)
    states, infos = advance_grid(method, states, store, seeds=seeds, **options)
    return _unstack_rates((S, *rates), states, infos)


@jit_per_settings(1)
def _unstack_rates(shape: tuple[int, int, int], states: ServerState, infos: RoundInfo) -> tuple[ServerState, RoundInfo]:
    """Turn the axes (seeds, gammas x etas) into (gammas, etas, seeds)."""

    def unstack(leaf: Any) -> Any:
        return jnp.moveaxis(leaf.reshape(*shape, *leaf.shape[2:]), 0, 2)

    cells, infos = jax.tree.map(unstack, (_without_round(states), infos))
    return cells._replace(round=jnp.broadcast_to(states.round, (*shape[1:], shape[0]))), infos


def init_grid(
    method: Method,
    params: PyTree,
    client_lr: Sequence[float],
    server_lr: Sequence[float],
    *,
    seeds: int = 1,
    clients: int | None = None,
) -> ServerState:
    """Return the state of all cells before the first round, with leading axes (seeds, gammas x etas)."""
    for name, values in (("client_lr", client_lr), ("server_lr", server_lr)):
        if np.ndim(values) != 1 or not len(values):
            raise ValueError(f"{name} must be a list of at least one number, got {values!r}")
    pairs = [(gamma, eta) for gamma in client_lr for eta in server_lr]
    return init_cells(method, params, pairs, seeds=seeds, clients=clients)


def init_cells(
    method: Method,
    params: PyTree,
    pairs: Sequence[tuple[float, float]],
    *,
    seeds: int = 1,
    clients: int | None = None,
) -> ServerState:
    """Return the state of the cells (gamma, eta) before the first round, with leading axes (seeds, cells).

    All fields but `round` have these axes. `clients` is N, for methods whose clients keep a state.
    """
    gammas, etas = (
        _checks.param_rate(name, np.array(values), params, steps=len(values))
        for name, values in zip(("client_lr", "server_lr"), zip(*pairs, strict=True), strict=True)
    )
    for gamma, eta in pairs:  # the method's checks of their values, which are hidden from it inside jit
        jax.eval_shape(lambda x, rates=(gamma, eta): method.init_server(x, *rates), params)
    count = (clients or 1) * len(pairs) * seeds
    client_state = jax.eval_shape(lambda params: method.init_client(params), params)  # tuples have no weak references
    if not fits_device(client_state, count):
        raise ValueError(f"client states must fit into device memory in a grid, got {count} states of this method")
    return _init_cells(method, seeds, clients, params, gammas, etas)


@jit_per_settings(3)
def _init_cells(
    method: Method, seeds: int, clients: int | None, params: PyTree, gammas: Array, etas: Array
) -> ServerState:
    init = partial(method.init, clients=clients)
    cells = jax.vmap(init, in_axes=(None, 0, 0), out_axes=CELL_AXES)(params, gammas, etas)
    repeated = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (seeds, *leaf.shape)), cells)
    return repeated._replace(round=cells.round)


def advance_grid(
    method: Method,
    states: ServerState,
    store: Store,
    *,
    rounds: int,
    clients_per_round: int | None = None,
    batch_size: int,
    seeds: Sequence[int] = (0,),
    view: View = as_stored,
    layout: str | Layout = "vmap",
    epochs: int | None = None,
    steps: Steps = None,
    weighting: Literal["uniform", "examples"] = "uniform",
    sampling: Sampling = "uniform",
    probabilities: Float[ArrayLike, "N"] | None = None,
    data: Resident | None = None,
    capacity: int | None = None,
    devices: int | None = None,
) -> tuple[ServerState, RoundInfo]:
    """Run R further rounds of all cells.

    Args:
      method: a local update method.
      states: from `init_grid`, or an earlier call.
      store: the clients' examples.
      seeds: one for each entry of the states' first axis.
      rounds, clients_per_round, batch_size, view, epochs, steps, weighting, sampling, probabilities, data, capacity: as
        in `lur.run`.
      layout: as in `lur.run`. ``sharded`` shards the clients over all devices or, if `devices` gives the number of
        groups that the cells are sharded over, over the devices of each group.
      devices: the number of devices, or groups of devices, that the cells are sharded over; by default all that the
        layout leaves, but no more than are needed.

    Returns:
      States with the axes of the given ones, and infos with leading axes (seeds, cells, R).
    """
    rounds = checked_rounds(rounds)
    if np.ndim(seeds) != 1 or not len(seeds):
        raise ValueError(f"seeds must be a list of at least one number, got {seeds!r}")
    S, C = states.server_lr.shape
    if len(seeds) != S:
        raise ValueError(f"seeds must be {S} numbers, one for each entry of the states' first axis, got {len(seeds)}")
    chosen = parse_layout(layout)
    if chosen.model > 1:
        raise ValueError(f"layout of a grid must have no model axis, got {layout}")
    if chosen.devices > 1 and isinstance(layout, str):
        chosen = chosen._replace(devices=max(1, chosen.devices // (devices or 1)))
    groups = jax.local_device_count() // chosen.devices
    devices = devices_needed(max(groups, 1), C) if devices is None else devices
    if not 1 <= devices <= groups:
        raise ValueError(
            f"devices must be from 1 to {groups}, the number of groups of {chosen.devices} devices, got {devices}"
        )
    keep_compiled()
    plan = plan_sampling(
        store,
        method,
        clients_per_round,
        batch_size,
        epochs,
        weighting,
        steps=steps,
        sampling=sampling,
        probabilities=probabilities,
    )
    if is_on_host(states.clients):
        raise ValueError("states must fit into device memory in a grid, got client states on the host")
    check_client_states(jax.tree.map(lambda leaf: leaf[0, 0], states.clients), plan.N)
    check_kept_states(plan, states.clients)
    data = resident(store) if data is None else data
    keys = jnp.asarray(np.array([checked_seed(seed) for seed in seeds]))
    capacity = max(rounds, capacity or 1 << (rounds - 1).bit_length())
    form = choose_form(method, jax.tree.map(lambda leaf: leaf[0, 0], states.params), None)
    chosen = chosen._replace(inside_mesh=chosen.devices > 1)
    program = Rounds(stack_cells(form.method), plan, view, chosen, capacity)
    states, infos = block_if_cpu_mesh(_grid_rounds(program, devices, states, data, keys, np.int32(rounds)))
    return states, infos if rounds == capacity else jax.tree.map(lambda leaf: leaf[:, :, :rounds], infos)


def _without_round(states: ServerState) -> ServerState:
    """Return the states without the round, which all cells share."""
    return states._replace(round=None)  # pyright: ignore[reportArgumentType]


@jit_per_settings(2)
def _grid_rounds(
    program: Rounds, devices: int, states: ServerState, data: Resident, seeds: Any, rounds: Any
) -> tuple[ServerState, RoundInfo]:
    """Run all cells: axis 0 the seeds, axis 1 the rates, each device with its share of these."""
    run_cells = partial(_run_cells, program)
    if devices * program.layout.devices == 1:
        return run_cells(states, data, seeds, rounds)
    C = states.server_lr.shape[1]
    padded = -(-C // devices) * devices
    index = np.minimum(np.arange(padded, dtype=np.int32), np.int32(C - 1))  # the last cell again
    states = jax.tree.map(lambda leaf: leaf[:, index], _without_round(states))._replace(round=states.round)
    mesh = jax.make_mesh(
        (devices, program.layout.devices),
        (CELLS_AXIS, CLIENTS_AXIS),
        (AxisType.Auto,) * 2,
        devices=jax.local_devices()[: devices * program.layout.devices],
    )
    by_cell: Any = ServerState(*[P(None, CELLS_AXIS)] * len(ServerState._fields))._replace(round=P())  # pyright: ignore
    sharded = jax.shard_map(
        run_cells if padded == C else partial(_gather_cells, run_cells, C),
        mesh=mesh,
        in_specs=(by_cell, P(), P(), P()),
        out_specs=(by_cell, P(None, CELLS_AXIS)) if padded == C else P(),
        check_vma=False,
    )
    return sharded(states, data, seeds, rounds)


def _run_cells(
    program: Rounds, states: ServerState, data: Resident, seeds: Any, rounds: Any
) -> tuple[ServerState, RoundInfo]:
    """Run the cells of one device."""

    def run_seed(state: ServerState, seed: Any) -> tuple[ServerState, RoundInfo]:
        state = state._replace(clients=_swap_axes(state.clients))  # (cells, N, ...) to (N, cells, ...)
        state, infos = resident_rounds(program, state, data, seed, rounds)
        return state._replace(clients=_swap_axes(state.clients)), _swap_axes(infos)

    if len(seeds) > 1:
        return jax.vmap(run_seed, in_axes=(CELL_AXES, 0), out_axes=(CELL_AXES, 0))(states, seeds)
    # a vmapped axis of size one would cost a tenth of the time
    only = jax.tree.map(lambda leaf: leaf[0], _without_round(states))._replace(round=states.round)
    state, infos = run_seed(only, seeds[0])
    back, infos = jax.tree.map(lambda leaf: leaf[None], (_without_round(state), infos))
    return back._replace(round=state.round), infos


def _gather_cells(
    run_cells: Callable[..., Any], C: int, states: ServerState, data: Resident, seeds: Any, rounds: Any
) -> tuple[ServerState, RoundInfo]:
    """Run the cells of one device, and return those of all devices without the repeated ones."""
    states, infos = run_cells(states, data, seeds, rounds)
    by_cell = _swap_axes((_without_round(states), infos))
    gathered = packed(partial(jax.lax.all_gather, axis_name=CELLS_AXIS, tiled=True), by_cell)
    cells, infos = _swap_axes(jax.tree.map(lambda leaf: leaf[:C], gathered))
    return cells._replace(round=states.round), infos


def _swap_axes(tree: PyTree) -> PyTree:
    """Swap the first two axes of every leaf."""
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), tree)
