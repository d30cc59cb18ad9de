r"""Rounds that need no model per client: gamma = 0, and Theta_1 whatever gamma.

No client leaves the broadcast model before its last gradient counts, so

.. math:: q_t = \sum_i w_i \sum_k \theta_k g_{ik}(x_t) = \nabla_x \sum_i w_i \sum_k \theta_k f(x_t; S_{ik}):

one gradient of all the round's examples (the paper's special cases of Q_i, which is then a I). The numbers are
`lur.local_update`'s up to the order of the sum; as no client's own message is formed, ``client_norms`` are nan.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

from lur import _checks as checks
from lur.methods.client import Optimizer
from lur.methods.server import GIVEN, At, Fetch, LocalUpdate, State, Told, from_messages
from lur.parallel.layouts import Layout, Sum, filled_up, leading, on_devices
from lur.theta import nonzero


def large_batch_update(loss_fn: checks.Loss, theta: Sequence[float], server: Optimizer = optax.sgd) -> LocalUpdate:
    """`lur.local_update` for gamma = 0, or for Theta_1, where gamma does not matter.

    A layout says how many clients' examples make one batch; their gradients are summed.
    """
    theta = nonzero(theta)
    K = len(theta)

    def messages(at: At, inputs: PyTree, weights: Any, layout: Layout, fetch: Fetch) -> Sum:
        M = leading(inputs)
        weights = jnp.full((M,), 1 / M, at.client_lr.dtype) if weights is None else weights

        def run(at: At, inputs: PyTree, weights: Array) -> Sum:
            return gradient(loss_fn, theta, at, inputs, weights, layout.at_once, fetch)

        return on_devices(run, at, inputs, weights, layout)

    update = from_messages(messages, server, steps=K)

    def init(params: PyTree, client_lr: Any, server_lr: Any) -> State:
        if K > 1 and checks.is_concrete(client_lr) and client_lr != 0:
            raise ValueError(f"client_lr must be 0 unless theta is Theta_1, got {client_lr} and K(theta) = {K}")
        return update.init(params, client_lr, server_lr)

    return update._replace(init=init)


def gradient(
    loss_fn: checks.Loss,
    theta: Sequence[float],
    at: At,
    inputs: PyTree,
    weights: Array,
    at_once: int | None,
    fetch: Fetch,
) -> Sum:
    """The gradient of all clients' examples at the broadcast model, `at_once` clients in one batch.

    One client at a time is one mini-batch at a time, with one gradient in memory: layers whose gradients are written
    out would make one for each mini-batch of a larger batch before they are summed.
    """
    M, K = leading(inputs), len(theta)
    loss_fn = jax.jit(loss_fn)  # traced once, for its shapes and for the loop
    inputs, weights = filled_up(inputs, weights, at_once or M)
    groups = jax.tree.map(lambda leaf: leaf.reshape(-1, at_once or M, *leaf.shape[1:]), (inputs, weights))
    thetas = jnp.asarray(theta, checks.floating_dtype(at.params))

    def mean(params: PyTree, batches: PyTree, weights: Array) -> tuple[Array, Array]:
        losses = jax.vmap(jax.vmap(partial(loss_fn, params)))(batches)
        return weights @ (losses @ thetas), losses[:, 0]

    def add(total: PyTree, group: Any) -> tuple[PyTree, Array]:
        members, share = group
        batches = members if fetch is GIVEN else jax.vmap(partial(fetch.batches, at.shared))(members)
        batches = jax.tree.map(lambda leaf: leaf[:, :K], batches)
        (_, losses), g = jax.value_and_grad(mean, has_aux=True)(at.params, batches, share)
        return jax.tree.map(jnp.add, total, g), losses

    def add_steps(total: PyTree, group: Any) -> tuple[PyTree, Array]:
        own, share = jax.tree.map(lambda leaf: leaf[0], group)
        steps = jax.tree.map(lambda leaf: leaf[:K], fetch.own(at.shared, own))

        def add_step(total: PyTree, inputs: Any) -> tuple[PyTree, Array]:
            step, theta_k = inputs
            loss, g = jax.value_and_grad(loss_fn)(at.params, fetch.see(at.shared, step))
            return jax.tree.map(lambda total, g: total + share * theta_k * g, total, g), loss

        total, losses = jax.lax.scan(add_step, total, (steps, thetas))
        return total, losses[0]

    q, losses = jax.lax.scan(add_steps if at_once == 1 else add, jax.tree.map(jnp.zeros_like, at.params), groups)
    losses = losses.reshape(-1)[:M]
    return q, Told(losses, jnp.full_like(losses, jnp.nan))
