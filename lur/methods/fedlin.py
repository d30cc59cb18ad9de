r"""FedLin: local gradients corrected by the mean gradient, and client rates that make unequal clients move equally far.

Mitra, Jaafar, Pappas and Hassani, *Linear Convergence in Federated Learning: Tackling Client Heterogeneity and Sparse
Gradients*, NeurIPS 2021, Algorithm 1 without sparsification. Clients first send their gradient at x, and the server
returns the mean. Client i then takes :math:`\tau_i` local steps,

.. math::
    \bar g = \sum_i p_i \nabla f_i(x), \qquad
    y_{k+1} = y_k - \frac{\gamma}{\tau_i} \bigl(\nabla f_i(y_k) - \nabla f_i(x) + \bar g\bigr), \qquad
    x \leftarrow x - \eta \sum_i p_i (x - y_i),

with p_i = 1/M and eta = 1 in the paper. With full batches a minimiser x* of the mean loss is a fixed point for any
gamma and any :math:`\tau_i`: there the mean gradient is zero, and no client moves. With mini-batches,
:math:`\nabla f_i(y_k)` and :math:`\nabla f_i(x)` in a local step are on the same one, and :math:`\bar g` has the mean
over those that the client has in the round.
"""

from typing import NamedTuple

import jax
import optax
from jaxtyping import PyTree

from lur import _checks
from lur.methods.decay import Plateau
from lur.methods.full_gradient import FullGradient
from lur.methods.local_steps import local_batches, steps_taken
from lur.methods.method import Batches, Broadcast, ClientOutput, Method
from lur.methods.optimizers import Optimizer, add_scaled, checked_optimizer
from lur.methods.server import InitServer, ServerUpdate


class FedLinClient(NamedTuple):
    """A client that sends x - y_i: ``(Broadcast, (), Batches) -> ClientOutput``.

    Attributes:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K, the largest number of local steps.
    """

    loss_fn: _checks.Loss
    local_steps: int

    def __call__(self, broadcast: Broadcast, client_state: PyTree, batches: Batches) -> ClientOutput:
        x, mean_gradient = broadcast.params, broadcast.prepared
        batches, gammas = local_batches(self.loss_fn, self.local_steps, broadcast, batches)
        tau = steps_taken(batches, gammas.dtype)

        def local_step(y, batch, gamma_k):
            loss, gradient = jax.value_and_grad(self.loss_fn)(y, batch)
            at_x = jax.grad(self.loss_fn)(x, batch)
            corrected = optax.tree.add(optax.tree.sub(gradient, at_x), mean_gradient)
            return add_scaled(y, -gamma_k / tau, corrected), loss

        y, losses = batches.scan(local_step, x, gammas)
        return ClientOutput(optax.tree.sub(x, y), client_state, losses[0])


def fedlin(
    loss_fn: _checks.Loss, local_steps: int, *, server: Optimizer = optax.sgd, decay: Plateau | None = None
) -> Method:
    """Return FedLin, with two exchanges per round. The client rate gamma is what a round moves in total.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K, the largest number of local steps of a client.
      server, decay: see `lur.local_update`. The paper's server is SGD with rate 1.
    """
    K = _checks.positive_integer("local_steps", local_steps)
    server = checked_optimizer("server", server)
    init, server_update = InitServer(server, decay, K), ServerUpdate(server, decay)
    return Method(init, FedLinClient(loss_fn, K), server_update, K, prepare=FullGradient(loss_fn, K))
