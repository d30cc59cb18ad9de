r"""InnerLoop: what one client does in a round (Algorithms 2 and 4).

From the broadcast model x the client takes K(Theta) local steps, with the gradient of a mini-batch S_k in each:

.. math::
    x_1 = x, \qquad
    g_k = \tfrac1B \sum_{z \in S_k} \nabla f(x_k; z), \qquad
    x_{k+1} = x_k - \gamma g_k, \qquad
    \text{return } \sum_{k=1}^{K(\Theta)} \theta_k g_k

and its loss before training (Algorithm 4). The local step may be any optax optimiser, gamma may vary with k, and a
proximal term :math:`\tfrac\rho2 \|y - x\|^2` may pull the local model y towards x (FedProx; T. Li et al., 2020).
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from lur import _checks
from lur.methods.local_steps import local_batches
from lur.methods.method import Batches, Broadcast, ClientOutput
from lur.methods.optimizers import Optimizer, add_scaled, checked_optimizer, optimizer_init, optimizer_step
from lur.theta import Theta, nonzero

Send = Literal["gradients", "loss_gradients", "delta"]


class InnerLoop(NamedTuple):
    """InnerLoop(i, x, gamma, Theta), what one client does in a round: ``(Broadcast, (), Batches) -> ClientOutput``.

    Attributes:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      theta: the weights Theta.
      optimizer: the client optimiser.
      send: what the update is, see `lur.local_update`.
      prox: rho, the strength of the pull towards the broadcast model.
      loss_on: where the loss before training is estimated, see `lur.local_update`.
    """

    loss_fn: _checks.Loss
    theta: Theta
    optimizer: Optimizer = optax.sgd
    send: Send = "gradients"
    prox: float = 0.0
    loss_on: Literal["first", "all"] = "first"

    def __call__(self, broadcast: Broadcast, client_state: PyTree, batches: Batches) -> ClientOutput:
        x, rho = broadcast.params, _checks.rate("prox", self.prox, broadcast.client_lr.dtype)
        batches, gammas, thetas = local_schedule(self, broadcast, batches)
        loss_fn = jax.jit(self.loss_fn)  # traced once

        def local_step(carry, batch, gamma_k, theta_k):
            y, opt_state, update = carry  # y is x_k
            loss, loss_gradient = jax.value_and_grad(loss_fn)(y, batch)
            gradient = add_scaled(loss_gradient, rho, optax.tree.sub(y, x)) if self.has_prox else loss_gradient
            if self.send != "delta":
                update = add_scaled(update, theta_k, gradient if self.send == "gradients" else loss_gradient)
            y, opt_state = optimizer_step(self.optimizer, gamma_k, gradient, opt_state, y)
            return (y, opt_state, update), loss

        start = (x, optimizer_init(self.optimizer, gammas[0], x), optax.tree.zeros_like(x))
        (y, _, update), losses = batches.scan(local_step, start, gammas, thetas)
        update = optax.tree.sub(x, y) if self.send == "delta" else update
        loss = losses[0] if self.loss_on == "first" else batches.mean(lambda batch: loss_fn(x, batch))
        return ClientOutput(update, client_state, loss)

    @property
    def has_prox(self) -> bool:
        """Whether the proximal term is part of the program."""
        return not (_checks.is_concrete(self.prox) and self.prox == 0)


def local_schedule(inner_loop: InnerLoop, broadcast: Broadcast, batches: Batches) -> tuple[Batches, Array, Array]:
    """Return the first K(Theta) mini-batches and the rate gamma_k and weight theta_k of each step, all checked."""
    K, dtype = len(inner_loop.theta), broadcast.client_lr.dtype
    supplied = jax.tree.leaves(batches.steps)[0].shape[0]
    if supplied < K:
        raise ValueError(f"theta needs K(theta) = {K} mini-batches, got batches with {supplied}")
    if batches.is_step is not None and len(set(inner_loop.theta)) > 1:
        raise ValueError("theta must have equal weights where clients take different numbers of steps")
    batches, gammas = local_batches(inner_loop.loss_fn, K, broadcast, batches)
    return batches, gammas, _checks.rate("theta", inner_loop.theta, dtype, steps=K)


def make_inner_loop(
    loss_fn: _checks.Loss, theta: Sequence[float], client: Optimizer, send: Send | None, prox: float, loss_on: Any
) -> InnerLoop:
    """Return the InnerLoop with these settings, checked; the arguments are those of `lur.local_update`."""
    theta = nonzero(theta)
    if send is None:
        send = "gradients" if client is optax.sgd else "delta"
    if send not in get_args(Send):
        raise ValueError(f"send must be one of {', '.join(get_args(Send))}, got {send!r}")
    if send == "delta" and set(theta) != {1.0}:
        raise ValueError(
            f"theta must be Theta_{{1:K}} with send='delta', which has no weights, got {theta}; "
            f"use send='gradients' to send the weighted sum of gradients"
        )
    if loss_on not in ("first", "all"):
        raise ValueError(f"loss_on must be 'first' or 'all', got {loss_on!r}")
    _checks.rate("prox", prox, jnp.float32)
    prox = float(prox) if _checks.is_concrete(prox) else prox  # hashable
    return InnerLoop(loss_fn, theta, checked_optimizer("client", client), send, prox, loss_on)


def inner_loop(
    loss_fn: _checks.Loss,
    params: PyTree[Float[Array, "..."]],
    batches: PyTree,
    gamma: Float[Array, ""] | Float[Array, "K"] | float,
    theta: Sequence[float],
    *,
    client: Optimizer = optax.sgd,
    send: Send | None = None,
    prox: float = 0.0,
    loss_on: Literal["first", "all"] = "first",
) -> tuple[PyTree, Float[Array, ""]]:
    """Run InnerLoop(i, x, gamma, Theta) for one client. Returns its update and its loss before training.

    Args:
      loss_fn, theta, client, send, prox, loss_on: see `lur.local_update`.
      params: the broadcast model x.
      batches: pytree with leading axes (K, B), of which the first K(Theta) mini-batches are used.
      gamma: the client learning rate, one number or one per step.
    """
    client_update = make_inner_loop(loss_fn, theta, client, send, prox, loss_on)
    _checks.leading_axes(batches, ("K", "B"), (0, 1))
    params, batches = jax.tree.map(jnp.asarray, (params, batches))
    gamma = _checks.param_rate("gamma", gamma, params, steps=len(client_update.theta))
    output = client_update(Broadcast(params, gamma), (), Batches(batches))
    return output.update, output.loss
