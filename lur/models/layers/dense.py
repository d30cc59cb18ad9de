r"""The linear layer y = x W + b, with its gradients as products of two matrices.

.. math:: \bar x = \bar y W^\top, \qquad \bar W = x^\top \bar y, \qquad \bar b = \sum \bar y.

JAX's own transpose keeps the leading axes of x apart, here examples and positions. XLA's CPU compiler then
writes y's gradient out once for each of the three, for W in transposed order: with 10,004 words as outputs
that takes as long as the products. The fast form flattens the leading axes and has y's gradient written once.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from lur.models.layers.forms import Form, is_fast


def dense(
    x: Float[Array, "*batch in"], kernel: Float[Array, "in out"], bias: Float[Array, "out"], *, form: Form = "auto"
) -> Float[Array, "*batch out"]:
    """x W + b over the last axis. The fast form is for reverse mode, of any order; the plain form has both."""
    if x.ndim == 0 or kernel.ndim != 2 or (x.shape[-1], *bias.shape) != kernel.shape:
        raise ValueError(
            f"kernel and bias must be (in, out) and (out,), got {kernel.shape} and {bias.shape} for x of {x.shape}"
        )
    if not is_fast(form):
        return x @ kernel + bias
    return affine(flat(x), kernel, bias).reshape(*x.shape[:-1], len(bias))


def inner(x: Float[Array, "*batch in"], w: Float[Array, "in"], *, form: Form = "auto") -> Float[Array, "*batch"]:
    """<x, w> over the last axis.

    For a model per client XLA writes x w as products and their sum, on a CPU window by window. The fast form has the
    sum as a product with ones, which is quicker, the more so the fewer examples a client has at a time.
    """
    if x.ndim == 0 or w.shape != x.shape[-1:]:
        raise ValueError(f"w must be ({x.shape[-1] if x.ndim else 'in'},) for x of {x.shape}, got {w.shape}")
    if not is_fast(form):
        return x @ w
    return (x * w) @ jnp.ones_like(w)


@jax.custom_vjp
def affine(x: Float[Array, "B in"], kernel: Float[Array, "in out"], bias: Float[Array, "out"]) -> Float[Array, "B out"]:
    """x W + b with the gradient written out."""
    return x @ kernel + bias


def affine_forward(x: Array, kernel: Array, bias: Array):
    return affine(x, kernel, bias), (x, kernel)


def affine_backward(kept: tuple[Array, Array], dy: Array) -> tuple[Array, Array, Array]:
    x, kernel = kept
    dy = lax.optimization_barrier(dy)
    return times_transposed(dy, kernel), transposed_times(x, dy), dy.sum(axis=0)


affine.defvjp(affine_forward, affine_backward)


@jax.custom_vjp
def product(x: Float[Array, "*batch in"], kernel: Float[Array, "in out"]) -> Float[Array, "*batch out"]:
    """x W with the gradient written out."""
    return (flat(x) @ kernel).reshape(*x.shape[:-1], kernel.shape[1])


def product_forward(x: Array, kernel: Array):
    return product(x, kernel), (x, kernel)


def product_backward(kept: tuple[Array, Array], dy: Array) -> tuple[Array, Array]:
    x, kernel = kept
    dy = lax.optimization_barrier(flat(dy))
    return times_transposed(dy, kernel).reshape(x.shape), transposed_times(flat(x), dy)


product.defvjp(product_forward, product_backward)


def flat(x: Float[Array, "*batch n"]) -> Float[Array, "all n"]:
    """All leading axes as one."""
    return x.reshape(-1, x.shape[-1]) if x.size else x.reshape(0, x.shape[-1])


def times_transposed(a: Float[Array, "m k"], b: Float[Array, "n k"]) -> Float[Array, "m n"]:
    """a b^T without forming b^T."""
    return lax.dot_general(a, b, (((1,), (1,)), ((), ())))


def transposed_times(a: Float[Array, "k m"], b: Float[Array, "k n"]) -> Float[Array, "m n"]:
    """a^T b without forming a^T."""
    return lax.dot_general(a, b, (((0,), (0,)), ((), ())))


class Dense(nn.Module):
    """A linear layer with Keras's initialisers: glorot uniform kernel, zero bias."""

    units: int
    kernel_init: Any = nn.initializers.glorot_uniform()
    dtype: Any = jnp.float32
    form: Form = "auto"

    @nn.compact
    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch units"]:
        kernel = self.param("kernel", self.kernel_init, (x.shape[-1], self.units), self.dtype)
        bias = self.param("bias", nn.initializers.zeros, (self.units,), self.dtype)
        return dense(x, kernel, bias, form=self.form)
