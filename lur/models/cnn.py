"""The convolutional network for FEMNIST (McMahan et al. 2017, as used for FEMNIST's 62 characters)."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from lur.models.layers.conv import Conv
from lur.models.layers.dense import Dense
from lur.models.layers.forms import Form


class CNN(nn.Module):
    """Two 5x5 convolutions, each with relu and 2x2 max-pooling, a hidden layer and logits.

    With the default sizes and (28, 28, 1) images it has 1,690,046 parameters. Initialisers are Keras's
    defaults: glorot uniform kernels, zero biases.

    Attributes:
      classes: the number of classes.
      features: the numbers of filters of the two convolutions.
      hidden: the width of the hidden layer.
      dtype: the dtype of parameters and activations.
      form: the form of the layers, see `lur.models.layers.forms`.
    """

    classes: int = 62
    features: tuple[int, int] = (32, 64)
    hidden: int = 512
    dtype: Any = jnp.float32
    form: Form = "auto"

    @nn.compact
    def __call__(self, x: Float[Array, "B 28 28 1"]) -> Float[Array, "B classes"]:
        for i, features in enumerate(self.features):
            x = Conv(features, 5, pool=True, dtype=self.dtype, form=self.form, name=f"conv{i + 1}")(x)
            x = nn.relu(x)  # relu is monotone, so it commutes with max-pooling
        x = x.reshape(len(x), -1)
        x = nn.relu(Dense(self.hidden, dtype=self.dtype, form=self.form, name="hidden")(x))
        return Dense(self.classes, dtype=self.dtype, form=self.form, name="logits")(x)
