r"""FedDyn: each client's loss is regularised so that all clients agree at the minimiser of the mean loss.

Acar, Zhao, Navarro, Mattina, Whatmough and Saligrama, *Federated Learning Based on Dynamic Regularization*, 2021,
Algorithm 1. The server keeps h, client i of the N keeps the linear correction g_i, all 0 at first, and a round of M
clients is::

    each client i of the round, with the server's x:
        y_i = argmin_y  f_i(y) - <g_i, y> + alpha/2 ||y - x||^2
        g_i = g_i - alpha (y_i - x)
    the server:
        h = h - alpha/N sum(y_i - x)            over the M clients
        x = mean(y_i) - h / alpha

By the optimality condition of y_i the new g_i is the client's gradient at y_i. h is the mean of all g_i.
The argmin is inexact here, as in the paper's experiments: from y = x, K_i steps on the regularised loss, with the
gradient g of one mini-batch in each,

.. math:: y \leftarrow y - \gamma_k (g - g_i + \alpha (y - x)),

or those of another client optimiser. The minimiser of the mean loss is a fixed point for every number of steps: there
:math:`g_i = \nabla f_i(x)` and no step moves.

The client sends x - y_i, and the server takes q = mean(x - y_i) + h / alpha for the gradient of its optimiser. The
published step is that of SGD with eta = 1. With weights x and h take the weighted means in place of the uniform ones.
"""

from typing import NamedTuple

import jax
import optax
from jaxtyping import PyTree

from lur import _checks
from lur.methods.decay import Plateau
from lur.methods.local_steps import local_batches
from lur.methods.method import Batches, Broadcast, ClientOutput, Cohort, Method, RoundInfo, ServerState, tree_norm
from lur.methods.optimizers import Optimizer, add_scaled, checked_optimizer, optimizer_init, optimizer_step
from lur.methods.server import InitServer, ServerUpdate


class FedDynClient(NamedTuple):
    """A client with the linear correction g_i: ``(Broadcast, g_i, Batches) -> ClientOutput``.

    Attributes:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K.
      alpha: the strength of the regularisation.
      optimizer: the client optimiser.
    """

    loss_fn: _checks.Loss
    local_steps: int
    alpha: float
    optimizer: Optimizer

    def __call__(self, broadcast: Broadcast, client_state: PyTree, batches: Batches) -> ClientOutput:
        x, g_i = broadcast.params, client_state
        batches, gammas = local_batches(self.loss_fn, self.local_steps, broadcast, batches)

        def local_step(carry, batch, gamma_k):
            y, opt_state = carry
            loss, gradient = jax.value_and_grad(self.loss_fn)(y, batch)
            gradient = add_scaled(optax.tree.sub(gradient, g_i), self.alpha, optax.tree.sub(y, x))
            return optimizer_step(self.optimizer, gamma_k, gradient, opt_state, y), loss

        start = (x, optimizer_init(self.optimizer, gammas[0], x))
        (y, _), losses = batches.scan(local_step, start, gammas)
        delta = optax.tree.sub(x, y)
        return ClientOutput(delta, add_scaled(g_i, self.alpha, delta), losses[0])


class FedDynServer(NamedTuple):
    """The server's step along mean(x - y_i) + h / alpha.

    Attributes:
      server_update: the step of the server optimiser.
      alpha: the strength of the regularisation.
    """

    server_update: ServerUpdate
    alpha: float

    def __call__(self, state: ServerState, update: PyTree, cohort: Cohort) -> tuple[ServerState, RoundInfo]:
        assert cohort.population is not None  # the clients keep a state
        h = add_scaled(state.method_state, self.alpha * cohort.size / cohort.population, update)
        state, info = self.server_update(state, add_scaled(update, 1 / self.alpha, h), cohort)
        norm = tree_norm(update, state.server_lr.dtype)  # of what the clients send, as that of each client
        return state._replace(method_state=h), info._replace(update_norm=norm)


def feddyn(
    loss_fn: _checks.Loss,
    local_steps: int,
    alpha: float,
    *,
    server: Optimizer = optax.sgd,
    client: Optimizer = optax.sgd,
    decay: Plateau | None = None,
) -> Method:
    """Return FedDyn.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K, the number of steps on the regularised loss. With epochs over unequal data client i takes its own
        K_i.
      alpha: the strength of the regularisation, > 0.
      server: the server optimiser, see `lur.local_update`. The published step is SGD with eta = 1.
      client: the optimiser of the regularised loss, likewise; a new one in every round.
      decay: see `lur.local_update`.
    """
    K, alpha = _checks.positive_integer("local_steps", local_steps), _checks.positive_number("alpha", alpha)
    server, client = checked_optimizer("server", server), checked_optimizer("client", client)
    return Method(
        InitServer(server, decay, K, method_state=optax.tree.zeros_like),
        FedDynClient(loss_fn, K, alpha, client),
        FedDynServer(ServerUpdate(server, decay), alpha),
        K,
        init_client=optax.tree.zeros_like,
    )
