r"""The linear layer y = x W + b, with its gradients as products of two matrices.

.. math:: \bar x = \bar y W^\top, \qquad \bar W = x^\top \bar y, \qquad \bar b = \sum \bar y.

JAX's transpose keeps the leading axes of x, such as examples and positions, separate. XLA's CPU compiler then
materialises y's gradient once for each of the three products, transposed for W: with 10,004 words as outputs this takes
as long as the products. The fast form flattens the leading axes and materialises y's gradient once.
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
    """Return x W + b over the last axis.

    The fast form has reverse-mode derivatives of any order; the plain form also has forward-mode derivatives.
    """
    if x.ndim == 0 or kernel.ndim != 2 or (x.shape[-1], *bias.shape) != kernel.shape:
        raise ValueError(
            f"kernel and bias must be (in, out) and (out,), got {kernel.shape} and {bias.shape} for x of {x.shape}"
        )
    if not is_fast(form):
        return x @ kernel + bias
    return affine(flatten_leading(x), kernel, bias).reshape(*x.shape[:-1], len(bias))


def inner(x: Float[Array, "*batch in"], w: Float[Array, "in"], *, form: Form = "auto") -> Float[Array, "*batch"]:
    """Return <x, w> over the last axis.

    With a different w per client, XLA computes elementwise products and reduces them, on a CPU window by window. The
    fast form writes the sum as a product with ones, which is faster, in particular for small mini-batches.
    """
    if x.ndim == 0 or w.shape != x.shape[-1:]:
        raise ValueError(f"w must be ({x.shape[-1] if x.ndim else 'in'},) for x of {x.shape}, got {w.shape}")
    if not is_fast(form):
        return x @ w
    return (x * w) @ jnp.ones_like(w)


@jax.custom_vjp
def affine(x: Float[Array, "B in"], kernel: Float[Array, "in out"], bias: Float[Array, "out"]) -> Float[Array, "B out"]:
    """Return x W + b, with an explicit gradient."""
    return x @ kernel + bias


def affine_forward(x: Array, kernel: Array, bias: Array):
    return affine(x, kernel, bias), (x, kernel)


def affine_backward(residuals: tuple[Array, Array], dy: Array) -> tuple[Array, Array, Array]:
    x, kernel = residuals
    dy = lax.optimization_barrier(dy)
    return times_transposed(dy, kernel), transposed_times(x, dy), dy.sum(axis=0)


affine.defvjp(affine_forward, affine_backward)


def flatten_leading(x: Float[Array, "*batch n"]) -> Float[Array, "all n"]:
    """Return x with all leading axes merged into one."""
    return x.reshape(-1, x.shape[-1]) if x.size else x.reshape(0, x.shape[-1])


def times_transposed(a: Float[Array, "m k"], b: Float[Array, "n k"]) -> Float[Array, "m n"]:
    """Return a b^T without forming b^T."""
    return lax.dot_general(a, b, (((1,), (1,)), ((), ())))


def transposed_times(a: Float[Array, "k m"], b: Float[Array, "k n"]) -> Float[Array, "m n"]:
    """Return a^T b without forming a^T."""
    return lax.dot_general(a, b, (((0,), (0,)), ((), ())))


class Dense(nn.Module):
    """A linear layer with Keras's initialisers: glorot uniform kernel, zero bias.

    Attributes:
      units: the number of outputs.
      kernel_init: the initialiser of the kernel.
      dtype: the dtype of the parameters.
      form: the form of the gradients, see `lur.models.layers.forms`.
    """

    units: int
    kernel_init: Any = nn.initializers.glorot_uniform()
    dtype: Any = jnp.float32
    form: Form = "auto"

    @nn.compact
    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch units"]:
        kernel = self.param("kernel", self.kernel_init, (x.shape[-1], self.units), self.dtype)
        bias = self.param("bias", nn.initializers.zeros, (self.units,), self.dtype)
        return dense(x, kernel, bias, form=self.form)
