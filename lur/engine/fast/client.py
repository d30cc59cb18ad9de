r"""Rewrites of InnerLoop for SGD clients that skip work the update does not need.

=====================  ==============================================================================================
constant weights       With one gamma and one theta for all steps, :math:`x_k = x - (\gamma/\theta) \, u_{k-1}` with
                       the sum :math:`u_{k-1} = \theta \sum_{j<k} g_j` so far: the loop carries one model, not two.
leading zeros          While theta_k is 0, as in Theta_K before its last step, there is nothing to sum.
first loss             A small model's loss takes a good part of a step, and only the first one is reported: the first
                       step is taken apart, and the others compute gradients only.
=====================  ==============================================================================================

The numbers are those of `lur.methods.inner_loop.InnerLoop` up to rounding.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from lur.methods.inner_loop import InnerLoop, local_schedule
from lur.methods.method import Batches, Broadcast, ClientOutput
from lur.methods.optimizers import add_scaled
from lur.parallel.layouts import SMALL_MODEL


class FastInnerLoop(NamedTuple):
    """InnerLoop with SGD, no proximal term and the loss of the first mini-batch, rewritten.

    Attributes:
      inner_loop: the reference.
    """

    inner_loop: InnerLoop

    def __call__(self, broadcast: Broadcast, client_state: PyTree, batches: Batches) -> ClientOutput:
        theta, x = self.inner_loop.theta, broadcast.params
        batches, gammas, thetas = local_schedule(self.inner_loop, broadcast, batches)
        loss_and_gradient = jax.value_and_grad(jax.jit(self.inner_loop.loss_fn))

        def step_of_constant_weights(update, batch, gamma_k, theta_k):
            y = add_scaled(x, -gamma_k / theta_k, update)
            loss, gradient = loss_and_gradient(y, batch)
            return add_scaled(update, theta_k, gradient), loss

        def step_of_zero_weight(y, batch, gamma_k, theta_k):
            loss, gradient = loss_and_gradient(y, batch)
            return add_scaled(y, -gamma_k, gradient), loss

        def step(carry, batch, gamma_k, theta_k):
            y, update = carry
            loss, gradient = loss_and_gradient(y, batch)
            return (add_scaled(y, -gamma_k, gradient), add_scaled(update, theta_k, gradient)), loss

        is_constant = broadcast.client_lr.ndim == 0 and len(set(theta)) == 1
        zeros = next(k for k, weight in enumerate(theta) if weight)  # number of leading zeros
        is_small = sum(leaf.size for leaf in jax.tree.leaves(x)) < SMALL_MODEL
        nothing = optax.tree.zeros_like(x)
        carry: Any = nothing if is_constant else x
        loss = jnp.zeros((), broadcast.client_lr.dtype)
        for first, end in pairwise(sorted({0, int(is_small), zeros, len(theta)})):
            part = batches.between(first, end)
            if is_constant:
                local_step = step_of_constant_weights
            elif first < zeros:
                local_step = step_of_zero_weight
            else:
                local_step = step
                carry = (carry, nothing) if first == zeros else carry
            carry, losses = part.scan(local_step, carry, gammas[first:end], thetas[first:end])
            loss = losses[0] if first == 0 else loss
        return ClientOutput(carry if is_constant else carry[1], client_state, loss)
