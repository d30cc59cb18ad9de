r"""SCAFFOLD: control variates keep the clients' local steps from drifting apart.

Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, *SCAFFOLD: Stochastic Controlled Averaging for Federated Learning*,
2020, Algorithm 1. The server keeps c, client i of the N keeps c_i, all 0 at first, and a round of M clients is::

    each client i of the round, with the server's x and c:
        y = x
        K_i times:  y = y - gamma (g_i(y) - c_i + c)
        option I:   c_i+ = g_i(x)
        option II:  c_i+ = c_i - c + (x - y) / (K_i gamma)
        sends (x - y, c_i+ - c_i), and keeps c_i+
    the server:
        x = x - eta mean(x - y)
        c = c + M/N mean(c_i+ - c_i)

where g_i is the gradient of the step's mini-batch or, in option I, of all of the client's mini-batches of the round.
As :math:`x - y = \sum_k \gamma_k (g_k - c_i + c)`, option II is the mean of the gradients that the client has computed,

.. math:: c_i^+ = c_i - c + \frac{x - y}{\sum_k \gamma_k} = \frac{\sum_k \gamma_k g_k}{\sum_k \gamma_k},

with one rate per local step as well. This is how it is computed here: unlike the difference x - y, the mean loses no
digits where gamma is small. Where gamma = 0 (`init` refuses it, but a rate may decay to it), it is the mean of the
gradients at x, the limit of option II.

With the uniform mean over clients c stays the mean of all c_i, and the minimiser of the mean loss is the fixed point.
With weights c is the weighted mean of all c_i under full participation only.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from lur import _checks
from lur.methods.decay import Plateau
from lur.methods.local_steps import full_gradient, local_batches
from lur.methods.method import (
    Batches,
    Broadcast,
    ClientOutput,
    Cohort,
    Method,
    RoundInfo,
    ServerState,
    broadcast_method_state,
    tree_norm,
)
from lur.methods.optimizers import Optimizer, add_scaled, checked_optimizer
from lur.methods.server import InitServer, ServerUpdate

Option = Literal["I", "II"]


class ScaffoldClient(NamedTuple):
    """A client with the control variate c_i: ``(Broadcast, c_i, Batches) -> ClientOutput``.

    Attributes:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K.
      option: how c_i is renewed.
    """

    loss_fn: _checks.Loss
    local_steps: int
    option: Option

    def __call__(self, broadcast: Broadcast, client_state: PyTree, batches: Batches) -> ClientOutput:
        x, c, c_i = broadcast.params, broadcast.extra, client_state
        batches, gammas = local_batches(self.loss_fn, self.local_steps, broadcast, batches)
        correction, loss_fn = optax.tree.sub(c, c_i), jax.jit(self.loss_fn)  # traced once

        def local_step(carry, batch, gamma_k, share_k):
            y, mean_gradient = carry
            loss, gradient = jax.value_and_grad(loss_fn)(y, batch)
            y = add_scaled(y, -gamma_k, optax.tree.add(gradient, correction))
            return (y, add_scaled(mean_gradient, share_k, gradient)), loss

        shares = shares_of_steps(gammas, batches)
        (y, new_c_i), losses = batches.scan(local_step, (x, optax.tree.zeros_like(x)), gammas, shares)
        if self.option == "I":
            new_c_i = full_gradient(loss_fn, x, batches)
        update = (optax.tree.sub(x, y), optax.tree.sub(new_c_i, c_i))
        return ClientOutput(update, new_c_i, losses[0])


def shares_of_steps(gammas: Float[Array, "K"], batches: Batches) -> Float[Array, "K"]:
    """Return gamma_k over the sum of the gammas of the steps that this client takes; equal shares where all are 0."""
    is_step = jnp.ones_like(gammas) if batches.is_step is None else batches.is_step.astype(gammas.dtype)
    shares = jnp.where((gammas * is_step).any(), gammas * is_step, is_step)
    return shares / shares.sum()


class ScaffoldServer(NamedTuple):
    """The server's step, and that of its control variate c.

    Attributes:
      server_update: the step along the mean of x - y.
    """

    server_update: ServerUpdate

    def __call__(self, state: ServerState, update: PyTree, cohort: Cohort) -> tuple[ServerState, RoundInfo]:
        mean_delta, mean_change = update
        assert cohort.population is not None  # the clients keep a state
        c = add_scaled(state.method_state, cohort.size / cohort.population, mean_change)
        state, info = self.server_update(state, mean_delta, cohort)
        norm = tree_norm(update, state.server_lr.dtype)  # of what the clients send, as that of each client
        return state._replace(method_state=c), info._replace(update_norm=norm)


def scaffold(
    loss_fn: _checks.Loss,
    local_steps: int,
    option: Option = "II",
    *,
    server: Optimizer = optax.sgd,
    decay: Plateau | None = None,
) -> Method:
    """Return SCAFFOLD.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K, the number of local steps. With epochs over unequal data client i takes its own K_i.
      option: ``I`` renews c_i by the gradient at x, of all mini-batches of the round (K further gradients); ``II`` by
        the mean of the gradients that the client has computed.
      server: the server optimiser of x, see `lur.local_update`. The paper's is SGD; eta is its eta_g.
      decay: see `lur.local_update`.
    """
    K, server = _checks.positive_integer("local_steps", local_steps), checked_optimizer("server", server)
    if option not in ("I", "II"):
        raise ValueError(f"option must be 'I' or 'II', got {option!r}")
    return Method(
        InitServer(server, decay, K, method_state=optax.tree.zeros_like, divides_by_client_lr=option == "II"),
        ScaffoldClient(loss_fn, K, option),
        ScaffoldServer(ServerUpdate(server, decay)),
        K,
        init_client=optax.tree.zeros_like,
        broadcast=broadcast_method_state,
    )
