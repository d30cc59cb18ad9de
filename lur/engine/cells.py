"""A method over many cells: the same functions vmapped over models and rates, on the same clients and mini-batches."""

from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Float, PyTree

from lur.methods.method import (
    BatchesOf,
    Broadcast,
    ClientMetrics,
    ClientOutput,
    Cohort,
    Method,
    RoundInfo,
    ServerState,
    tree_norm,
)
from lur.parallel.clients import ClientResults, mean_over_clients
from lur.parallel.layouts import Layout

CELL_AXES = ServerState(0, 0, 0, 0, 0, None, 0, 0)  # pyright: ignore[reportArgumentType]
"""The vmapped axes of a state of many cells, which all are at the same round."""
ROUND_AXES = CELL_AXES._replace(clients=1)
"""The same inside the loop over rounds, where the states of all clients have axes (N, cells)."""
BROADCAST_AXES = Broadcast(0, 0, 0, 0)  # pyright: ignore[reportArgumentType]


def stack_cells(method: Method) -> Method:
    """Return the method over many cells: a leading axis of cells in all of the state but its round.

    A rewrite of the mean over clients is used if it has an ``over_cells`` of its own; else it is vmapped.
    """
    return method._replace(
        broadcast=VmappedBroadcast(method),
        server_update=VmappedServerUpdate(method),
        prepare=None if method.prepare is None else VmappedPrepare(method),
        cohort_update=MeanOverCells(method),
    )


class VmappedBroadcast(NamedTuple):
    """``broadcast`` of many cells.

    Attributes:
      method: the method of one cell.
    """

    method: Method

    def __call__(self, state: ServerState) -> Broadcast:
        return jax.vmap(self.method.broadcast, in_axes=(ROUND_AXES,))(state)


class VmappedServerUpdate(NamedTuple):
    """``server_update`` of many cells.

    Attributes:
      method: the method of one cell.
    """

    method: Method

    def __call__(self, state: ServerState, update: PyTree, cohort: Cohort) -> tuple[ServerState, RoundInfo]:
        cohort_axes = Cohort(1, 1, None, None, None)  # pyright: ignore[reportArgumentType]
        server_update = jax.vmap(
            self.method.server_update, in_axes=(ROUND_AXES, 0, cohort_axes), out_axes=(ROUND_AXES, 0)
        )
        return server_update(state, update, cohort)


class VmappedPrepare(NamedTuple):
    """``prepare`` of many cells.

    Attributes:
      method: the method of one cell.
    """

    method: Method

    def __call__(self, broadcast: Broadcast, client_state: PyTree, batches: Any) -> PyTree:
        prepare: Any = self.method.prepare
        return jax.vmap(lambda cell, state: prepare(cell, state, batches), in_axes=(BROADCAST_AXES, 0))(
            broadcast, client_state
        )


class MeanOverCells(NamedTuple):
    """`lur.methods.method.mean_client_update` of many cells: losses and norms have axes (M, cells).

    Attributes:
      method: the method of one cell.
    """

    method: Method

    def __call__(
        self, shared: Any, inputs: Any, weights: Float[Array, "M"] | None, layout: Layout, batches_of: BatchesOf
    ) -> ClientResults:
        rewrite = self.method.cohort_update
        if rewrite is not None:
            return over_cells(rewrite, shared, inputs, weights, layout, batches_of)

        def client(shared: Any, inputs: Any) -> ClientResults:
            (broadcast, source), (client_states, own) = shared, inputs
            batches = batches_of(source, own)

            def cell(broadcast: Broadcast, client_state: PyTree) -> ClientResults:
                output: ClientOutput = self.method.client_update(broadcast, client_state, batches)
                norm = tree_norm(output.update, broadcast.client_lr.dtype)
                return ClientResults(output.update, output.state, ClientMetrics(output.loss, norm))

            return jax.vmap(cell, in_axes=(BROADCAST_AXES, 0))(broadcast, client_states)

        return mean_over_clients(client, shared, inputs, weights, layout)


def over_cells(
    rewrite: Any, shared: Any, inputs: Any, weights: Any, layout: Layout, batches_of: BatchesOf
) -> ClientResults:
    """Run a rewrite of the mean over clients for many cells."""
    if hasattr(rewrite, "over_cells"):
        return rewrite.over_cells(shared, inputs, weights, layout, batches_of)
    (broadcast, source), (client_states, own) = shared, inputs

    def cell(broadcast: Broadcast, client_states: PyTree) -> ClientResults:
        return rewrite((broadcast, source), (client_states, own), weights, layout, batches_of)

    results = jax.vmap(cell, in_axes=(BROADCAST_AXES, 1), out_axes=ClientResults(0, 1, 1))
    return results(broadcast, client_states)
