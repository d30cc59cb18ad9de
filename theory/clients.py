r"""Client algorithms in plain jax, for `theory.surrogate_of`.

Each function takes rates and returns a client ``(batches, x) -> update``, where batches are mini-batches (A, c) with
leading axes (K, B). An update is a sum of gradients, :math:`\sum_k \theta_k g_k`, or a model delta :math:`x - y_{K+1}`.
"""

from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from theory.affine import ClientFn

Send = Literal["gradients", "delta"]
Theta = Sequence[float]


def loss(batch, x: Float[Array, "d"]) -> Float[Array, ""]:
    """The mean of (x - c)^T A (x - c) / 2 over a mini-batch (A, c)."""
    A, c = batch
    return 0.5 * jnp.mean(jnp.einsum("bi,bij,bj->b", x - c, A, x - c))


def gradient(batches, k: int, x: Float[Array, "d"]) -> Float[Array, "d"]:
    """The gradient on the k-th mini-batch."""
    A, c = batches
    return jnp.einsum("bij,bj->i", A[k], x - c[k]) / len(A[k])


def sgd(gamma: ArrayLike, theta: Theta, *, rho: float = 0.0, raw: bool = False, weight_decay: float = 0.0) -> ClientFn:
    r"""InnerLoop (Algorithm 2).

    Args:
      gamma: the client learning rate, one number or one per step.
      theta: the weights Theta.
      rho: strength of the proximal term, which pulls towards x (FedProx).
      raw: whether the update sums gradients of the loss alone, instead of the gradients that the client steps along.
      weight_decay: strength of the pull towards 0.
    """

    def client(batches, x):
        gammas = jnp.broadcast_to(jnp.asarray(gamma, x.dtype), (len(theta),))
        y, update = x, jnp.zeros_like(x)
        for k, theta_k in enumerate(theta):
            g = gradient(batches, k, y)
            pulled = g + rho * (y - x) + weight_decay * y
            update, y = update + theta_k * (g if raw else pulled), y - gammas[k] * pulled
        return update

    return client


def exact_prox(rho: float) -> ClientFn:
    r"""FedProx solved exactly: :math:`x - \arg\min_y f_i(y) + \frac\rho2\|y - x\|^2`."""

    def client(batches, x):
        A, c = batches[0][0].mean(0), batches[1][0].mean(0)
        return x - jnp.linalg.solve(A + rho * jnp.eye(len(x)), A @ c + rho * x)

    return client


def delta(gamma: ArrayLike, K: int) -> ClientFn:
    """The model delta x - y_{K+1} of K local steps, with rates gamma_k if several are given."""

    def client(batches, x):
        gammas, y = jnp.broadcast_to(jnp.asarray(gamma, x.dtype), (K,)), x
        for k in range(K):
            y = y - gammas[k] * gradient(batches, k, y)
        return x - y

    return client


def momentum(gamma: float, beta: float, theta: Theta, *, nesterov: bool = False, send: Send = "gradients") -> ClientFn:
    """Heavy ball, v <- beta v + g, y <- y - gamma v; or Nesterov's momentum, with gradients taken ahead of y."""

    def client(batches, x):
        y = before = ahead = x
        v = update = jnp.zeros_like(x)
        for k, theta_k in enumerate(theta):
            if nesterov:
                ahead = y + beta * (y - before)
                g = gradient(batches, k, ahead)
                y, before = ahead - gamma * g, y
            else:
                g = gradient(batches, k, y)
                v = beta * v + g
                y = y - gamma * v
            update = update + theta_k * g
        return update if send == "gradients" else x - y

    return client


def preconditioned(
    gamma: float, theta: Theta, D: Float[ArrayLike, "d d"] | Float[ArrayLike, "K d d"], *, send: Send = "gradients"
) -> ClientFn:
    """y <- y - gamma D g with one preconditioner, or D_k for the k-th step; a delta is (x - y_{K+1}) / gamma."""

    def client(batches, x):
        D_k = jnp.asarray(D, x.dtype)
        D_k = jnp.broadcast_to(D_k, (len(theta), *D_k.shape[-2:])) if D_k.ndim == 2 else D_k
        y, update, moved = x, jnp.zeros_like(x), jnp.zeros_like(x)
        for k, theta_k in enumerate(theta):
            g = gradient(batches, k, y)
            update = update + theta_k * g
            if k < len(D_k):
                moved = moved + D_k[k] @ g
                y = x - gamma * moved
        return update if send == "gradients" else moved

    return client


def maml(gamma: float, K: int) -> ClientFn:
    """The gradient, through K local steps, of the loss on one more mini-batch."""

    def client(batches, x):
        def loss_after(x):
            for k in range(K):
                x = x - gamma * gradient(batches, k, x)
            return loss((batches[0][K], batches[1][K]), x)

        return jax.grad(loss_after)(x)

    return client


def uneven(gamma: float, *, normalised: bool) -> ClientFn:
    """``(batches, x, K_i)``: the sum of a client's first K_i gradients (FedAvg), or their mean (FedNova)."""

    def client(batches, x, steps):
        y, update, K = x, jnp.zeros_like(x), steps.astype(x.dtype)
        for k in range(len(batches[0])):
            g = jnp.where(k < steps, gradient(batches, k, y), jnp.zeros_like(x))
            update, y = update + g, y - gamma * g
        return update / K if normalised else update

    return client


def scaffold(gamma: float, K: int) -> ClientFn:
    """``(batches, x, correction)``: the sum of K gradients, each plus h - h_i, the difference of control variates."""

    def client(batches, x, correction):
        y, update = x, jnp.zeros_like(x)
        for k in range(K):
            g = gradient(batches, k, y) + correction
            update, y = update + g, y - gamma * g
        return update

    return client
