"""Logistic regressions: one-versus-rest on sparse inputs (tags of Stack Overflow posts) and multinomial (digits).

Both are convex and are initialised at zero by default.
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from lur.models.layers.forms import Form
from lur.models.layers.sparse import bag_of_words


class TagRegression(nn.Module):
    """One logit per tag from a bag of words. With 10,000 words and 500 tags it has 5,000,500 parameters.

    Attributes:
      words: the number of words.
      tags: the number of tags.
      dtype: the dtype of the parameters.
      form: the form of the layer, see `lur.models.layers.forms`.
      kernel_init: the initialiser of the kernel.
    """

    words: int = 10_000
    tags: int = 500
    dtype: Any = jnp.float32
    form: Form = "auto"
    kernel_init: Any = nn.initializers.zeros

    @nn.compact
    def __call__(self, ids: Int[Array, "B W"], values: Float[Array, "B W"]) -> Float[Array, "B tags"]:
        kernel = self.param("kernel", self.kernel_init, (self.words, self.tags), self.dtype)
        bias = self.param("bias", nn.initializers.zeros, (self.tags,), self.dtype)
        return bag_of_words(ids, values, kernel, form=self.form) + bias


class LogisticRegression(nn.Module):
    """One logit per class from dense features. With 64 features and 10 classes (`digits`) it has 650 parameters.

    Attributes:
      classes: the number of classes.
      dtype: the dtype of the parameters.
    """

    classes: int = 10
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B features"]) -> Float[Array, "B classes"]:
        zeros = nn.initializers.zeros
        return nn.Dense(self.classes, kernel_init=zeros, dtype=self.dtype, param_dtype=self.dtype, name="logits")(x)
