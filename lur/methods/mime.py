r"""Mime and MimeLite: clients that take the steps of a centralised optimiser, whose state they do not change.

Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich and Suresh, *Mime: Mimicking Centralized Stochastic Algorithms in
Federated Learning*, 2020, Algorithm 1. The base optimiser has a step U and a state s that V updates. The server sends x
and s, and for Mime the mean full-batch gradient c. In every local step

.. math::
    g_k = \nabla f_i(y_k; S_k) - \nabla f_i(x; S_k) + c \quad\text{(Mime)}, \qquad
    g_k = \nabla f_i(y_k; S_k) \quad\text{(MimeLite)}, \qquad
    y_{k+1} = y_k - \gamma\, U(g_k, s),

where s is that of the server throughout. Then, with the same c for both,

.. math::
    c = \tfrac1M \sum_{i \in I} \nabla f_i(x), \qquad
    s \leftarrow V(c, s), \qquad
    x \leftarrow x - \eta\, \tfrac1M \sum_{i \in I} (x - y_i);

the paper has eta = 1. The full-batch gradient :math:`\nabla f_i(x)` is the mean over all mini-batches that the client
has in the round: K drawn ones, or those of its epochs.

U is the step that an optax optimiser takes from the state s, and V the state that it leaves. Adam's step has g_k in
both moments then, as in other implementations; in the paper it is in the first moment only.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from lur import _checks
from lur.methods.decay import Plateau
from lur.methods.full_gradient import FullGradient
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
)
from lur.methods.optimizers import InitOptimizer, Optimizer, checked_optimizer, optimizer_step
from lur.methods.server import InitServer, ServerUpdate


class MimeClient(NamedTuple):
    """A client that sends x - y_i and a full-batch gradient: ``(Broadcast, (), Batches) -> ClientOutput``.

    Attributes:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K.
      optimizer: the base optimiser.
      corrected: whether local gradients are corrected by the mean full-batch gradient c: Mime, and not MimeLite.
    """

    loss_fn: _checks.Loss
    local_steps: int
    optimizer: Optimizer
    corrected: bool

    def __call__(self, broadcast: Broadcast, client_state: PyTree, batches: Batches) -> ClientOutput:
        x, s, c = broadcast.params, broadcast.extra, broadcast.prepared
        batches, gammas = local_batches(self.loss_fn, self.local_steps, broadcast, batches)

        def local_step(y, batch, gamma_k):
            loss, gradient = jax.value_and_grad(self.loss_fn)(y, batch)
            if self.corrected:
                at_x = jax.grad(self.loss_fn)(x, batch)
                gradient = optax.tree.add(optax.tree.sub(gradient, at_x), c)
            y, _ = optimizer_step(self.optimizer, gamma_k, gradient, s, y)  # s stays that of the server
            return y, loss

        y, losses = batches.scan(local_step, x, gammas)
        gradient = c if self.corrected else full_gradient(self.loss_fn, x, batches)
        return ClientOutput((optax.tree.sub(x, y), gradient), client_state, losses[0])


class MimeServer(NamedTuple):
    """``(ServerState, (mean of x - y_i, c), Cohort) -> (ServerState, RoundInfo)``.

    Attributes:
      server_update: the server's step.
      optimizer: the base optimiser.
    """

    server_update: ServerUpdate
    optimizer: Optimizer

    def __call__(self, state: ServerState, update: PyTree, cohort: Cohort) -> tuple[ServerState, RoundInfo]:
        delta, c = update
        any_rate = jnp.ones_like(state.server_lr)  # the state does not depend on it
        _, s = optimizer_step(self.optimizer, any_rate, c, state.method_state, state.params)
        return self.server_update(state._replace(method_state=s), delta, cohort)


def mime(
    loss_fn: _checks.Loss,
    local_steps: int,
    optimizer: Optimizer,
    *,
    server: Optimizer = optax.sgd,
    decay: Plateau | None = None,
) -> Method:
    """Return Mime, with two exchanges per round.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K.
      optimizer: the base optimiser, whose rate is the client rate gamma: a factory such as
        ``functools.partial(optax.sgd, momentum=0.9)``, or a transform built with learning rate 1.
      server, decay: see `lur.local_update`. The paper's server is SGD with rate 1.
    """
    method = mimelite(loss_fn, local_steps, optimizer, server=server, decay=decay)
    K = method.local_steps
    return method._replace(
        client_update=MimeClient(loss_fn, K, optimizer, corrected=True), prepare=FullGradient(loss_fn, K)
    )


def mimelite(
    loss_fn: _checks.Loss,
    local_steps: int,
    optimizer: Optimizer,
    *,
    server: Optimizer = optax.sgd,
    decay: Plateau | None = None,
) -> Method:
    """Return MimeLite, with one exchange per round; the arguments are those of `mime`."""
    K = _checks.positive_integer("local_steps", local_steps)
    optimizer, server = checked_optimizer("optimizer", optimizer), checked_optimizer("server", server)
    return Method(
        InitServer(server, decay, K, method_state=InitOptimizer(optimizer)),
        MimeClient(loss_fn, K, optimizer, corrected=False),
        MimeServer(ServerUpdate(server, decay), optimizer),
        K,
        broadcast=broadcast_method_state,
    )
