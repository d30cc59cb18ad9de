"""Max-pooling with an elementwise gradient.

`lax.reduce_window` scatters its gradient window by window, which is slow on CPU. Here the maximum is taken over strided
slices, one per entry of the window, as a chain of selections. As in `lax.reduce_window`, the gradient of a tie goes to
the first of the equal entries (by rows), and nan propagates.
"""

from functools import reduce
from typing import Literal

import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jaxtyping import Array, Float

from lur.models.layers.forms import Form, is_fast


def max_pool(
    x: Float[Array, "B H W C"],
    window: int = 2,
    stride: int = 2,
    padding: Literal["SAME", "VALID"] = "VALID",
    *,
    form: Form = "auto",
) -> Float[Array, "B P Q C"]:
    """Return the maxima over square windows. "VALID" omits rows and columns that do not fill a window."""
    if x.ndim != 4:
        raise ValueError(f"x must be (B, H, W, C), got {x.shape}")
    if window < 1 or stride < 1:
        raise ValueError(f"window and stride must be >= 1, got {window} and {stride}")
    if padding == "VALID" and min(x.shape[1:3]) < window:
        raise ValueError(f"x must be at least as large as the window, {window}, got {x.shape}")
    if not is_fast(form):
        return nn.max_pool(x, (window, window), (stride, stride), padding)
    pads = lax.padtype_to_pads(x.shape[1:3], (window, window), (stride, stride), padding)
    if any(pad for axis in pads for pad in axis):
        x = jnp.pad(x, ((0, 0), *pads, (0, 0)), constant_values=-jnp.inf)
    rows, columns = ((size - window) // stride + 1 for size in x.shape[1:3])

    def entry(i: int, j: int) -> Array:
        last = (len(x), i + (rows - 1) * stride + 1, j + (columns - 1) * stride + 1, x.shape[-1])
        return lax.slice(x, (0, i, j, 0), last, (1, stride, stride, 1))

    return reduce(first_maximum, [entry(i, j) for i in range(window) for j in range(window)])


def first_maximum(a: Array, b: Array) -> Array:
    """Return the larger of two, a if they are equal, nan if either is nan."""
    return jnp.where((a >= b) | jnp.isnan(a), a, b)
