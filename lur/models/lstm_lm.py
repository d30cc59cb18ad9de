"""Recurrent language models: the next character (Shakespeare) and the next word (Stack Overflow).

Sequences are padded at their ends. The models read padding like any token: what comes after a sequence
cannot change its logits, so that leaving its positions out of the loss is all the masking there is.
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from lur.models.layers.dense import Dense
from lur.models.layers.forms import Form
from lur.models.layers.lstm import LSTM


def symmetric_uniform(key: Any, shape: Any, dtype: Any = jnp.float32) -> Array:
    """Keras's initial embedding, uniform in (-0.05, 0.05)."""
    return nn.initializers.uniform(0.1)(key, shape, dtype) - jnp.asarray(0.05, dtype)


class LSTMLM(nn.Module):
    """Logits of the next token at every position: embedding, LSTM layers, a linear projection or none, softmax layer.

    Initialisers are Keras's defaults: uniform embedding, glorot uniform kernels, orthogonal recurrent
    kernels, zero biases but for the forget gates' ones.
    """

    vocabulary: int
    embedding: int
    units: tuple[int, ...]
    projection: int | None = None
    dtype: Any = jnp.float32
    form: Form = "auto"

    @nn.compact
    def __call__(self, tokens: Int[Array, "B T"]) -> Float[Array, "B T vocabulary"]:
        table = self.param("embedding", symmetric_uniform, (self.vocabulary, self.embedding), self.dtype)
        x = jnp.take(table, tokens, axis=0)
        for i, units in enumerate(self.units):
            x = LSTM(units, self.dtype, self.form, name=f"lstm{i + 1}")(x)
        if self.projection is not None:
            x = Dense(self.projection, dtype=self.dtype, form=self.form, name="projection")(x)
        return Dense(self.vocabulary, dtype=self.dtype, form=self.form, name="logits")(x)


def shakespeare(dtype: Any = jnp.float32, form: Form = "auto") -> LSTMLM:
    """The next character of 90: embedding 8, two LSTMs of 256. 820,522 parameters; sequences of 80."""
    return LSTMLM(90, 8, (256, 256), dtype=dtype, form=form)


def next_word(projection: int | None = 96, dtype: Any = jnp.float32, form: Form = "auto") -> LSTMLM:
    """The next word of 10,000 and four special ones: embedding 96, LSTM of 670, a projection or none (direct softmax).

    4,050,748 parameters with the projection to 96 of google-research/federated, which is linear.
    """
    return LSTMLM(10_004, 96, (670,), projection, dtype, form)
