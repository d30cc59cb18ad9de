r"""Group norm: the channels of an example, in groups, normalised to mean 0 and variance 1 over group and image.

.. math:: y = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \, s + b

with a scale s and bias b per channel. The variance is computed as the mean square of the centered values, because the
difference of the two moments cancels in single precision.
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float


def group_norm(
    x: Float[Array, "B H W C"],
    scale: Float[Array, "C"],
    bias: Float[Array, "C"],
    *,
    groups: int = 2,
    epsilon: float = 1e-3,
) -> Float[Array, "B H W C"]:
    """Return the normalised images, scaled and shifted per channel."""
    if x.ndim != 4 or scale.shape != x.shape[-1:] or bias.shape != scale.shape:
        raise ValueError(
            f"scale and bias must be (C,) for x of (B, H, W, C), got {scale.shape}, {bias.shape}, {x.shape}"
        )
    if groups < 1 or x.shape[-1] % groups:
        raise ValueError(f"groups must divide the {x.shape[-1]} channels, got {groups}")
    centered = x - group_means(x, groups)
    variance = group_means(centered * centered, groups)
    return centered * (lax.rsqrt(variance + epsilon) * scale) + bias


def group_means(x: Float[Array, "B H W C"], groups: int) -> Float[Array, "B 1 1 C"]:
    """Return each channel's mean over the image and its group. Summing over the image first is fast on CPU."""
    B, H, W, C = x.shape
    sums = x.reshape(B, H * W, C).sum(axis=1).reshape(B, groups, C // groups)
    means = sums.sum(axis=-1, keepdims=True) / (H * W * C // groups)
    return jnp.broadcast_to(means, sums.shape).reshape(B, 1, 1, C)


class GroupNorm(nn.Module):
    """A group norm layer, initialised with scale 1 and bias 0.

    Attributes:
      groups: the number of groups of channels.
      epsilon: added to the variance.
      dtype: the dtype of the parameters.
    """

    groups: int = 2
    epsilon: float = 1e-3
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> Float[Array, "B H W C"]:
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:], self.dtype)
        bias = self.param("bias", nn.initializers.zeros, x.shape[-1:], self.dtype)
        return group_norm(x, scale, bias, groups=self.groups, epsilon=self.epsilon)
