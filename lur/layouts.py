r"""The clients axis of a round: how M clients run and how their messages meet.

All layouts compute :math:`q = \sum_i w_i m_i` with the same clients and mini-batches; they differ in time and
memory, and in the last bits of the sum.

``vmap``
    all clients at once: M models in memory. Accelerators, small models.
``sequential``
    one client after the other with a running sum: one client's model in memory, whatever M.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

Layout = Literal["vmap", "sequential"]


def over_clients(
    run: Callable[[Any], tuple[PyTree, Float[Array, ""]]],
    inputs: PyTree,
    weights: Float[Array, "M"] | None,
    layout: Layout,
) -> tuple[PyTree, Float[Array, "M"], Float[Array, "M"]]:
    """The mean message of ``run(input) -> (message, loss)`` over the leading axis of `inputs`.

    Weights, if given, sum to 1. Returns the mean, the clients' losses and the norms of their messages.
    """
    if layout == "vmap":
        messages, losses = jax.vmap(run)(inputs)
        norms = jax.vmap(optax.tree.norm)(messages)
        return jax.tree.map(lambda m: weighted_mean(m, weights), messages), losses, norms
    if layout == "sequential":
        M = jax.tree.leaves(inputs)[0].shape[0]
        shapes, loss = jax.eval_shape(run, jax.tree.map(lambda leaf: leaf[0], inputs))
        w = jnp.full((M,), 1 / M, loss.dtype) if weights is None else weights

        def one(total, client):
            share, single = client
            message, loss = run(single)
            total = jax.tree.map(lambda t, m: t + share * m, total, message)
            return total, (loss, optax.tree.norm(message))

        total = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        q, (losses, norms) = jax.lax.scan(one, total, (w, inputs))
        return q, losses, norms
    raise ValueError(f"layout must be one of {', '.join(get_args(Layout))}, got {layout!r}")


def weighted_mean(values: Float[Array, "M ..."], weights: Float[Array, "M"] | None) -> Float[Array, "..."]:
    """The mean over the leading axis: uniform, as the paper's, or weighted."""
    return values.mean(axis=0) if weights is None else jnp.tensordot(weights, values, axes=1)
