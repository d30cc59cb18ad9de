r"""DiLoCo: AdamW inside, Nesterov momentum outside.

Douillard, Feng, Rusu, Chhaparia, Donchev, Kuncoro, Ranzato, Szlam and Shen, *DiLoCo: Distributed Low-Communication
Training of Language Models*, 2023, Algorithm 1. Each round, every worker i takes H = K inner steps on its own shard,
and the mean of x - y_i is the outer gradient:

.. math::
    y_{i,k+1} = \mathrm{InnerOpt}(y_{i,k}, \nabla f_i(y_{i,k}; S_{i,k})), \quad y_{i,1} = x, \qquad
    x \leftarrow \mathrm{OuterOpt}\bigl(x, \tfrac1M \sum_{i \in I} (x - y_{i,K+1})\bigr).

The paper's inner optimiser is AdamW with weight decay 0.1, its outer one SGD with Nesterov momentum 0.9 and rate
eta = 0.7. A worker keeps the state of its inner optimiser between rounds and does not send it
(``inner_state="keep"``). With ``inner_state="reset"`` clients keep nothing: this is `lur.local_update` with the same
optimisers and ``send="delta"``, which suits large populations of clients.
"""

from functools import partial
from typing import Literal, NamedTuple

import jax
import optax
from jaxtyping import PyTree

from lur import _checks
from lur.methods.decay import Plateau
from lur.methods.local_steps import local_batches
from lur.methods.method import Batches, Broadcast, ClientOutput, Method, no_client_state
from lur.methods.optimizers import InitOptimizer, Optimizer, checked_optimizer, optimizer_init, optimizer_step
from lur.methods.server import InitServer, ServerUpdate

InnerState = Literal["keep", "reset"]

inner_adamw = partial(optax.adamw, weight_decay=0.1)
"""The paper's inner optimiser."""
outer_nesterov = partial(optax.sgd, momentum=0.9, nesterov=True)
"""The paper's outer optimiser."""


class DiLoCoClient(NamedTuple):
    """A worker: ``(Broadcast, inner optimiser's state or (), Batches) -> ClientOutput``.

    Attributes:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K, the paper's H.
      optimizer: the inner optimiser.
      inner_state: whether the worker keeps the inner optimiser's state, or resets it in every round.
    """

    loss_fn: _checks.Loss
    local_steps: int
    optimizer: Optimizer
    inner_state: InnerState

    def __call__(self, broadcast: Broadcast, client_state: PyTree, batches: Batches) -> ClientOutput:
        x, keep = broadcast.params, self.inner_state == "keep"
        batches, gammas = local_batches(self.loss_fn, self.local_steps, broadcast, batches)

        def inner_step(carry, batch, gamma_k):
            y, opt_state = carry
            loss, gradient = jax.value_and_grad(self.loss_fn)(y, batch)
            return optimizer_step(self.optimizer, gamma_k, gradient, opt_state, y), loss

        opt_state = client_state if keep else optimizer_init(self.optimizer, gammas[0], x)
        (y, opt_state), losses = batches.scan(inner_step, (x, opt_state), gammas)
        return ClientOutput(optax.tree.sub(x, y), opt_state if keep else client_state, losses[0])


def diloco(
    loss_fn: _checks.Loss,
    local_steps: int,
    *,
    client: Optimizer = inner_adamw,
    server: Optimizer = outer_nesterov,
    inner_state: InnerState = "keep",
    decay: Plateau | None = None,
) -> Method:
    """Return DiLoCo.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K, the inner steps of a round; 500 in most of the paper.
      client: the inner optimiser, whose rate is gamma. By default `optax.adamw` with the paper's weight decay.
      server: the outer optimiser, whose rate is eta; 0.7 in the paper.
      inner_state: ``keep`` each client's inner optimiser state between its rounds, or ``reset`` it in each.
      decay: see `lur.local_update`.
    """
    K = _checks.positive_integer("local_steps", local_steps)
    if inner_state not in ("keep", "reset"):
        raise ValueError(f"inner_state must be 'keep' or 'reset', got {inner_state!r}")
    client, server = checked_optimizer("client", client), checked_optimizer("server", server)
    return Method(
        InitServer(server, decay, K),
        DiLoCoClient(loss_fn, K, client, inner_state),
        ServerUpdate(server, decay),
        K,
        init_client=InitOptimizer(client) if inner_state == "keep" else no_client_state,
    )
