"""The loop over rounds, as one compiled program."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from lur.data.gather import Resident
from lur.data.sampling import round_key, sample_clients
from lur.engine.batches import SamplingPlan, View, resident_batches
from lur.methods.method import Method, RoundInfo, RoundInputs, ServerState, method_round
from lur.parallel.layouts import Layout
from lur.parallel.mesh import constrain_replicated


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


def resident_rounds(
    program: Rounds, state: ServerState, data: Resident, seed: Any, rounds: Any
) -> tuple[ServerState, RoundInfo]:
    """Run up to `capacity` rounds in one loop over a store in device memory. `rounds` is traced."""
    method, plan, view, layout, _ = program

    def one_round(state: ServerState, _: Any) -> tuple[ServerState, RoundInfo]:
        key = round_key(seed, state.round)
        clients = constrain_replicated(sample_clients(key, plan.N, plan.M), layout)
        sizes = data.offsets[clients + 1] - data.offsets[clients]
        weights = sizes if plan.weighting == "examples" else None
        inputs = RoundInputs(clients, weights, clients, (data, key))
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


compiled_rounds = jax.jit(resident_rounds, static_argnames="program")
compiled_rounds_donated = jax.jit(resident_rounds, static_argnames="program", donate_argnames="state")
