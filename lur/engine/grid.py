"""A grid of learning rates as one compiled program: every cell sees the same clients and mini-batches.

Sampling and gather do not depend on the rates, so they are done once for all cells. The cells, one model each, run
side by side inside each client's loop, dealt to the devices, which need not wait for each other. With a layout that
deals the clients too, the mesh has two axes: each group of devices has some cells, each device of it some clients.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, PyTree

from lur import _checks as checks
from lur.data.gather import Resident, resident
from lur.data.store import Store
from lur.engine.run import Plan, View, as_stored, checked_rounds, checked_seed, plan, rounds_of
from lur.jax_setup import keep_compiled
from lur.methods.server import CELLS, Info, LocalUpdate, State
from lur.parallel import layouts
from lur.parallel.layouts import Layout, enough, parse

AXIS = "cells"


def run_grid(
    algo: LocalUpdate,
    params: PyTree,
    store: Store,
    *,
    client_lr: Sequence[float],
    server_lr: Sequence[float],
    seeds: Sequence[int] = (0,),
    **options: Any,
) -> tuple[State, Info]:
    """R rounds of every (gamma, eta, seed), from the same initial model.

    Args:
      params: the initial model, of all cells.
      client_lr, server_lr: the rates gamma and eta; the grid is their product.
      seeds: of the runs; each further seed repeats the whole grid with other clients and mini-batches.
      options: as in `advance`.

    Returns:
      States with leading axes (gammas, etas, seeds) and infos with (gammas, etas, seeds, R).
    """
    S, *rates = (len(values) if np.ndim(values) else 0 for values in (seeds, client_lr, server_lr))
    states, infos = advance(algo, start(algo, params, client_lr, server_lr, S), store, seeds=seeds, **options)
    return apart(states, infos, (S, *rates))


@partial(jax.jit, static_argnames="shape")
def apart(states: State, infos: Info, shape: tuple[int, int, int]) -> tuple[State, Info]:
    """The axes (seeds, gammas x etas) as (gammas, etas, seeds)."""

    def axes(leaf: Any) -> Any:
        return jnp.moveaxis(leaf.reshape(*shape, *leaf.shape[2:]), 0, 2)

    cells, infos = jax.tree.map(axes, (states._replace(round=None), infos))  # pyright: ignore[reportArgumentType]
    return cells._replace(round=jnp.broadcast_to(states.round, (*shape[1:], shape[0]))), infos


def start(
    algo: LocalUpdate, params: PyTree, client_lr: Sequence[float], server_lr: Sequence[float], seeds: int = 1
) -> State:
    """The state of all cells before the first round, with leading axes (seeds, gammas x etas); one round for all."""
    for name, values in (("client_lr", client_lr), ("server_lr", server_lr)):
        if np.ndim(values) != 1 or not len(values):
            raise ValueError(f"{name} must be a list of at least one number, got {values!r}")
    return start_pairs(algo, params, [(gamma, eta) for gamma in client_lr for eta in server_lr], seeds)


def start_pairs(algo: LocalUpdate, params: PyTree, pairs: Sequence[tuple[float, float]], seeds: int = 1) -> State:
    """As `start`, for the cells (gamma, eta) given one by one."""
    dtype = checks.floating_dtype(params)
    gammas, etas = (
        checks.rate(name, np.array(values), dtype, steps=len(values))
        for name, values in zip(("client_lr", "server_lr"), zip(*pairs, strict=True), strict=True)
    )
    return starts(algo.init, params, gammas, etas, seeds)


@partial(jax.jit, static_argnames=("init", "seeds"))
def starts(init: Callable[..., State], params: PyTree, gammas: Array, etas: Array, seeds: int) -> State:
    """The first states of all cells, once for each seed."""
    cells = jax.vmap(init, in_axes=(None, 0, 0), out_axes=CELLS)(params, gammas, etas)
    repeated = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (seeds, *leaf.shape)), cells)
    return repeated._replace(round=cells.round)


def advance(
    algo: LocalUpdate,
    states: State,
    store: Store,
    *,
    rounds: int,
    clients_per_round: int,
    batch_size: int,
    seeds: Sequence[int] = (0,),
    view: View = as_stored,
    layout: str | Layout = "vmap",
    epochs: int | None = None,
    weighting: Literal["uniform", "examples"] = "uniform",
    data: Resident | None = None,
    capacity: int | None = None,
    devices: int | None = None,
) -> tuple[State, Info]:
    """R further rounds of all cells.

    Args:
      states: from `start`, or an earlier call.
      seeds: one for each entry of the states' first axis.
      rounds, clients_per_round, batch_size, view, epochs, weighting, data, capacity: as in `lur.run`.
      layout: as in `lur.run`; ``sharded`` deals the clients to all devices or, where `devices` says over how many
        the cells are dealt, to as many as there are for each of these.
      devices: over how many the cells are dealt; by default all that the layout leaves, but no more than help.

    Returns:
      States as given, and infos with leading axes (seeds, cells, R).
    """
    rounds = checked_rounds(rounds)
    if np.ndim(seeds) != 1 or not len(seeds):
        raise ValueError(f"seeds must be a list of at least one number, got {seeds!r}")
    S, C = states.server_lr.shape
    if len(seeds) != S:
        raise ValueError(f"seeds must be {S}, one for each of the states' first axis, got {len(seeds)}")
    chosen = parse(layout)
    if chosen.model > 1:
        raise ValueError(f"layout of a grid must be without a model axis, got {layout}")
    if chosen.devices > 1 and isinstance(layout, str):
        chosen = chosen._replace(devices=max(1, chosen.devices // (devices or 1)))
    room = jax.local_device_count() // chosen.devices
    devices = enough(max(room, 1), C) if devices is None else devices
    if not 1 <= devices <= room:
        raise ValueError(
            f"devices must be from 1 to {room}, so many groups of {chosen.devices} are there, got {devices}"
        )
    chosen = chosen._replace(inside=chosen.devices > 1)
    keep_compiled()
    made = plan(store, algo, clients_per_round, batch_size, epochs, weighting)
    data = resident(store) if data is None else data
    keys = jnp.asarray(np.array([checked_seed(seed) for seed in seeds]))
    capacity = max(rounds, capacity or 1 << (rounds - 1).bit_length())
    done = cells(algo, view, made, capacity, chosen, devices, states, data, keys, np.int32(rounds))
    states, infos = layouts.finished(done)
    return states, infos if rounds == capacity else jax.tree.map(lambda leaf: leaf[:, :, :rounds], infos)


@partial(jax.jit, static_argnames=("algo", "view", "made", "capacity", "layout", "devices"))
def cells(
    algo: LocalUpdate,
    view: View,
    made: Plan,
    capacity: int,
    layout: Layout,
    devices: int,
    states: State,
    data: Resident,
    seeds: Any,
    rounds: Any,
) -> tuple[State, Info]:
    """All cells at once: axis 0 the seeds, axis 1 the rates, each device with its share of these."""
    stacked = algo._replace(round=algo.cells)

    def share(states: State, data: Resident, seeds: Any, rounds: Any) -> tuple[State, Info]:
        def one(state: State, seed: Any) -> tuple[State, Info]:
            state, infos = rounds_of(stacked, view, made, capacity, layout, state, data, seed, rounds)
            return state, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), infos)

        if len(seeds) > 1:
            return jax.vmap(one, in_axes=(CELLS, 0), out_axes=(CELLS, 0))(states, seeds)
        only = jax.tree.map(lambda leaf: leaf[0], states._replace(round=None))  # pyright: ignore
        state, infos = one(only._replace(round=states.round), seeds[0])  # an axis of one would cost a tenth of the time
        back, infos = jax.tree.map(lambda leaf: leaf[None], (state._replace(round=None), infos))  # pyright: ignore
        return back._replace(round=state.round), infos

    if devices * layout.devices == 1:
        return share(states, data, seeds, rounds)
    C = states.server_lr.shape[1]
    index = np.minimum(np.arange(-(-C // devices) * devices, dtype=np.int32), np.int32(C - 1))  # the last cell again
    padded = jax.tree.map(lambda leaf: leaf[:, index], states._replace(round=None))  # pyright: ignore

    def of_all(states: State, data: Resident, seeds: Any, rounds: Any) -> tuple[State, Info]:
        """What every device then has: the cells of all devices, less the repeated ones."""
        states, infos = share(states, data, seeds, rounds)
        firsts = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), (states._replace(round=None), infos))  # pyright: ignore
        gathered = layouts.one_message(partial(jax.lax.all_gather, axis_name=AXIS, tiled=True), firsts)
        kept, infos = jax.tree.map(lambda leaf: jnp.swapaxes(leaf[:C], 0, 1), gathered)
        return kept._replace(round=states.round), infos

    shape, used = (devices, layout.devices), jax.local_devices()[: devices * layout.devices]
    along: Any = State(*[P(None, AXIS)] * 5, round=P())  # pyright: ignore
    spread = jax.shard_map(
        share if len(index) == C else of_all,
        mesh=jax.make_mesh(shape, (AXIS, layouts.AXIS), (AxisType.Auto,) * 2, devices=used),
        in_specs=(along, P(), P(), P()),
        out_specs=(along, P(None, AXIS)) if len(index) == C else P(),
        check_vma=False,
    )
    return spread(padded._replace(round=states.round), data, seeds, rounds)
