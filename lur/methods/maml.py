r"""K-MAML: a client that differentiates through its own K local steps (Section 3.1; Finn et al., 2017).

With :math:`X_K(x)` the result of K gradient steps from x on mini-batches :math:`S_1, \dots, S_K`, the client sends

.. math:: \nabla_x f(X_K(x); S_{K+1}).

For gradient descent clients on quadratics this is InnerLoop with Theta_{2K+1} (Theorem 2). With mini-batches it is not:
Hessians and iterates share their randomness, which adds a bias of order gamma^2 / B.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from lur import _checks
from lur.methods.decay import Plateau
from lur.methods.method import Batches, Broadcast, ClientOutput, Method
from lur.methods.optimizers import Optimizer, add_scaled
from lur.methods.server import InitServer, ServerUpdate


class MAMLClient(NamedTuple):
    """The K-MAML client: ``(Broadcast, (), Batches) -> ClientOutput``.

    Attributes:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K.
    """

    loss_fn: _checks.Loss
    local_steps: int

    def __call__(self, broadcast: Broadcast, client_state: PyTree, batches: Batches) -> ClientOutput:
        K, x = self.local_steps, broadcast.params
        gammas = jnp.broadcast_to(broadcast.client_lr, (K,))
        support, query = support_and_query(batches, K)

        def loss_after(x):
            adapted = adapt(self.loss_fn, x, support, gammas)
            return query.mean(lambda batch: self.loss_fn(adapted, batch))

        return ClientOutput(jax.grad(loss_after)(x), client_state, self.loss_fn(x, batches.first()))


def adapt(loss_fn: _checks.Loss, params: PyTree, batches: Batches, gammas: Float[Array, "K"]) -> PyTree:
    """Return X_K(x), the result of K steps of (mini-batch) gradient descent from x."""

    def local_step(y, batch, gamma_k):
        return add_scaled(y, -gamma_k, jax.grad(loss_fn)(y, batch)), None

    return batches.scan(local_step, params, gammas)[0]


def support_and_query(batches: Batches, K: int) -> tuple[Batches, Batches]:
    """Split mini-batches into the first K, for the local steps, and the next, for the outer loss.

    With exactly K mini-batches the outer loss is the mean over all of them. The next one is no local step, so also
    clients that take fewer than K steps have it.
    """
    supplied = jax.tree.leaves(batches.steps)[0].shape[0]
    support = batches.between(0, K).padded_with_first()
    return support, batches.between(K, K + 1)._replace(is_step=None) if supplied > K else support


def maml_gradient(
    loss_fn: _checks.Loss,
    params: PyTree[Float[Array, "..."]],
    batches: PyTree,
    gamma: Float[Array, ""] | Float[Array, "K"] | float,
    steps: int,
) -> PyTree[Float[Array, "..."]]:
    """Return the gradient of the loss after `steps` local steps, with respect to the starting point.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      params: the starting point x.
      batches: pytree with leading axes (K, B). The local steps use the first `steps` mini-batches and the outer loss
        uses the next one. With exactly `steps` mini-batches the outer loss is the mean over all of them: the same data
        again, which for mini-batches adds another bias.
      gamma: the client learning rate, one number or one per step.
      steps: K >= 0. For gradient descent, repeat the client's whole dataset along the first axis.
    """
    return maml_client(loss_fn, steps)(params, batches, gamma)[0]


def maml_client(loss_fn: _checks.Loss, steps: int):
    """Return the K-MAML client as a function ``(params, batches, gamma) -> (update, loss before training)``."""
    K = _local_steps(steps)

    def client(params: PyTree, batches: PyTree, gamma: Any) -> tuple[PyTree, Float[Array, ""]]:
        rate = _checks.param_rate("gamma", gamma, params, steps=K)
        _checks.leading_axes(batches, ("K", "B"), (max(K, 1), 1))
        _checks.batch_dtypes(batches, params)
        params, batches = jax.tree.map(jnp.asarray, (params, batches))
        _checks.scalar_loss(loss_fn, params, jax.tree.map(lambda leaf: leaf[0], batches))
        output = MAMLClient(loss_fn, K)(Broadcast(params, rate), (), Batches(batches))
        return output.update, output.loss

    return client


def maml(loss_fn: _checks.Loss, steps: int, server: Optimizer = optax.sgd, *, decay: Plateau | None = None) -> Method:
    """Return K-MAML: Algorithm 1 with the MAML client in place of InnerLoop.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      steps: K >= 0, the local steps that are differentiated through.
      server, decay: see `lur.local_update`.
    """
    K = _local_steps(steps)
    return Method(InitServer(server, decay, K), MAMLClient(loss_fn, K), ServerUpdate(server, decay), K)


def _local_steps(steps: int) -> int:
    if isinstance(steps, bool) or int(steps) != steps or steps < 0:
        raise ValueError(f"steps must be an integer >= 0, got {steps!r}")
    return int(steps)
