"""Many rounds in one compiled program: sampling, gather, inner loops, server step and decay inside one loop.

The host is touched between calls only. Which clients take part and what they draw depends on (seed, round)
alone (`lur.data.sampling`), so a run cut into several calls, or laid out in another way, is the same run.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from lur.cache import keep_compiled
from lur.data.gather import Resident, gather, resident, size_in_bytes
from lur.data.prefetch import prefetched
from lur.data.sampling import (
    Draw,
    client_key,
    round_key,
    sample_clients,
    shuffled_epochs,
    steps_of_epochs,
    with_replacement,
)
from lur.data.store import Store
from lur.layouts import Layout, parse, replicated
from lur.server import Fetch, Info, LocalUpdate, State

DEVICE_BYTES = 2**31
"""Larger stores are left on the host."""

View = Callable[[Any, Mapping[str, Any]], PyTree]
"""``view(key, examples) -> batch``: what the loss sees of a mini-batch of stored examples, augmented or not."""


class Plan(NamedTuple):
    """What a round draws: M clients of N, K mini-batches of B each, or E shuffled epochs."""

    N: int
    M: int
    K: int
    B: int
    epochs: int | None
    largest: int
    widths: tuple[tuple[str, int], ...]
    weighting: Literal["uniform", "examples"]


def plan(
    store: Store,
    algo: LocalUpdate,
    clients_per_round: int,
    batch_size: int,
    epochs: int | None = None,
    weighting: Literal["uniform", "examples"] = "uniform",
) -> Plan:
    """Check the numbers of a run against its store."""
    for name, value in (("clients_per_round", clients_per_round), ("batch_size", batch_size), ("epochs", epochs)):
        if value is not None and (isinstance(value, bool) or int(value) != value or value < 1):
            raise ValueError(f"{name} must be an integer >= 1, got {value!r}")
    if clients_per_round > store.clients:
        raise ValueError(
            f"clients_per_round must be at most the number of clients in the store, {store.clients}, "
            f"got {clients_per_round}"
        )
    if weighting not in ("uniform", "examples"):
        raise ValueError(f"weighting must be 'uniform' or 'examples', got {weighting!r}")
    largest = int(store.sizes.max())
    K = algo.steps
    if epochs is not None:
        K = steps_of_epochs(epochs, largest, batch_size)
        if algo.steps != K:
            raise ValueError(
                f"{epochs} epochs over the largest client ({largest} examples, batches of {batch_size}) take K = {K} "
                f"steps, got an algorithm with {algo.steps}; use theta = lur.theta.fedavg({K})"
            )
    widths = tuple(sorted(store.widths.items()))
    return Plan(store.clients, clients_per_round, K, batch_size, epochs, largest, widths, weighting)


def draw(plan: Plan, key: Any, i: Int[Array, ""], n: Int[Array, ""]) -> Draw:
    """The positions, within its own data, of client i's mini-batches in the round of `key`."""
    own = client_key(key, i)
    if plan.epochs is None:
        return with_replacement(own, n, plan.K, plan.B)
    return shuffled_epochs(own, n, plan.epochs, plan.B, plan.largest)


class Step(NamedTuple):
    """What a client's local steps need: their examples (or their rows in a store), keys, and which examples count."""

    examples: Any
    key: Any
    mask: Any


def own_steps(plan: Plan, key: Any, i: Int[Array, ""], examples: Any, mask: Any) -> Step:
    """The K steps of client i in the round of `key`: each with a key of its own for augmentation."""
    return Step(examples, jax.random.split(jax.random.fold_in(client_key(key, i), 1), plan.K), mask)


def viewed(view: View, step: Step) -> PyTree:
    """A mini-batch as the loss sees it."""
    batch = view(step.key, step.examples)
    return batch if step.mask is None else {**batch, "mask": step.mask}


def from_resident(plan: Plan, view: View) -> Fetch:
    """Mini-batches gathered from a resident store; what clients share is the store and the round's key."""

    def own(shared: tuple[Resident, Any], i: Int[Array, ""]) -> Step:
        data, key = shared
        start = data.offsets[i]
        positions, mask = draw(plan, key, i, data.offsets[i + 1] - start)
        return own_steps(plan, key, i, start + positions, mask)

    def see(shared: tuple[Resident, Any], step: Step) -> PyTree:
        data, _ = shared
        return viewed(view, step._replace(examples=gather(data.features, dict(plan.widths), step.examples)))

    return Fetch(own, see)


def from_rows(plan: Plan, view: View) -> Fetch:
    """Mini-batches of examples gathered on the host; what clients share is the round's key."""
    return Fetch(lambda key, one: own_steps(plan, key, *one), lambda key, step: viewed(view, step))


def as_stored(key: Any, examples: Mapping[str, Any]) -> PyTree:
    """The view that changes nothing."""
    return dict(examples)


def rounds_of(
    algo: LocalUpdate,
    view: View,
    plan: Plan,
    capacity: int,
    layout: Layout,
    state: State,
    data: Resident,
    seed: Any,
    rounds: Any,
) -> tuple[State, Info]:
    """Up to `capacity` rounds in one loop over a resident store. How many is a value: it does not recompile."""

    @jax.jit  # traced once, for its shapes and for the loop
    def one(state: State) -> tuple[State, Info]:
        key = round_key(seed, state.round)
        chosen = sample_clients(key, plan.N, plan.M)
        sizes = data.offsets[chosen + 1] - data.offsets[chosen]
        weights = sizes if plan.weighting == "examples" else None
        return algo.round(
            state,
            chosen,
            weights,
            layout=layout,
            fetch=from_resident(plan, view),
            shared=(data, key),
        )

    def step(k: Any, carry: tuple[State, Info]) -> tuple[State, Info]:
        state, infos = carry
        state, info = one(state)
        return state, jax.tree.map(lambda all, leaf: all.at[k].set(leaf), infos, info)

    _, info = jax.eval_shape(one, state)
    infos = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), info)
    return jax.lax.fori_loop(0, rounds, step, (state, infos))


STATIC = ("algo", "view", "plan", "capacity", "layout")
run_resident = jax.jit(rounds_of, static_argnames=STATIC)
run_resident_donated = jax.jit(rounds_of, static_argnames=STATIC, donate_argnames="state")


class Rows(NamedTuple):
    """A round gathered on the host: who takes part, how many examples each has, mini-batches (M, K, B, ...)."""

    chosen: Int[Array, "M"]
    sizes: Int[Array, "M"]
    examples: dict[str, Any]
    mask: Any


@partial(jax.jit, static_argnames=("plan",))
def chosen_clients(plan: Plan, seed: Any, t: Any) -> Int[Array, "M"]:
    """I_t."""
    return sample_clients(round_key(seed, t), plan.N, plan.M)


@partial(jax.jit, static_argnames=("plan",))
def drawn(plan: Plan, seed: Any, t: Any, chosen: Int[Array, "M"], sizes: Int[Array, "M"]) -> Draw:
    """The positions of all mini-batches of round t."""
    key = round_key(seed, t)
    return jax.vmap(lambda i, n: draw(plan, key, i, n))(chosen, sizes)


def host_rows(plan: Plan, store: Store, seed: Any, t: int) -> Rows:
    """Round t's examples, read from a store in memory or mapped: only what the round needs is touched."""
    chosen = np.asarray(chosen_clients(plan, seed, np.int32(t)))
    starts, stops = np.asarray(store.offsets[chosen]), np.asarray(store.offsets[chosen + 1])
    sizes = (stops - starts).astype(np.int32)
    positions, mask = drawn(plan, seed, np.int32(t), chosen, sizes)
    rows = starts[:, None, None] + np.asarray(positions)
    return Rows(chosen, sizes, gather(dict(store.features), dict(plan.widths), rows), mask)  # pyright: ignore


@partial(jax.jit, static_argnames=("algo", "view", "plan", "layout"))
def round_of_rows(
    algo: LocalUpdate, view: View, plan: Plan, layout: Layout, state: State, rows: Rows, seed: Any
) -> tuple[State, Info]:
    """One round over rows gathered on the host: the numbers of `run_resident`."""
    key = round_key(seed, state.round)
    weights = rows.sizes if plan.weighting == "examples" else None
    clients = (rows.chosen, rows.examples, rows.mask)
    return algo.round(state, clients, weights, layout=layout, fetch=from_rows(plan, view), shared=key)


def run_host(
    algo: LocalUpdate, view: View, plan: Plan, rounds: int, layout: Layout, state: State, store: Store, seed: Any
) -> tuple[State, Info]:
    """`rounds` rounds over a store that stays on the host; the next rounds are read while one is computed."""
    infos = []
    first = int(state.round)
    for rows in prefetched(lambda t: host_rows(plan, store, seed, t), range(first, first + rounds)):
        state, info = round_of_rows(algo, view, plan, layout, state, rows, seed)
        infos.append(info)
    return state, jax.tree.map(lambda *leaves: jnp.stack(leaves), *infos)


def run(
    algo: LocalUpdate,
    state: State,
    store: Store,
    *,
    rounds: int,
    clients_per_round: int,
    batch_size: int,
    seed: int = 0,
    view: View = as_stored,
    layout: str | Layout = "vmap",
    epochs: int | None = None,
    weighting: Literal["uniform", "examples"] = "uniform",
    data: Resident | Literal["host"] | None = None,
    capacity: int | None = None,
    donate: bool = False,
) -> tuple[State, Info]:
    """Run rounds ``state.round, state.round + 1, ...`` of a local update method over a store.

    Args:
      algo: from `lur.local_update` or `lur.maml.maml`.
      state: its state; `state.round` says where the run stands.
      store: the clients; `lur.data.writer.in_memory` makes one from arrays.
      rounds: R, all in one compiled call.
      clients_per_round, batch_size: M and B.
      seed: of the run: with the round it decides clients, mini-batches and augmentation.
      view: what the loss sees of a mini-batch of stored examples.
      layout: of the clients axis, see `lur.layouts`.
      epochs: instead of drawing with replacement, go E times through each client's shuffled data; the loss must
        then heed ``batch["mask"]`` of shape (B,), and theta have K = ceil(E n_max / B) weights.
      weighting: of the clients' messages: uniform, as the paper's, or by their numbers of examples.
      data: `lur.data.gather.resident(store)`, where several calls share it; "host" leaves the store where it is and
        reads ahead. By default a store moves to the device if it has less than `DEVICE_BYTES`.
      capacity: the most rounds of any call, so that calls of fewer share its compiled program; by default the next
        power of two.
      donate: give the memory of `state` to the result, so that model and server state are held once; the state passed
        in can then not be used again.

    Returns:
      The state after R rounds and the rounds' `Info`, each field with a leading axis R.
    """
    rounds = checked_rounds(rounds)
    keep_compiled()
    made = plan(store, algo, clients_per_round, batch_size, epochs, weighting)
    layout = parse(layout)
    key = jnp.asarray(checked_seed(seed))
    if data is None and size_in_bytes(store) > DEVICE_BYTES:
        data = "host"
    if isinstance(data, str):
        return run_host(algo, view, made, rounds, layout, state, store, key)
    data = resident(store, replicated(layout)) if data is None else data
    capacity = max(rounds, capacity or 1 << (rounds - 1).bit_length())
    go = run_resident_donated if donate else run_resident
    state, infos = go(algo, view, made, capacity, layout, state, data, key, np.int32(rounds))
    return state, infos if rounds == capacity else jax.tree.map(lambda leaf: leaf[:rounds], infos)


def checked_rounds(rounds: int) -> int:
    """R is a positive integer."""
    if isinstance(rounds, bool) or int(rounds) != rounds or rounds < 1:
        raise ValueError(f"rounds must be an integer >= 1, got {rounds!r}")
    return int(rounds)


def checked_seed(seed: int) -> np.uint32:
    """A seed is an integer of 32 bits."""
    if isinstance(seed, bool) or int(seed) != seed or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be an integer from 0 to 2^32 - 1, got {seed!r}")
    return np.uint32(seed)
