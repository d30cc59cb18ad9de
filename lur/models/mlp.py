"""A multilayer perceptron, such as the regressor of sine waves of Finn et al. (2017)."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float


class MLP(nn.Module):
    """Hidden layers with ReLU, and one output. With one input and two layers of 40 units it has 1,761 parameters.

    Attributes:
      widths: the number of units of each hidden layer.
      dtype: the dtype of the parameters.
    """

    widths: tuple[int, ...] = (40, 40)
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B features"]) -> Float[Array, "B"]:
        for width in self.widths:
            x = nn.relu(nn.Dense(width, dtype=self.dtype, param_dtype=self.dtype)(x))
        return nn.Dense(1, dtype=self.dtype, param_dtype=self.dtype)(x)[..., 0]
