r"""LocalUpdate: FedAvg, FOMAML, Reptile, Lookahead, local SGD and mini-batch SGD (Algorithm 1).

Charles and Konečný, *On the Outsized Importance of Learning Rates in Local Update Methods*, 2020. In each round

.. math::
    q_t = \tfrac1M \sum_{i \in I_t} \mathrm{InnerLoop}(i, x_t, \gamma_t, \Theta), \qquad
    x_{t+1} = x_t - \eta_t q_t,

where the server's step may be that of any optax optimiser. The method is in the weights Theta (`lur.theta`). The round
is `lur.methods.method.method_round`, a client is `lur.methods.inner_loop.InnerLoop` (Algorithms 2 and 4), the server is
`lur.methods.server.ServerUpdate`, which also decays the rates (Algorithm 3).
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import optax
from jaxtyping import Array, Float, PyTree

from lur import _checks
from lur.methods.decay import Plateau
from lur.methods.inner_loop import Send, make_inner_loop
from lur.methods.method import Batches, Broadcast, ClientOutput, Method
from lur.methods.optimizers import Optimizer, checked_optimizer
from lur.methods.server import InitServer, ServerUpdate

ClientFn = Callable[[PyTree, PyTree, Any], tuple[PyTree, Float[Array, ""]]]
"""``client(params, batches, gamma) -> (update, loss before training)``, batches having leading axes (K, B)."""


def local_update(
    loss_fn: _checks.Loss,
    theta: Sequence[float],
    server: Optimizer = optax.sgd,
    *,
    client: Optimizer = optax.sgd,
    send: Send | None = None,
    prox: float = 0.0,
    loss_on: Literal["first", "all"] = "first",
    decay: Plateau | None = None,
) -> Method:
    """Return LocalUpdate with the weights Theta.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      theta: the weights Theta, e.g. ``lur.theta.fedavg(10)`` or a plain list.
      server: the server optimiser: a factory of its learning rate (``optax.sgd``, ``optax.adam``,
        ``lur.optimizers.yogi``), or a transform built with learning rate 1, whose update eta then scales.
      client: the client optimiser, likewise, with new state in every round. The experiments on Reptile have
        ``functools.partial(optax.adam, b1=0.0)``, see `lur.methods.reptile`.
      send: ``gradients`` sends the sum of theta_k g_k, the paper's update; ``delta`` sends x - x_{K+1}, which with SGD
        and Theta_{1:K} is gamma times that; ``loss_gradients`` leaves the proximal term out of the sum. By default
        ``gradients`` for plain SGD and ``delta`` for every other client optimiser.
      prox: rho >= 0, the strength of the pull towards the broadcast model (FedProx).
      loss_on: whether the loss before training is estimated on the ``first`` mini-batch, or on ``all`` of them.
      decay: ``lur.decay.plateau(...)`` for LocalUpdateDecay; None keeps the rates.
    """
    client_update = make_inner_loop(loss_fn, theta, client, send, prox, loss_on)
    server = checked_optimizer("server", server)
    K = len(client_update.theta)
    return Method(InitServer(server, decay, K), client_update, ServerUpdate(server, decay), K)


class ClientUpdate(NamedTuple):
    """A client function as a `Method.client_update`.

    Attributes:
      client: ``client(params, batches, gamma) -> (update, loss before training)``.
    """

    client: ClientFn

    def __call__(self, broadcast: Broadcast, client_state: PyTree, batches: Batches) -> ClientOutput:
        if batches.is_step is not None:
            raise ValueError(
                "clients must take equal numbers of steps with lur.from_client, got clients with numbers of their own; "
                "write a lur.Method, whose client_update can tell padding from steps by Batches.is_step"
            )
        update, loss = self.client(broadcast.params, batches.arrays(), broadcast.client_lr)
        return ClientOutput(update, client_state, loss)


def from_client(
    client: ClientFn, server: Optimizer = optax.sgd, *, local_steps: int, decay: Plateau | None = None
) -> Method:
    """Return Algorithm 1 around any client that keeps no state.

    Args:
      client: ``client(params, batches, gamma) -> (update, loss before training)``; `theory.surrogate_of` takes the
        same function.
      server: the server optimiser, see `local_update`.
      local_steps: K, the number of mini-batches that a client is given.
      decay: the decay rule, see `local_update`.
    """
    K = _checks.positive_integer("local_steps", local_steps)
    return Method(InitServer(server, decay, K), ClientUpdate(client), ServerUpdate(server, decay), K)
