r"""Convolutions of images (NHWC) with kernels (HWIO) whose gradients are fast inside `lax.scan` on CPU.

Per axis, with stride s, dilation d and zero padding of x,

.. math:: y_o = \sum_k w_k x_{so + dk}, \qquad
    \bar x_i = \sum_{so + dk = i} w_k \bar y_o, \qquad
    \bar w_k = \sum_o \bar y_o x_{so + dk}.

All three are convolutions. The gradient with respect to x convolves y's gradient, dilated by s, with the flipped
kernel. The gradient with respect to w convolves x with y's gradient as the kernel, with s and d exchanged and the
examples as channels. In the canonical layout each is one call of the library's convolution. They are `convolution`
again, so reverse-mode derivatives of every order are as fast.

`winograd3x3` is faster still for small images with many channels, 3x3 kernels and stride 1.
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
WINOGRAD_MIN_CHANNELS, WINOGRAD_MAX_PIXELS = 64, 64
"""Winograd's form was measured to be faster from this number of channels, in and out, and up to this many pixels."""


def conv2d(
    x: Float[Array, "B H W I"],
    kernel: Float[Array, "h w I O"],
    strides: int | Pair = 1,
    padding: Literal["SAME", "VALID"] = "SAME",
    *,
    form: Form = "auto",
) -> Float[Array, "B P Q O"]:
    """Return the cross-correlation of images with a kernel, the convolution of deep learning libraries.

    The fast form has no forward-mode derivatives (`jax.jvp`, `jax.hessian`); the plain form does.

    Args:
      x: the images.
      kernel: the kernel.
      strides: the strides along both axes, or one for both.
      padding: "SAME" or "VALID".
      form: the form of the gradients, see `lur.models.layers.forms`.
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
    many_channels = min(kernel.shape[2:]) >= WINOGRAD_MIN_CHANNELS
    small_image = x.shape[1] * x.shape[2] <= WINOGRAD_MAX_PIXELS
    if many_channels and small_image and padding == "SAME" and steps == (1, 1) and kernel.shape[:2] == (3, 3):
        return winograd3x3(x, kernel)
    pads = lax.padtype_to_pads(x.shape[1:3], kernel.shape[:2], steps, padding)
    return convolution(x, kernel, steps, (1, 1), tuple((int(low), int(high)) for low, high in pads))


@partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def convolution(x: Array, w: Array, strides: Pair, dilation: Pair, pads: tuple[Pair, Pair]) -> Array:
    """Return the convolution, whose gradients are convolutions in the canonical layout."""
    return lax.conv_general_dilated(x, w, strides, pads, rhs_dilation=dilation, dimension_numbers=LAYOUT)


def forward(x: Array, w: Array, strides: Pair, dilation: Pair, pads: tuple[Pair, Pair]):
    return convolution(x, w, strides, dilation, pads), (x, w)


def backward(strides: Pair, dilation: Pair, pads: tuple[Pair, Pair], residuals: tuple[Array, Array], dy: Array):
    x, w = residuals
    return image_gradient(x, w, strides, dilation, pads, dy), kernel_gradient(x, w, strides, dilation, pads, dy)


convolution.defvjp(forward, backward)


def image_gradient(x: Array, w: Array, strides: Pair, dilation: Pair, pads: tuple[Pair, Pair], dy: Array) -> Array:
    """Return the gradient with respect to x: dy, dilated by the strides, convolved with the flipped kernel."""
    dilated = lax.pad(dy, jnp.zeros((), dy.dtype), [(0, 0, 0), *((0, 0, s - 1) for s in strides), (0, 0, 0)])
    reach = [d * (k - 1) for d, k in zip(dilation, w.shape[:2], strict=True)]
    lows = [r - low for r, (low, _) in zip(reach, pads, strict=True)]
    highs = [n + r - low - m for n, r, low, m in zip(x.shape[1:3], reach, lows, dilated.shape[1:3], strict=True)]
    dilated, padding = cropped(dilated, lows, highs)
    return convolution(dilated, jnp.flip(w, (0, 1)).swapaxes(2, 3), (1, 1), dilation, padding)


def kernel_gradient(x: Array, w: Array, strides: Pair, dilation: Pair, pads: tuple[Pair, Pair], dy: Array) -> Array:
    """Return the gradient with respect to w: x convolved with dy, summed over examples."""
    lows = [low for low, _ in pads]
    reach = [d * (k - 1) for d, k in zip(dilation, w.shape[:2], strict=True)]
    sizes = [s * (m - 1) + r + 1 for s, m, r in zip(strides, dy.shape[1:3], reach, strict=True)]
    highs = [size - n - low for size, n, low in zip(sizes, x.shape[1:3], lows, strict=True)]
    image, padding = cropped(x, lows, highs)
    grad: Any = convolution(image.transpose(3, 1, 2, 0), dy.transpose(1, 2, 0, 3), dilation, strides, padding)
    return jnp.transpose(grad, (1, 2, 0, 3))


def cropped(x: Array, lows: Sequence[int], highs: Sequence[int]) -> tuple[Array, tuple[Pair, Pair]]:
    """Return images cropped where padding is negative, and the remaining padding, which the library needs >= 0."""
    (top, left), (bottom, right) = ([max(-p, 0) for p in side] for side in (lows, highs))
    rows, columns = ((max(low, 0), max(high, 0)) for low, high in zip(lows, highs, strict=True))
    return x[:, top : x.shape[1] - bottom, left : x.shape[2] - right], (rows, columns)


class Conv(nn.Module):
    """A convolution layer on images (B, H, W, I).

    Attributes:
      features: the number of filters.
      size: the side of the kernel.
      strides: the stride along both axes.
      padding: "SAME" or "VALID".
      use_bias: whether the layer has a bias.
      pool: whether the result is max-pooled with 2x2 windows before the bias is added. The two commute, and this order
        adds the bias, and sums its gradient, over a quarter of the values.
      kernel_init: the initialiser of the kernel.
      dtype: the dtype of the parameters.
      form: the form of the gradients, see `lur.models.layers.forms`.
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
