"""ResNet-18 with group norm for CIFAR-100 (Reddi et al. 2020).

It is the network of google-research/federated, for 24x24 crops:

- a 7x7 convolution with stride 2, norm, relu, and 3x3 max-pooling with stride 2 ("SAME"), to 6x6;
- four stages of two pre-activation blocks (He et al. 2016b) with 64, 128, 256, 512 filters, all at
  stride 1, so the image stays 6x6, unlike in the ImageNet network;
- a block is norm, relu, 3x3 convolution, twice; the first block omits its first norm and relu, since the stem ends
  with them. Where the number of filters changes, the shortcut is a 1x1 convolution with a norm;
- norm, relu, the mean over the image, logits.

Convolutions have no bias. Each norm has two groups and epsilon 1e-3. Initialisers: He normal for convolutions, normal
with standard deviation 0.01 for logits. The network has 11,227,812 parameters with 100 classes.
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from lur.models.layers.conv import Conv
from lur.models.layers.dense import Dense
from lur.models.layers.forms import Form
from lur.models.layers.norm import GroupNorm
from lur.models.layers.pool import max_pool

HE_NORMAL = nn.initializers.he_normal()


class Block(nn.Module):
    """Norm, relu, convolution, twice, plus a shortcut.

    Attributes:
      features: the number of filters.
      starts_with_norm: whether the block begins with norm and relu; False after the stem, which ends with them.
      dtype: the dtype of parameters and activations.
      form: the form of the layers, see `lur.models.layers.forms`.
    """

    features: int
    starts_with_norm: bool = True
    dtype: Any = jnp.float32
    form: Form = "auto"

    @nn.compact
    def __call__(self, x: Float[Array, "B H W I"]) -> Float[Array, "B H W O"]:
        y = nn.relu(GroupNorm(dtype=self.dtype, name="norm1")(x)) if self.starts_with_norm else x
        y = conv(self, self.features, 3, "conv1")(y)
        y = nn.relu(GroupNorm(dtype=self.dtype, name="norm2")(y))
        y = conv(self, self.features, 3, "conv2")(y)
        if x.shape[-1] != self.features:
            x = conv(self, self.features, 1, "shortcut")(x)
            x = GroupNorm(dtype=self.dtype, name="shortcut_norm")(x)
        return x + y


class ResNet18(nn.Module):
    """Logits of images.

    Attributes:
      classes: the number of classes.
      filters: the number of filters of the first stage; each later stage doubles it.
      blocks: the number of blocks of each stage.
      dtype: the dtype of parameters and activations.
      form: the form of the layers, see `lur.models.layers.forms`.
    """

    classes: int = 100
    filters: int = 64
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    dtype: Any = jnp.float32
    form: Form = "auto"

    @nn.compact
    def __call__(self, x: Float[Array, "B 24 24 3"]) -> Float[Array, "B classes"]:
        x = conv(self, self.filters, 7, "stem", strides=2)(x)
        x = nn.relu(GroupNorm(dtype=self.dtype, name="stem_norm")(x))
        x = max_pool(x, 3, 2, "SAME", form=self.form)
        for stage, count in enumerate(self.blocks):
            for i in range(count):
                name = f"stage{stage + 1}_block{i + 1}"
                x = Block(self.filters * 2**stage, (stage, i) != (0, 0), self.dtype, self.form, name=name)(x)
        x = nn.relu(GroupNorm(dtype=self.dtype, name="norm")(x)).mean(axis=(1, 2))
        init = nn.initializers.normal(0.01)
        return Dense(self.classes, init, self.dtype, self.form, name="logits")(x)


def conv(owner: Block | ResNet18, features: int, size: int, name: str, strides: int = 1) -> Conv:
    """Return a convolution without bias, in the dtype and form of its owner."""
    options = {"use_bias": False, "kernel_init": HE_NORMAL, "dtype": owner.dtype, "form": owner.form}
    return Conv(features, size, strides, name=name, **options)
