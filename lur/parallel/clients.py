"""The mean over clients: run a client function for every client of a round and average the updates."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int, PyTree

from lur.parallel.layouts import Layout
from lur.parallel.mesh import CLIENTS_AXIS, constrain_replicated, mesh_of, packed_psum


class ClientResults(NamedTuple):
    """What the clients of a round return; of a single client, the same fields without the leading axis M.

    Attributes:
      update: the update that is averaged over clients; of all clients, its weighted mean.
      state: what each client keeps for its next round, with leading axis M. Any dtypes, moved bit for bit.
      metrics: floating-point numbers of each client, with leading axis M.
    """

    update: PyTree
    state: PyTree
    metrics: PyTree


ClientFn = Callable[[Any, Any], ClientResults]
"""``client(shared, inputs) -> ClientResults`` of one client."""
CohortFn = Callable[[Any, PyTree, Float[Array, "M"] | None], ClientResults]
"""``cohort(shared, inputs, weights) -> ClientResults`` of several clients, inputs having a leading axis."""


def mean_over_clients(
    client: ClientFn, shared: PyTree, inputs: PyTree, weights: Float[Array, "M"] | None, layout: Layout
) -> ClientResults:
    """Run `client` for every client and average the updates.

    Args:
      client: ``client(shared, inputs) -> ClientResults`` of one client.
      shared: what all clients need. It is replicated over the devices, so `client` must not close over traced arrays.
      inputs: pytree with leading axis M.
      weights: of the clients, summing to 1; None for the uniform mean.
      layout: how the clients are laid out.
    """

    def cohort(shared: PyTree, inputs: PyTree, weights: Float[Array, "M"] | None) -> ClientResults:
        return _on_one_device(partial(client, shared), inputs, weights, layout.chunk_size)

    if layout.devices > 1 and weights is None:
        weights = uniform_weights(num_clients(inputs), accumulation_dtype(shared))
    return shard_clients(cohort, shared, inputs, weights, layout)


def shard_clients(cohort: CohortFn, shared: PyTree, inputs: PyTree, weights: Any, layout: Layout) -> ClientResults:
    """Run `cohort` on each device of the layout with that device's clients, and add up the devices' updates."""
    if layout.devices == 1:
        return cohort(shared, inputs, weights)
    M = num_clients(inputs)
    inputs, weights = pad_clients(inputs, weights, layout.devices)
    m = num_clients(inputs) // layout.devices

    def on_device(shared: PyTree, inputs: PyTree, weights: Array, device: Int[Array, "1"]) -> ClientResults:
        update, state, metrics = cohort(shared, inputs, weights)
        metrics = jax.tree.map(lambda leaf: scatter_to_global(leaf, device[0] * m, layout.devices * m), metrics)
        state = jax.tree.map(partial(jax.lax.all_gather, axis_name=CLIENTS_AXIS, tiled=True), state)
        if layout.model > 1:  # arrays split over devices cannot be packed into one message
            return ClientResults(jax.lax.psum(update, CLIENTS_AXIS), state, packed_psum(metrics, CLIENTS_AXIS))
        update, metrics = packed_psum((update, metrics), CLIENTS_AXIS)
        return ClientResults(update, state, metrics)

    if layout.inside_mesh:
        device = jax.lax.axis_index(CLIENTS_AXIS)
        inputs, weights = jax.tree.map(
            lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, device * m, m), (inputs, weights)
        )
        update, state, metrics = on_device(shared, inputs, weights, device[None])
    else:
        weights = constrain_replicated(weights, layout)
        sharded = jax.shard_map(
            on_device,
            mesh=mesh_of(layout),
            in_specs=(P(), P(CLIENTS_AXIS), P(CLIENTS_AXIS), P(CLIENTS_AXIS)),
            out_specs=P(),
            axis_names={CLIENTS_AXIS},
            check_vma=False,
        )
        update, state, metrics = sharded(shared, inputs, weights, jnp.arange(layout.devices, dtype=jnp.int32))
    return ClientResults(update, *jax.tree.map(lambda leaf: leaf[:M], (state, metrics)))


def scatter_to_global(own: Float[Array, "m ..."], start: Int[Array, ""], total: int) -> Float[Array, "total ..."]:
    """Place a device's values among those of all devices, which are zero here; their sum is the gathered array."""
    return jax.lax.dynamic_update_slice_in_dim(jnp.zeros((total, *own.shape[1:]), own.dtype), own, start, 0)


def _on_one_device(
    client: Callable[[Any], ClientResults],
    inputs: PyTree,
    weights: Float[Array, "M"] | None,
    chunk_size: int | None,
) -> ClientResults:
    """Run all clients on one device, `chunk_size` at a time."""
    M = num_clients(inputs)
    if chunk_size is None or (chunk_size > 1 and chunk_size >= M):
        updates, state, metrics = jax.vmap(client)(inputs)
        return ClientResults(weighted_mean(updates, weights), state, metrics)
    client = jax.jit(client)  # traced once, for its shapes and for the loop
    shapes = jax.eval_shape(client, jax.tree.map(lambda leaf: leaf[0], inputs))
    if weights is None:
        weights = uniform_weights(M, accumulation_dtype(shapes.update))
    inputs, weights = pad_clients(inputs, weights, chunk_size)
    chunks = jax.tree.map(lambda leaf: leaf.reshape(-1, chunk_size, *leaf.shape[1:]), (inputs, weights))

    def add_chunk(total: PyTree, chunk: Any) -> tuple[PyTree, Any]:
        members, share = chunk
        if chunk_size == 1:
            update, *kept = client(jax.tree.map(lambda leaf: leaf[0], members))
            total = jax.tree.map(lambda t, u: t + share[0].astype(t.dtype) * u.astype(t.dtype), total, update)
            return total, jax.tree.map(lambda leaf: leaf[None], kept)
        updates, *kept = jax.vmap(client)(members)
        return jax.tree.map(lambda t, u: t + _weighted_sum(u, share), total, updates), kept

    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, accumulation_dtype(leaf)), shapes.update)
    total, kept = jax.lax.scan(add_chunk, zeros, chunks)
    mean = jax.tree.map(lambda t, leaf: t.astype(leaf.dtype), total, shapes.update)
    return ClientResults(mean, *jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:M], kept))


def weighted_mean(values: PyTree, weights: Float[Array, "M"] | None) -> PyTree:
    """Average over the leading axis of every leaf: uniformly, or with weights that sum to 1.

    Leaves of fewer than 32 bits are summed in float32.
    """
    if weights is None:
        return jax.tree.map(lambda leaf: leaf.mean(axis=0), values)
    return jax.tree.map(lambda leaf: _weighted_sum(leaf, weights).astype(leaf.dtype), values)


def _weighted_sum(leaf: Float[Array, "M ..."], weights: Float[Array, "M"]) -> Float[Array, "..."]:
    dtype = accumulation_dtype(leaf)
    return jnp.tensordot(weights.astype(dtype), leaf.astype(dtype), axes=1)


def uniform_weights(M: int, dtype: Any) -> Float[Array, "M"]:
    """Return M equal weights that sum to 1."""
    return jnp.full((M,), 1 / M, dtype)


def num_clients(inputs: PyTree) -> int:
    """Return the number of clients: the size of the leading axis."""
    return jax.tree.leaves(inputs)[0].shape[0]


def pad_clients(inputs: PyTree, weights: Float[Array, "M"], multiple: int) -> tuple[PyTree, Float[Array, "padded"]]:
    """Repeat the last client with weight 0 until the number of clients is a multiple of `multiple`."""
    M = num_clients(inputs)
    missing = -M % multiple
    if not missing:
        return inputs, weights
    index = np.minimum(np.arange(M + missing, dtype=np.int32), np.int32(M - 1))
    return jax.tree.map(lambda leaf: leaf[index], inputs), jnp.pad(weights, (0, missing))


def accumulation_dtype(tree: PyTree) -> Any:
    """Return the dtype in which the leaves are summed: the widest floating dtype among them, and at least float32."""
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return max((*dtypes, jnp.dtype(jnp.float32)), key=lambda dtype: jnp.finfo(dtype).bits)
