"""Convolutional networks for FEMNIST's 62 characters: McMahan et al. 2017, and google-research/federated of 2020."""

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


class DropoutCNN(nn.Module):
    """Two 3x3 convolutions without padding, 2x2 max-pooling, dropout, a hidden layer, dropout and logits.

    With the default sizes and (28, 28, 1) images it has 1,206,590 parameters. Initialisers are Keras's defaults. The
    network is after ``create_conv_dropout_model`` of google-research/federated, which its trainer of 2020 uses.

    Attributes:
      classes: the number of classes.
      rates: the fractions that the two dropouts set to zero.
      dtype: the dtype of parameters and activations.
      form: the form of the layers, see `lur.models.layers.forms`.
    """

    classes: int = 62
    rates: tuple[float, float] = (0.25, 0.5)
    dtype: Any = jnp.float32
    form: Form = "auto"

    @nn.compact
    def __call__(self, x: Float[Array, "B 28 28 1"], train: bool = False) -> Float[Array, "B classes"]:
        """Return the logits; in training, dropout draws from ``rngs={"dropout": key}`` of `apply`."""
        common = {"dtype": self.dtype, "form": self.form}
        x = nn.relu(Conv(32, 3, padding="VALID", name="conv1", **common)(x))
        x = nn.relu(Conv(64, 3, padding="VALID", pool=True, name="conv2", **common)(x))  # relu commutes with pooling
        x = nn.Dropout(self.rates[0], deterministic=not train)(x)
        x = nn.relu(Dense(128, name="hidden", **common)(x.reshape(len(x), -1)))
        x = nn.Dropout(self.rates[1], deterministic=not train)(x)
        return Dense(self.classes, name="logits", **common)(x)
