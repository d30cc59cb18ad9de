"""Rounds over a store that stays on the host, in memory or mapped: only what they need is read, ahead of its use.

Of several processes each reads its own clients' examples, and nobody else's. A few rounds of small ones go to the
device at once and run there in one loop; how many is the same in every call, so that where a run is cut changes no
bit of it.
"""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int

from lur.data.gather import gather
from lur.data.prefetch import prefetched
from lur.data.ragged import Ragged
from lur.data.sampling import Draw, round_key, sample_clients
from lur.data.store import Store
from lur.engine.batches import Plan, View, draw, own_steps, put, viewed
from lur.methods.server import Fetch, Info, LocalUpdate, State
from lur.parallel.layouts import AXIS, SHARDED, Layout, mesh, replicated
from lur.parallel.processes import placed

AHEAD = 2**24
"""Bytes of examples that go to a process's devices at once, where more than one round's fit."""
MOST = 64
"""Rounds that go there at once."""


class Part(NamedTuple):
    """Which of a round's clients this process runs: their places among all M, filled up so that the devices divide.

    A place from M on is the last client again, with weight 0.
    """

    filled: int
    places: np.ndarray
    mesh: Any


def part_of(M: int, layout: Layout) -> Part | None:
    """The part of this process among several; None where one process runs all clients."""
    if jax.process_count() == 1:
        return None
    if layout.devices != jax.device_count():
        raise ValueError(
            f"layout must be {SHARDED} where {jax.process_count()} processes run, whose devices it takes all, "
            f"got {layout}"
        )
    filled = M + -M % layout.devices
    own = NamedSharding(mesh(layout), P(AXIS)).addressable_devices_indices_map((filled,)).values()
    slices = [at[0] for at in own if at is not None]
    bounds = sorted({(at.start or 0, filled if at.stop is None else at.stop) for at in slices})
    return Part(filled, np.concatenate([np.arange(*one) for one in bounds]), mesh(layout))


class Rows(NamedTuple):
    """Rounds gathered on the host: who takes part, how many examples each has, mini-batches (rounds, M, K, B, ...).

    Of a `Part` the mini-batches are those of its places, on this process alone; `weights` are then given.
    """

    chosen: Int[Array, "rounds M"]
    sizes: Int[Array, "rounds M"]
    examples: dict[str, Any]
    mask: Any
    weights: Any = None


@partial(jax.jit, static_argnames=("plan",))
def chosen_clients(plan: Plan, seed: Any, t: Any) -> Int[Array, "M"]:
    """I_t."""
    return sample_clients(round_key(seed, t), plan.N, plan.M)


@partial(jax.jit, static_argnames=("plan",))
def drawn(plan: Plan, seed: Any, t: Any, chosen: Int[Array, "M"], sizes: Int[Array, "M"]) -> Draw:
    """The positions of all mini-batches of round t."""
    key = round_key(seed, t)
    return jax.vmap(lambda i, n: draw(plan, key, i, n))(chosen, sizes)


@partial(jax.jit, static_argnames=("plan",))
def chosen_in(plan: Plan, seed: Any, ts: Any) -> Int[Array, "rounds M"]:
    """I_t of some rounds."""
    return jax.vmap(partial(chosen_clients, plan, seed))(ts)


@partial(jax.jit, static_argnames=("plan",))
def drawn_in(plan: Plan, seed: Any, ts: Any, chosen: Any, sizes: Any) -> Draw:
    """The positions of all mini-batches of some rounds."""
    return jax.vmap(partial(drawn, plan, seed))(ts, chosen, sizes)


def host_rows(plan: Plan, store: Store, seed: Any, ts: np.ndarray, part: Part | None = None) -> Rows:
    """The examples of rounds ts, read from the store: only what the rounds need here is touched."""
    ts = np.asarray(ts, np.int32)
    chosen = np.asarray(chosen_in(plan, seed, ts))
    if part is not None:
        chosen = chosen[:, np.minimum(np.arange(part.filled), plan.M - 1)]
    starts, stops = np.asarray(store.offsets[chosen]), np.asarray(store.offsets[chosen + 1])
    sizes = (stops - starts).astype(np.int32)
    own = slice(None) if part is None else part.places
    positions, mask = drawn_in(plan, seed, ts, chosen[:, own], sizes[:, own])
    rows = starts[:, own, None, None] + np.asarray(positions)
    found = Rows(chosen, sizes, gather(dict(store.features), dict(plan.widths), rows), mask)  # pyright: ignore
    return found if part is None else together(plan, found, part)


def together(plan: Plan, rows: Rows, part: Part) -> Rows:
    """The rows of all processes as one array over their devices; nothing is sent."""
    dealt = NamedSharding(part.mesh, P(None, AXIS))

    def joined(leaf: Any) -> Array:
        value = np.asarray(leaf)
        return jax.make_array_from_process_local_data(dealt, value, (len(value), part.filled, *value.shape[2:]))

    sizes = rows.sizes if plan.weighting == "examples" else np.ones_like(rows.sizes)
    weights = np.where(np.arange(part.filled) < plan.M, sizes, 0).astype(np.float32)
    chosen, sizes, weights = placed((rows.chosen, rows.sizes, weights), NamedSharding(part.mesh, P()))
    examples, mask = jax.tree.map(joined, (rows.examples, rows.mask))
    return Rows(chosen, sizes, examples, mask, weights)


def from_rows(plan: Plan, view: View) -> Fetch:
    """Mini-batches of examples gathered on the host; what clients share is the round's key."""
    return Fetch(lambda key, one: own_steps(plan, key, *one), lambda key, step: viewed(view, step))


def rounds_of_rows(
    algo: LocalUpdate, view: View, plan: Plan, layout: Layout, state: State, rows: Rows, seed: Any, rounds: Any
) -> tuple[State, Info]:
    """The first `rounds` of the rounds gathered on the host: the numbers of a resident store."""

    @jax.jit
    def one(state: State, rows: Rows) -> tuple[State, Info]:
        weights = rows.weights if rows.weights is not None else rows.sizes if plan.weighting == "examples" else None
        clients = (rows.chosen, rows.examples, rows.mask)
        key = round_key(seed, state.round)
        state, info = algo.round(state, clients, weights, layout=layout, fetch=from_rows(plan, view), shared=key)
        losses, norms = info.client_losses[: plan.M], info.client_norms[: plan.M]
        return state, info._replace(client_losses=losses, client_norms=norms)

    def step(k: Any, carry: tuple[State, Info]) -> tuple[State, Info]:
        state, infos = carry
        state, info = one(state, jax.tree.map(lambda leaf: leaf[k], rows))
        return state, put(infos, k, info)

    capacity = len(rows.chosen)
    _, info = jax.eval_shape(one, state, jax.tree.map(lambda leaf: leaf[0], rows))
    infos = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), info)
    return jax.lax.fori_loop(0, rounds, step, (state, infos))


@cache
def compiled(layout: Layout) -> Any:
    """`rounds_of_rows` with its results on all devices of the layout, or where a model axis has them."""
    return jax.jit(
        rounds_of_rows,
        static_argnames=("algo", "view", "plan", "layout"),
        out_shardings=None if layout.model > 1 else replicated(layout),
    )


def at_once(plan: Plan, store: Store) -> int:
    """How many rounds go to the device at once."""
    widths = dict(plan.widths)
    example = sum(
        (widths[name] * feature.values.itemsize if isinstance(feature, Ragged) else feature[:1].nbytes)
        for name, feature in store.features.items()
    )
    own = -(-plan.M // jax.process_count()) * plan.K * plan.B * max(example, 1)
    return min(max(AHEAD // own, 1), MOST)


def run_host(
    algo: LocalUpdate,
    view: View,
    plan: Plan,
    rounds: int,
    layout: Layout,
    state: State,
    store: Store,
    seed: Any,
    depth: int = 2,
) -> tuple[State, Info]:
    """`rounds` rounds; the next ones are read, up to `depth` calls ahead, while some are computed."""
    first, part, size = int(state.round), part_of(plan.M, layout), at_once(plan, store)
    advance, infos = compiled(layout), []

    def read(t: int) -> tuple[Rows, int]:
        count = min(size, first + rounds - t)
        return host_rows(plan, store, seed, t + np.minimum(np.arange(size), count - 1), part), count

    for rows, count in prefetched(read, range(first, first + rounds, size), depth):
        state, info = advance(algo, view, plan, layout, state, rows, np.asarray(seed), np.int32(count))
        infos.append(jax.tree.map(lambda leaf, count=count: np.asarray(leaf)[:count], info))
    return state, jax.tree.map(lambda *leaves: np.concatenate(leaves), *infos)
