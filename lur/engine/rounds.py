"""The loop over rounds, as one compiled program: over a store in device memory, or over examples read on the host.

On the host, the examples of a few rounds are read ahead, move to the device at once, and run there in one loop. How
many rounds is the same in every call, so where a run is cut does not change a bit of it.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from lur.data.gather import Resident
from lur.data.prefetch import prefetched
from lur.data.sampling import round_key
from lur.data.store import Store
from lur.engine.batches import View, client_batches, resident_batches
from lur.engine.host_store import HostRounds, process_share, read_rounds, rounds_per_transfer
from lur.engine.sampling_plan import SamplingPlan, sample_cohort
from lur.methods.compiled import jit_per_settings
from lur.methods.method import Batches, Method, RoundInfo, RoundInputs, ServerState, method_round
from lur.parallel.client_states import is_on_host, put_rows, rounds_of_rows, take_rows, writable_states
from lur.parallel.layouts import Layout
from lur.parallel.mesh import block_if_cpu_mesh, constrain_replicated, replicated
from lur.parallel.processes import place_arrays


class Rounds(NamedTuple):
    """A method's rounds over a store, with everything decided that the compiled program depends on.

    Attributes:
      method: the method, or a rewrite of it (`lur.engine.fast`).
      plan: what a round draws.
      view: what the loss sees of a mini-batch of stored examples.
      layout: how the clients of a round are laid out.
      capacity: the largest number of rounds of one call. Calls with fewer rounds share its compiled program.
    """

    method: Method
    plan: SamplingPlan
    view: View
    layout: Layout
    capacity: int


def advance(
    program: Rounds,
    state: ServerState,
    store: Store,
    data: Resident | Literal["host"],
    seed: np.uint32,
    rounds: int,
    *,
    donate: bool = False,
) -> tuple[ServerState, RoundInfo]:
    """Run `rounds` further rounds, with a store that is in device memory or stays on the host."""
    if isinstance(data, str):
        return run_on_host(program, state, store, jnp.asarray(seed), rounds, donate=donate)
    compiled = compiled_rounds_donated if donate else compiled_rounds
    state, infos = block_if_cpu_mesh(compiled(program, state, data, jnp.asarray(seed), np.int32(rounds)))
    return state, infos if rounds == program.capacity else jax.tree.map(lambda leaf: leaf[:rounds], infos)


def resident_rounds(
    program: Rounds, state: ServerState, data: Resident, seed: Any, rounds: Any
) -> tuple[ServerState, RoundInfo]:
    """Run up to `capacity` rounds in one loop over a store in device memory. `rounds` is traced."""
    method, plan, view, layout, _ = program

    def one_round(state: ServerState, _: Any) -> tuple[ServerState, RoundInfo]:
        key = round_key(seed, state.round)
        clients = constrain_replicated(sample_cohort(plan, seed, state.round), layout)
        sizes = data.offsets[clients + 1] - data.offsets[clients]
        weights = sizes if plan.weighting == "examples" else None
        inputs = RoundInputs(clients, weights, clients, (data, key), (plan.M, plan.N))
        return method_round(method, state, inputs, layout, resident_batches(plan, view))

    return loop_rounds(one_round, state, None, program.capacity, rounds)


def loop_rounds(
    one_round: Any, state: ServerState, inputs: PyTree, capacity: int, rounds: Int[Array, ""]
) -> tuple[ServerState, RoundInfo]:
    """Run ``one_round(state, inputs[k]) -> (state, info)`` for k < `rounds`; infos have a leading axis `capacity`."""
    one_round = jax.jit(one_round)  # traced once, for its shapes and for the loop

    def inputs_at(k: Any) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[k], inputs)

    def step(k: Any, carry: tuple[ServerState, RoundInfo]) -> tuple[ServerState, RoundInfo]:
        state, infos = carry
        state, info = one_round(state, inputs_at(k))
        return state, jax.tree.map(lambda all, one: jax.lax.dynamic_update_index_in_dim(all, one, k, 0), infos, info)

    _, info = jax.eval_shape(one_round, state, inputs_at(0))
    infos = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), info)
    return jax.lax.fori_loop(0, rounds, step, (state, infos))


compiled_rounds = jit_per_settings(1)(resident_rounds)
compiled_rounds_donated = jit_per_settings(1, lambda program: {"donate_argnames": "state"})(resident_rounds)


def host_rounds(
    program: Rounds, state: ServerState, data: HostRounds, seed: Any, rounds: Any
) -> tuple[ServerState, RoundInfo]:
    """Run the first `rounds` of the rounds in `data`, with the numbers of a store in device memory."""
    method, plan, view, layout, _ = program

    def batches_of(key: Any, client: Any) -> Batches:
        return client_batches(plan, view, key, client, lambda examples: examples)

    def one_round(state: ServerState, data: HostRounds) -> tuple[ServerState, RoundInfo]:
        batches = (data.indices, data.examples, data.mask)
        inputs = RoundInputs(batches, data.weights, data.clients, round_key(seed, state.round), (plan.M, plan.N))
        state, info = method_round(method, state, inputs, layout, batches_of)
        losses, norms = info.client_losses[: plan.M], info.client_norms[: plan.M]
        return state, info._replace(client_losses=losses, client_norms=norms)

    return loop_rounds(one_round, state, data, len(data.indices), rounds)


def host_options(program: Rounds) -> dict[str, Any]:
    """Return the options that place the results on all devices of the layout, or where a model axis has them."""
    return {"out_shardings": None if program.layout.model > 1 else replicated(program.layout)}


compiled_host_rounds = jit_per_settings(1, host_options)(host_rounds)


def run_on_host(
    program: Rounds,
    state: ServerState,
    store: Store,
    seed: Any,
    rounds: int,
    *,
    depth: int = 2,
    donate: bool = False,
) -> tuple[ServerState, RoundInfo]:
    """Run `rounds` rounds. The examples of the next ones are read, up to `depth` transfers ahead, meanwhile.

    Client states that are numpy arrays are copied first, unless `donate` allows to update them in place.
    """
    plan, first = program.plan, int(state.round)
    share, size = process_share(plan.M, program.layout), rounds_per_transfer(plan, store)
    infos = []
    host_states = writable_states(state.clients, in_place=donate) if is_on_host(state.clients) else None
    if host_states is not None:
        size = min(size, rounds_of_rows(host_states, plan.M))

    def read(t: int) -> tuple[HostRounds, int]:
        count = min(size, first + rounds - t)
        return read_rounds(plan, store, seed, t + np.minimum(np.arange(size), count - 1), share), count

    for data, count in prefetched(read, range(first, first + rounds, size), depth):
        if host_states is None:
            state, info = compiled_host_rounds(program, state, data, np.asarray(seed), np.int32(count))
        else:
            index, rows, positions = take_rows(host_states, np.asarray(data.indices), size * data.indices.shape[1])
            sharding = None if share is None else replicated(program.layout)
            rows, positions = place_arrays((rows, positions), sharding)
            data = data._replace(clients=positions)
            state = state._replace(clients=rows)
            state, info = compiled_host_rounds(program, state, data, np.asarray(seed), np.int32(count))
            host_states = put_rows(host_states, index, state.clients)
        infos.append(jax.tree.map(lambda leaf, count=count: np.asarray(leaf)[:count], info))
    if host_states is not None:
        state = state._replace(clients=host_states)
    return state, jax.tree.map(lambda *leaves: np.concatenate(leaves), *infos)
