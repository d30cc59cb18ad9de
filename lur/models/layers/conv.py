r"""Convolutions of images (NHWC) with kernels (HWIO), quick to differentiate inside `lax.scan` on CPU.

Per axis, with stride s, dilation d and zero padding of x,

.. math:: y_o = \sum_k w_k x_{so + dk}, \qquad
    \bar x_i = \sum_{so + dk = i} w_k \bar y_o, \qquad
    \bar w_k = \sum_o \bar y_o x_{so + dk}.

All three are convolutions: the gradient in x has y's gradient spread out by s as its image and the
flipped kernel, the gradient in w has y's gradient as its kernel with s and d exchanged and the examples
as its channels. Written out in the canonical layout each is one call of the library's convolution. They
are `convolution` again, so derivatives of every order, in reverse mode, are as quick.

Small images with many channels and 3x3 kernels at stride 1 are quicker still by `winograd3x3`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from lur.models.layers.forms import Form, is_fast
from lur.models.layers.pool import max_pool
from lur.models.layers.winograd import winograd3x3

LAYOUT = ("NHWC", "HWIO", "NHWC")
Pair = tuple[int, int]
MANY, SMALL = 64, 64
"""Channels, in and out, from which on, and pixels up to which, Winograd's form was measured to be the quicker one."""


def conv2d(
    x: Float[Array, "B H W I"],
    kernel: Float[Array, "h w I O"],
    strides: int | Pair = 1,
    padding: Literal["SAME", "VALID"] = "SAME",
    *,
    form: Form = "auto",
) -> Float[Array, "B P Q O"]:
    """Cross-correlation of images with a kernel, as every deep learning library's convolution.

    The fast form has no forward-mode derivatives (`jax.jvp`, `jax.hessian`); the plain form has.
    """
    if x.ndim != 4 or kernel.ndim != 4 or x.shape[-1] != kernel.shape[-2]:
        raise ValueError(f"kernel must be (h, w, I, O) for x of (B, H, W, I), got {kernel.shape} for {x.shape}")
    if padding not in ("SAME", "VALID"):
        raise ValueError(f"padding must be 'SAME' or 'VALID', got {padding!r}")
    steps = (strides, strides) if isinstance(strides, int) else tuple(strides)
    if len(steps) != 2 or min(steps) < 1:
        raise ValueError(f"strides must be one or two integers >= 1, got {strides!r}")
    if not is_fast(form):
        return lax.conv_general_dilated(x, kernel, steps, padding, dimension_numbers=LAYOUT)
    many = min(kernel.shape[2:]) >= MANY and x.shape[1] * x.shape[2] <= SMALL
    if many and padding == "SAME" and steps == (1, 1) and kernel.shape[:2] == (3, 3):
        return winograd3x3(x, kernel)
    pads = lax.padtype_to_pads(x.shape[1:3], kernel.shape[:2], steps, padding)
    return convolution(x, kernel, steps, (1, 1), tuple((int(low), int(high)) for low, high in pads))


@partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def convolution(x: Array, w: Array, strides: Pair, dilation: Pair, pads: tuple[Pair, Pair]) -> Array:
    """The convolution whose gradients are convolutions in the canonical layout."""
    return lax.conv_general_dilated(x, w, strides, pads, rhs_dilation=dilation, dimension_numbers=LAYOUT)


def forward(x: Array, w: Array, strides: Pair, dilation: Pair, pads: tuple[Pair, Pair]):
    return convolution(x, w, strides, dilation, pads), (x, w)


def backward(strides: Pair, dilation: Pair, pads: tuple[Pair, Pair], kept: tuple[Array, Array], dy: Array):
    x, w = kept
    return image_gradient(x, w, strides, dilation, pads, dy), kernel_gradient(x, w, strides, dilation, pads, dy)


convolution.defvjp(forward, backward)


def image_gradient(x: Array, w: Array, strides: Pair, dilation: Pair, pads: tuple[Pair, Pair], dy: Array) -> Array:
    """The gradient in x: dy, spread out by the strides, convolved with the flipped kernel."""
    spread = lax.pad(dy, jnp.zeros((), dy.dtype), [(0, 0, 0), *((0, 0, s - 1) for s in strides), (0, 0, 0)])
    reach = [d * (k - 1) for d, k in zip(dilation, w.shape[:2], strict=True)]
    lows = [r - low for r, (low, _) in zip(reach, pads, strict=True)]
    highs = [n + r - low - m for n, r, low, m in zip(x.shape[1:3], reach, lows, spread.shape[1:3], strict=True)]
    spread, around = cropped(spread, lows, highs)
    return convolution(spread, jnp.flip(w, (0, 1)).swapaxes(2, 3), (1, 1), dilation, around)


def kernel_gradient(x: Array, w: Array, strides: Pair, dilation: Pair, pads: tuple[Pair, Pair], dy: Array) -> Array:
    """The gradient in w: x convolved with dy, summed over examples; strides and dilation change places."""
    lows = [low for low, _ in pads]
    reach = [d * (k - 1) for d, k in zip(dilation, w.shape[:2], strict=True)]
    sizes = [s * (m - 1) + r + 1 for s, m, r in zip(strides, dy.shape[1:3], reach, strict=True)]
    highs = [size - n - low for size, n, low in zip(sizes, x.shape[1:3], lows, strict=True)]
    image, around = cropped(x, lows, highs)
    grad: Any = convolution(image.transpose(3, 1, 2, 0), dy.transpose(1, 2, 0, 3), dilation, strides, around)
    return jnp.transpose(grad, (1, 2, 0, 3))


def cropped(x: Array, lows: Sequence[int], highs: Sequence[int]) -> tuple[Array, tuple[Pair, Pair]]:
    """Rows and columns with negative padding cut off, and the padding that is left: the library wants it >= 0."""
    (top, left), (bottom, right) = ([max(-p, 0) for p in side] for side in (lows, highs))
    rows, columns = ((max(low, 0), max(high, 0)) for low, high in zip(lows, highs, strict=True))
    return x[:, top : x.shape[1] - bottom, left : x.shape[2] - right], (rows, columns)


class Conv(nn.Module):
    """A convolution layer: kernel, then bias where `use_bias`, on (B, H, W, I).

    With `pool` the result is max-pooled with 2x2 windows before the bias is added. The two commute, and
    this order adds the bias, and sums its gradient, over a quarter of the values.
    """

    features: int
    size: int
    strides: int = 1
    padding: Literal["SAME", "VALID"] = "SAME"
    use_bias: bool = True
    pool: bool = False
    kernel_init: Any = nn.initializers.glorot_uniform()
    dtype: Any = jnp.float32
    form: Form = "auto"

    @nn.compact
    def __call__(self, x: Float[Array, "B H W I"]) -> Float[Array, "B P Q O"]:
        shape = (self.size, self.size, x.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape, self.dtype)
        y = conv2d(x, kernel, self.strides, self.padding, form=self.form)
        if self.pool:
            y = max_pool(y, form=self.form)
        return y + self.param("bias", nn.initializers.zeros, (self.features,), self.dtype) if self.use_bias else y
