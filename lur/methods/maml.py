r"""K-MAML: the client that differentiates through its own K local steps (Section 3.1).

With :math:`X_K(x)` the result of K gradient steps on mini-batches :math:`S_1, \dots, S_K`, started at x,
the client sends

.. math:: \nabla_x f(X_K(x); S_{K+1}).

For gradient descent clients on quadratics this is InnerLoop with Theta_{2K+1} (Theorem 2). With
mini-batches it is not: Hessians and iterates share their randomness, which adds a bias of order gamma^2 / B.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from lur import _checks as checks
from lur.methods.server import LocalUpdate, from_client


def adapt(loss_fn: checks.Loss, params: PyTree, batches: PyTree, gamma: Float[Array, "K"]) -> PyTree:
    """X_K(x): K steps of (mini-batch) gradient descent from x."""

    def step(y, inputs):
        batch, gamma_k = inputs
        return jax.tree.map(lambda y, g: y - gamma_k * g, y, jax.grad(loss_fn)(y, batch)), None

    return jax.lax.scan(step, params, (batches, gamma))[0]


def maml_gradient(
    loss_fn: checks.Loss,
    params: PyTree[Float[Array, "..."]],
    batches: PyTree,
    gamma: Float[Array, ""] | Float[Array, "K"] | float,
    steps: int,
) -> PyTree[Float[Array, "..."]]:
    """The gradient of the loss after `steps` local steps, with respect to the starting point.

    Args:
      batches: pytree with leading axes (K, B). The first `steps` mini-batches are stepped on and the next
        one is the outer loss. With exactly `steps` of them the outer loss is the mean over all of them:
        the same data again, which for mini-batches is one more bias.
      gamma: the client learning rate, one number or one per step.
      steps: K >= 0. Repeat the client's whole dataset along the first axis for gradient descent.
    """
    return maml_client(loss_fn, steps)(params, batches, gamma)[0]


def maml_client(loss_fn: checks.Loss, steps: int):
    """The K-MAML client as a function ``(params, batches, gamma) -> (message, loss_before)``."""
    if isinstance(steps, bool) or int(steps) != steps or steps < 0:
        raise ValueError(f"steps must be an integer >= 0, got {steps!r}")

    def client(params: PyTree, batches: PyTree, gamma: Any) -> tuple[PyTree, Float[Array, ""]]:
        dtype = checks.floating_dtype(params)
        gamma = checks.rate("gamma", gamma, dtype, steps=steps)
        supplied, _ = checks.leading_axes(batches, ("K", "B"), (max(steps, 1), 1))
        checks.batch_dtypes(batches, dtype)
        params, batches = jax.tree.map(jnp.asarray, (params, batches))
        checks.scalar_loss(loss_fn, params, jax.tree.map(lambda leaf: leaf[0], batches), dtype)
        inner = jax.tree.map(lambda leaf: leaf[:steps], batches)
        outer = jax.tree.map(lambda leaf: leaf[steps : steps + 1] if supplied > steps else leaf, batches)

        def loss_after(x):
            adapted = adapt(loss_fn, x, inner, jnp.broadcast_to(gamma, (steps,)))
            return jax.vmap(loss_fn, in_axes=(None, 0))(adapted, outer).mean()

        loss_before = loss_fn(params, jax.tree.map(lambda leaf: leaf[0], batches))
        return jax.grad(loss_after)(params), loss_before

    return client


def maml(loss_fn: checks.Loss, steps: int, server: Any = optax.sgd, *, decay: Any = None) -> LocalUpdate:
    """K-MAML as an algorithm: Algorithm 1 with the MAML client in place of InnerLoop."""
    return from_client(maml_client(loss_fn, steps), server, steps=steps, decay=decay)


__all__: Sequence[str] = ["adapt", "maml", "maml_client", "maml_gradient"]
