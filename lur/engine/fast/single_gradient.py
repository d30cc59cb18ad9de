r"""Rounds as one gradient of all the round's examples: gamma = 0, or Theta_1 with any gamma.

No client leaves the broadcast model before its last gradient counts, so

.. math:: q_t = \sum_i w_i \sum_k \theta_k g_{ik}(x_t) = \nabla_x \sum_i w_i \sum_k \theta_k f(x_t; S_{ik}),

one gradient of all the round's examples (the paper's special cases in which Q_i is a multiple of I). The numbers are
`lur.local_update`'s up to the order of the sum. No client's own update is formed, so the client norms are nan.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from lur.methods.inner_loop import InnerLoop
from lur.methods.method import Batches, BatchesOf, Broadcast, ClientMetrics, Method
from lur.methods.optimizers import add_scaled
from lur.parallel.clients import ClientResults, num_clients, pad_clients, shard_clients, uniform_weights
from lur.parallel.layouts import Layout


class SingleGradient(NamedTuple):
    """The mean over clients as one gradient; a `Method.cohort_update`.

    The chunk size of the layout is the number of clients whose examples make one batch.

    Attributes:
      inner_loop: the reference client, which must have gamma = 0 or K = 1.
    """

    inner_loop: InnerLoop

    def __call__(
        self, shared: Any, inputs: Any, weights: Float[Array, "M"] | None, layout: Layout, batches_of: BatchesOf
    ) -> ClientResults:
        def cohort(shared: Any, inputs: Any, weights: Any) -> ClientResults:
            broadcast, source = shared
            _, own = inputs
            return all_clients_gradient(self.inner_loop, broadcast, source, own, weights, layout.chunk_size, batches_of)

        if weights is None:
            weights = uniform_weights(num_clients(inputs), shared[0].client_lr.dtype)
        return shard_clients(cohort, shared, inputs, weights, layout)


def single_gradient_form(method: Method) -> Method:
    """Return a `lur.local_update` with gamma = 0 or K = 1, rewritten as one gradient."""
    client: Any = method.client_update
    return method._replace(cohort_update=SingleGradient(client))


def all_clients_gradient(
    inner_loop: InnerLoop,
    broadcast: Broadcast,
    source: Any,
    inputs: PyTree,
    weights: Float[Array, "M"],
    chunk_size: int | None,
    batches_of: BatchesOf,
) -> ClientResults:
    """Return the gradient of all clients' examples at the broadcast model, `chunk_size` clients in one batch.

    One client at a time means one mini-batch at a time, with one gradient in memory: layers that write their gradients
    out would otherwise make one for each mini-batch of a larger batch before they are summed.
    """
    x, M, K = broadcast.params, num_clients(inputs), len(inner_loop.theta)
    size = chunk_size or M
    loss_fn = jax.jit(inner_loop.loss_fn)  # traced once, for its shapes and for the loop
    inputs, weights = pad_clients(inputs, weights, size)
    chunks = jax.tree.map(lambda leaf: leaf.reshape(-1, size, *leaf.shape[1:]), (inputs, weights))
    thetas = jnp.asarray(inner_loop.theta, broadcast.client_lr.dtype)

    def first_steps(own: PyTree) -> Batches:
        batches = batches_of(source, own)
        if batches.is_step is not None and len(set(inner_loop.theta)) > 1:
            raise ValueError("theta must have equal weights where clients take different numbers of steps")
        return batches.between(0, K)

    def arrays_and_thetas(own: PyTree) -> tuple[PyTree, Array]:
        batches = first_steps(own)
        own_thetas = thetas if batches.is_step is None else thetas * batches.is_step.astype(thetas.dtype)
        return batches.padded_with_first().arrays(), own_thetas

    def weighted_loss(x: PyTree, batches: PyTree, own_thetas: Array, weights: Array) -> tuple[Array, Array]:
        losses = jax.vmap(jax.vmap(lambda batch: loss_fn(x, batch)))(batches)
        return weights @ (losses * own_thetas).sum(axis=1), losses[:, 0]

    def add_chunk(total: PyTree, chunk: Any) -> tuple[PyTree, Array]:
        members, share = chunk
        batches, own_thetas = jax.vmap(arrays_and_thetas)(members)
        (_, losses), gradient = jax.value_and_grad(weighted_loss, has_aux=True)(x, batches, own_thetas, share)
        return jax.tree.map(jnp.add, total, gradient), losses

    def add_client(total: PyTree, chunk: Any) -> tuple[PyTree, Array]:
        own, share = jax.tree.map(lambda leaf: leaf[0], chunk)

        def add_step(total: PyTree, batch: PyTree, theta_k: Array) -> tuple[PyTree, Array]:
            loss, gradient = jax.value_and_grad(loss_fn)(x, batch)
            return add_scaled(total, share * theta_k, gradient), loss

        total, losses = first_steps(own).scan(add_step, total, thetas)
        return total, losses[0]

    update, losses = jax.lax.scan(add_client if size == 1 else add_chunk, optax.tree.zeros_like(x), chunks)
    losses = losses.reshape(-1)[:M]
    return ClientResults(update, (), ClientMetrics(losses, jnp.full_like(losses, jnp.nan)))
