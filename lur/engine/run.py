"""Many rounds in one compiled program: sampling, gather, inner loops, server step and decay inside one loop.

The host is touched between calls only. Which clients take part and what they draw depends on (seed, round)
alone (`lur.data.sampling`), so a run cut into several calls, or laid out in another way, is the same run.
"""

import logging
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from lur.data.gather import Resident, gather, resident, size_in_bytes
from lur.data.sampling import round_key, sample_clients
from lur.data.store import Store
from lur.engine.batches import Plan, Step, View, draw, own_steps, plan, put, viewed
from lur.engine.batches import as_stored as as_stored
from lur.engine.host_store import run_host
from lur.jax_setup import keep_compiled
from lur.methods.server import Fetch, Info, LocalUpdate, State
from lur.parallel.layouts import Layout, choose, everywhere, finished, replicated

LOG = logging.getLogger(__name__)
DEVICE_BYTES = 2**31
"""Larger stores are left on the host."""


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
        chosen = everywhere(sample_clients(key, plan.N, plan.M), layout)
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
        return state, put(infos, k, info)

    _, info = jax.eval_shape(one, state)
    infos = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), info)
    return jax.lax.fori_loop(0, rounds, step, (state, infos))


STATIC = ("algo", "view", "plan", "capacity", "layout")
run_resident = jax.jit(rounds_of, static_argnames=STATIC)
run_resident_donated = jax.jit(rounds_of, static_argnames=STATIC, donate_argnames="state")


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
    layout: str | Layout = "auto",
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
      layout: of the clients axis, see `lur.parallel.layouts`. ``auto`` suits the machine, the model and M; what it
        chose and why is logged (`logging`, level INFO), and `lur.parallel.layouts.choose` tells.
      epochs: instead of drawing with replacement, go E times through each client's shuffled data; the loss must
        then heed ``batch["mask"]`` of shape (B,), and theta have K = ceil(E n_max / B) weights.
      weighting: of the clients' messages: uniform, as the paper's, or by their numbers of examples.
      data: `lur.data.gather.resident(store)`, where several calls share it; "host" leaves the store where it is and
        reads ahead. By default a store moves to the device if it has less than `DEVICE_BYTES`. Of several processes
        each reads its own clients' examples on the host.
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
    layout, why = choose(state.params, clients_per_round, layout)
    LOG.info("layout %s: %s", layout, why)
    key = jnp.asarray(checked_seed(seed))
    if jax.process_count() > 1 or (data is None and size_in_bytes(store) > DEVICE_BYTES):
        data = "host"
    if isinstance(data, str):
        return run_host(algo, view, made, rounds, layout, state, store, key)
    data = resident(store, replicated(layout)) if data is None else data
    capacity = max(rounds, capacity or 1 << (rounds - 1).bit_length())
    go = run_resident_donated if donate else run_resident
    state, infos = finished(go(algo, view, made, capacity, layout, state, data, key, np.int32(rounds)))
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
