"""Max-pooling whose gradient is elementwise.

`lax.reduce_window` scatters its gradient window by window, slowly on CPU. The maximum over the windows'
entries, taken entry by entry over strided slices, is a chain of selections. As there, the gradient of a
tie goes to the first of the equal entries (by rows) and a nan stays a nan.
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
    """Maxima over square windows. "VALID" leaves out the rows and columns that fill no window."""
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

    return reduce(first_of_larger, [entry(i, j) for i in range(window) for j in range(window)])


def first_of_larger(a: Array, b: Array) -> Array:
    """The larger of two, a where they tie, nan where either is."""
    return jnp.where((a >= b) | jnp.isnan(a), a, b)
