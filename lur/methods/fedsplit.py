r"""FedSplit: operator splitting whose fixed points are minimisers, unlike those of FedAvg and FedProx.

Pathak and Wainwright, *FedSplit: An Algorithmic Framework for Fast Federated Optimization*, 2020, Algorithm 1. Client i
keeps z_i, at first the initial model x. In each round all clients do ::

    u_i = argmin_u  f_i(u) + 1/(2s) ||u - (2x - z_i)||^2        (the proximal operator of s f_i at 2x - z_i)
    z_i = z_i + 2 (u_i - x)
    x = mean of all z_i

The argmin is inexact here: from u = x, K_i steps on that objective, with the gradient g of one mini-batch in each,

.. math:: u \leftarrow u - \gamma_k \big( g + \tfrac1s (u - 2x + z_i) \big),

which needs :math:`\gamma < 2 / (L + 1/s)`. The minimiser of the mean loss is a fixed point for every number of steps:
there :math:`z_i = x - s \nabla f_i(x)` and no step moves.

The client sends x - z_i; the published step of the server is that of SGD with eta = 1. All clients take part in every
round. With weights, the mean and the minimised loss are the weighted ones.
"""

from typing import NamedTuple

import jax
import optax
from jaxtyping import PyTree

from lur import _checks
from lur.methods.decay import Plateau
from lur.methods.local_steps import local_batches
from lur.methods.method import Batches, Broadcast, ClientOutput, Method
from lur.methods.optimizers import Optimizer, add_scaled, checked_optimizer, optimizer_init, optimizer_step
from lur.methods.server import InitServer, ServerUpdate


class FedSplitClient(NamedTuple):
    """A client with the model z_i: ``(Broadcast, z_i, Batches) -> ClientOutput``.

    Attributes:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K.
      prox_step: s.
      optimizer: the client optimiser.
    """

    loss_fn: _checks.Loss
    local_steps: int
    prox_step: float
    optimizer: Optimizer

    def __call__(self, broadcast: Broadcast, client_state: PyTree, batches: Batches) -> ClientOutput:
        x, z_i = broadcast.params, client_state
        batches, gammas = local_batches(self.loss_fn, self.local_steps, broadcast, batches)
        center = optax.tree.add(x, optax.tree.sub(x, z_i))

        def local_step(carry, batch, gamma_k):
            u, opt_state = carry
            loss, gradient = jax.value_and_grad(self.loss_fn)(u, batch)
            gradient = add_scaled(gradient, 1 / self.prox_step, optax.tree.sub(u, center))
            return optimizer_step(self.optimizer, gamma_k, gradient, opt_state, u), loss

        start = (x, optimizer_init(self.optimizer, gammas[0], x))
        (u, _), losses = batches.scan(local_step, start, gammas)
        z_i = add_scaled(z_i, 2.0, optax.tree.sub(u, x))
        return ClientOutput(optax.tree.sub(x, z_i), z_i, losses[0])


def initial_model(params: PyTree) -> PyTree:
    """Return the state z_i of a client before its first round: the initial model."""
    return params


def fedsplit(
    loss_fn: _checks.Loss,
    local_steps: int,
    prox_step: float,
    *,
    server: Optimizer = optax.sgd,
    client: Optimizer = optax.sgd,
    decay: Plateau | None = None,
) -> Method:
    """Return FedSplit with an inexact proximal operator.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K, the number of steps on the proximal objective. With epochs over unequal data client i takes its
        own K_i.
      prox_step: s > 0, the step of the proximal operator; the pull towards 2x - z_i has the strength 1/s.
      server: the server optimiser, see `lur.local_update`. The published step is SGD with eta = 1.
      client: the optimiser of the proximal objective, likewise; a new one in every round.
      decay: see `lur.local_update`.
    """
    K, s = _checks.positive_integer("local_steps", local_steps), _checks.positive_number("prox_step", prox_step)
    server, client = checked_optimizer("server", server), checked_optimizer("client", client)
    return Method(
        InitServer(server, decay, K),
        FedSplitClient(loss_fn, K, s, client),
        ServerUpdate(server, decay),
        K,
        init_client=initial_model,
        full_participation=True,
    )
