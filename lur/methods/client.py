r"""InnerLoop: what one client does in a round (Algorithms 2 and 4).

.. math::
    x_1 = x, \qquad
    g_k = \tfrac1B \sum_{z \in S_k} \nabla f(x_k; z), \qquad
    x_{k+1} = x_k - \gamma g_k, \qquad
    \text{return } \sum_{k=1}^{K(\Theta)} \theta_k g_k

and, for Algorithm 4, the loss before training. The step may be any optax optimiser, gamma may vary
with k, and a proximal term :math:`\tfrac\rho2 \|y - x\|^2` may pull the local model y towards the
broadcast model x (FedProx).
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from lur import _checks as checks
from lur.parallel.layouts import SMALL
from lur.theta import nonzero

Optimizer = Callable[[Any], optax.GradientTransformation] | optax.GradientTransformation
"""An optax optimiser: a factory of its learning rate (`optax.sgd`) or one built with rate 1 (`optax.adam(1.0)`)."""


def descend(optimizer: Optimizer, rate: Array, gradient: PyTree, state: Any, params: PyTree) -> tuple[PyTree, Any]:
    """One optax step with a traced learning rate. Returns the new parameters and optimiser state."""
    if isinstance(optimizer, optax.GradientTransformation):
        updates, state = optimizer.update(gradient, state, params)
        updates = jax.tree.map(lambda u: rate * u, updates)
    else:
        updates, state = optimizer(rate).update(gradient, state, params)
    return optax.apply_updates(params, updates), state


def start(optimizer: Optimizer, rate: Array, params: PyTree) -> Any:
    """The optimiser's initial state."""
    built = optimizer if isinstance(optimizer, optax.GradientTransformation) else optimizer(rate)
    return built.init(params)


def inner_loop(
    loss_fn: checks.Loss,
    params: PyTree[Float[Array, "..."]],
    batches: PyTree,
    gamma: Float[Array, ""] | Float[Array, "K"] | float,
    theta: Sequence[float],
    *,
    step: Optimizer = optax.sgd,
    prox: float = 0.0,
    send: Literal["stepped", "raw"] = "stepped",
    loss_on: Literal["first", "all"] = "first",
) -> tuple[PyTree, Float[Array, ""]]:
    r"""InnerLoop(i, x, gamma, Theta) of one client: its message and its loss before training.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      params: the broadcast model x.
      batches: pytree with leading axes (K, B); S_k is its k-th slice. More than K(Theta) are left unused.
      gamma: client learning rate, one number or one per step. With 0 no step is taken, the gradients still sum.
      theta: the weights Theta.
      step: the client optimiser; SGD is the paper's.
      prox: rho >= 0, the strength of the pull towards x.
      send: with ``prox``, whether the message sums the gradients stepped along (``f + rho/2 |y-x|^2``,
        so that Theta_{1:K} is the model delta over gamma) or the raw gradients of f.
      loss_on: estimate the loss before training on S_1, which is free, or on all K(Theta) mini-batches.

    Returns:
      ``(message, loss_before)``: :math:`\sum_k \theta_k g_k`, shaped like params, and a scalar.
    """
    theta = nonzero(theta)
    K = len(theta)
    dtype = checks.floating_dtype(params)
    gamma = checks.rate("gamma", gamma, dtype, steps=K)
    rho = checks.rate("prox", prox, dtype)
    supplied, _ = checks.leading_axes(batches, ("K", "B"), (0, 1))
    if supplied < K:
        raise ValueError(f"theta needs K(theta) = {K} mini-batches, got batches with {supplied}")
    checks.batch_dtypes(batches, dtype)
    batches = jax.tree.map(lambda leaf: jnp.asarray(leaf)[:K], batches)
    loss_fn = jax.jit(loss_fn)  # traced once, for this check and for the loop
    checks.scalar_loss(loss_fn, params, jax.tree.map(lambda leaf: leaf[0], batches), dtype)
    if send not in ("stepped", "raw"):
        raise ValueError(f"send must be 'stepped' or 'raw', got {send!r}")
    if loss_on not in ("first", "all"):
        raise ValueError(f"loss_on must be 'first' or 'all', got {loss_on!r}")
    pulls = not (checks.is_concrete(prox) and prox == 0)
    x = jax.tree.map(jnp.asarray, params)

    def stepped(y, state, batch, gamma_k):
        loss, raw = jax.value_and_grad(loss_fn)(y, batch)
        g = jax.tree.map(lambda g, y, x: g + rho * (y - x), raw, y, x) if pulls else raw
        y, state = descend(step, gamma_k, g, state, y)
        return y, state, raw if send == "raw" else g, loss

    def silent_step(carry, inputs):
        y, state, _, loss = stepped(*carry, *inputs)
        return (y, state), loss

    def summed_step(carry, inputs):
        y, state, message = carry
        *inputs, theta_k = inputs
        y, state, g, loss = stepped(y, state, *inputs)
        return (y, state, jax.tree.map(lambda m, g: m + theta_k * g, message, g)), loss

    def even_step(message, inputs):
        batch, gamma_k, theta_k = inputs
        y = jax.tree.map(lambda x, m: x - gamma_k / theta_k * m, x, message)
        loss, g = jax.value_and_grad(loss_fn)(y, batch)
        return jax.tree.map(lambda m, g: m + theta_k * g, message, g), loss

    # One gamma and one theta for all steps: the message so far is the way gone, one model instead of two to keep.
    is_even = step is optax.sgd and not pulls and gamma.ndim == 0 and len(set(theta)) == 1
    silent = next(k for k, value in enumerate(theta) if value)  # of Theta_K all but the last: nothing to sum yet
    # A small model's loss takes a good part of a step: the first step is then apart, the others compute none.
    is_small = sum(leaf.size for leaf in jax.tree.leaves(x)) < SMALL
    gammas = jnp.broadcast_to(gamma, (K,))
    inputs = (batches, gammas, jnp.asarray(theta, dtype))
    nothing, before = jax.tree.map(jnp.zeros_like, x), jnp.zeros((), dtype)
    carry = nothing if is_even else (x, start(step, gammas[0], x))
    for first, end in pairwise(sorted({0, int(is_small), silent, K})):
        part = jax.tree.map(lambda leaf, of=slice(first, end): leaf[of], inputs)
        if is_even:
            carry, losses = jax.lax.scan(even_step, carry, part)
        elif first < silent:
            carry, losses = jax.lax.scan(silent_step, carry, part[:2])
        else:
            carry, losses = jax.lax.scan(summed_step, carry if len(carry) == 3 else (*carry, nothing), part)
        before = losses[0] if first == 0 else before
    message = carry if is_even else carry[-1]
    if loss_on == "all":
        return message, jax.vmap(loss_fn, in_axes=(None, 0))(x, batches).mean()
    return message, before
