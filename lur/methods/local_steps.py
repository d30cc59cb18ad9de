"""What the clients of several methods share: the round's mini-batches and rates, checked, and their mean gradient."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from lur import _checks
from lur.methods.method import Batches, Broadcast


def local_batches(
    loss_fn: _checks.Loss, local_steps: int, broadcast: Broadcast, batches: Batches
) -> tuple[Batches, Float[Array, "K"]]:
    """Return the first K mini-batches and the rate gamma_k of each step, all checked.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K.
      broadcast: what the client received.
      batches: the client's mini-batches, at least K.
    """
    supplied = jax.tree.leaves(batches.steps)[0].shape[0]
    if supplied < local_steps:
        raise ValueError(f"local_steps = {local_steps} needs as many mini-batches, got batches with {supplied}")
    batches = batches.between(0, local_steps)
    batch = jax.eval_shape(batches.first)
    _checks.batch_dtypes(batch, broadcast.params)
    _checks.scalar_loss(loss_fn, broadcast.params, batch)
    return batches, jnp.broadcast_to(broadcast.client_lr, (local_steps,))


def steps_taken(batches: Batches, dtype: Any) -> Float[Array, ""]:
    """Return K_i, the number of steps that this client takes: those that are no padding."""
    if batches.is_step is None:
        return jnp.asarray(jax.tree.leaves(batches.steps)[0].shape[0], dtype)
    return batches.is_step.sum().astype(dtype)


def full_gradient(loss_fn: _checks.Loss, params: PyTree, batches: Batches) -> PyTree:
    """Return the client's full-batch gradient: the mean of its gradients over its mini-batches of the round.

    It is the gradient of the client's own loss where the mini-batches are one pass over its data, in equal parts.
    """

    def add_gradient(total: PyTree, batch: PyTree) -> tuple[PyTree, None]:
        return optax.tree.add(total, jax.grad(loss_fn)(params, batch)), None

    total, _ = batches.scan(add_gradient, optax.tree.zeros_like(params))
    return jax.tree.map(lambda leaf: leaf / steps_taken(batches, leaf.dtype), total)
