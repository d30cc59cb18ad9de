r"""K-MAML: a client that differentiates through its own K local steps (Section 3.1; Finn et al., 2017).

Finn, Abbeel and Levine, *Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks*, ICML 2017, Algorithm 2.
A client is a task. K gradient steps on mini-batches :math:`S_1, \dots, S_K` of support examples, the inner updates,
adapt its parameters to :math:`X_K(x)`. The meta-update uses the loss of the adapted parameters on new examples, the
query :math:`S_{K+1}`. The client sends

.. math:: \nabla_x f(X_K(x); S_{K+1}),

which needs second derivatives, or their first-order approximation :math:`\nabla f(X_K(x); S_{K+1})`, which leaves them
out (first-order MAML).

For gradient descent clients on quadratics this is InnerLoop with Theta_{2K+1} (Theorem 2). With mini-batches it is not:
Hessians and iterates share their randomness, which adds a bias of order gamma^2 / B.
"""

from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from lur import _checks
from lur.methods.decay import Plateau
from lur.methods.method import Batches, Broadcast, ClientOutput, Method
from lur.methods.optimizers import Optimizer, add_scaled, checked_optimizer
from lur.methods.server import InitServer, ServerUpdate

Query = Literal["separate", "reuse"]


class MAMLClient(NamedTuple):
    """The K-MAML client: ``(Broadcast, (), Batches) -> ClientOutput``.

    Attributes:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K.
      order: 2 differentiates through the local steps, 1 does not.
      query: where the outer loss is taken, see `maml`.
    """

    loss_fn: _checks.Loss
    local_steps: int
    order: Literal[1, 2] = 2
    query: Query = "reuse"

    def __call__(self, broadcast: Broadcast, client_state: PyTree, batches: Batches) -> ClientOutput:
        K, x = self.local_steps, broadcast.params
        gammas = jnp.broadcast_to(broadcast.client_lr, (K,))
        support, query = support_and_query(batches, K, self.query)

        def query_loss(adapted):
            return query.mean(lambda batch: self.loss_fn(adapted, batch))

        def loss_after(x):
            return query_loss(adapt(self.loss_fn, x, support, gammas))

        if self.order == 1:
            meta_gradient = jax.grad(query_loss)(adapt(self.loss_fn, x, support, gammas))
        else:
            meta_gradient = jax.grad(loss_after)(x)
        return ClientOutput(meta_gradient, client_state, self.loss_fn(x, batches.first()))


def adapt(loss_fn: _checks.Loss, params: PyTree, batches: Batches, gammas: Float[Array, "K"]) -> PyTree:
    """Return X_K(x), the result of K steps of (mini-batch) gradient descent from x."""

    def local_step(y, batch, gamma_k):
        return add_scaled(y, -gamma_k, jax.grad(loss_fn)(y, batch)), None

    return batches.scan(local_step, params, gammas)[0]


def support_and_query(batches: Batches, K: int, query: Query = "reuse") -> tuple[Batches, Batches]:
    """Split mini-batches into those of the local steps and those of the outer loss, see `maml`."""
    supplied = jax.tree.leaves(batches.steps)[0].shape[0]
    needed = K + 1 if query == "separate" else max(K, 1)
    if supplied < needed:
        raise ValueError(f"batches must have at least {needed} mini-batches with query={query!r}, got {supplied}")
    padded = batches.padded_with_first()
    support = padded.between(0, K)
    if query == "separate" and batches.is_step is not None:  # the last one that this client has
        last = batches.is_step.sum(dtype=jnp.int32) - 1
        is_support = jnp.arange(K, dtype=jnp.int32) < last
        step = jax.tree.map(lambda leaf: leaf[last][None], batches.steps)
        return support._replace(is_step=is_support), batches._replace(steps=step, is_step=None)
    if query == "reuse" and supplied > K and batches.is_step is not None:
        return support, batches.between(K, K + 1)._replace(is_step=None)
    return support, padded.between(K, K + 1) if supplied > K else padded


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


def maml(
    loss_fn: _checks.Loss,
    steps: int,
    server: Optimizer = optax.sgd,
    *,
    query: Query = "reuse",
    order: Literal[1, 2] = 2,
    decay: Plateau | None = None,
) -> Method:
    """Return K-MAML: Algorithm 1 with the MAML client in place of InnerLoop.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      steps: K >= 0, the local steps that are differentiated through: the inner gradient updates.
      server, decay: see `lur.local_update`; the server takes the meta-update, eta is Finn et al.'s beta.
      query: where the outer loss is taken. ``separate``: on examples of their own, as Finn et al. do; the method draws
        K + 1 mini-batches, and the last of those that a client has is its query. ``reuse``: on the K mini-batches of
        the local steps again, which for mini-batches adds another bias; if more than K are given, on the next one.
      order: 2 for MAML, 1 for its first-order approximation, which sends the gradient of the outer loss at the adapted
        parameters. With separate queries that is `lur.local_update` with ``lur.theta.fomaml(K + 1)``.
    """
    K = _local_steps(steps)
    if query not in get_args(Query):
        raise ValueError(f"query must be 'separate' or 'reuse', got {query!r}")
    if isinstance(order, bool) or order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, got {order!r}")
    init, server_update = InitServer(checked_optimizer("server", server), decay, K), ServerUpdate(server, decay)
    return Method(init, MAMLClient(loss_fn, K, order, query), server_update, K + 1 if query == "separate" else K)


def _local_steps(steps: int) -> int:
    if isinstance(steps, bool) or int(steps) != steps or steps < 0:
        raise ValueError(f"steps must be an integer >= 0, got {steps!r}")
    return int(steps)
