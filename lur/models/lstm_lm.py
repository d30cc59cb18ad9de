"""Recurrent language models: the next character (Shakespeare) and the next word (Stack Overflow).

Sequences are padded at their ends. The models read padding like any token, since what follows a sequence cannot change
its logits; only the loss masks padded positions. For losses that count padding, the LSTMs can hold their outputs there,
as Keras's do with an input mask.
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from lur.models.layers.dense import Dense
from lur.models.layers.forms import Form
from lur.models.layers.lstm import LSTM


def symmetric_uniform(key: Any, shape: Any, dtype: Any = jnp.float32) -> Array:
    """Return Keras's initial embedding, uniform in (-0.05, 0.05)."""
    return nn.initializers.uniform(0.1)(key, shape, dtype) - jnp.asarray(0.05, dtype)


class LSTMLM(nn.Module):
    """Logits of the next token at every position: embedding, LSTM layers, optional linear projection, softmax layer.

    Initialisers are Keras's defaults: uniform embedding, glorot uniform kernels, orthogonal recurrent kernels, and zero
    biases, except for ones in the forget gates.

    Attributes:
      vocabulary: the number of tokens.
      embedding: the width of the embedding.
      units: the width of each LSTM layer.
      projection: the width of the linear layer before the softmax layer; None to leave it out.
      dtype: the dtype of parameters and activations.
      form: the form of the layers, see `lur.models.layers.forms`.
      holds_at_padding: whether the LSTMs hold their states where the input is padding, which must be at the ends.
    """

    vocabulary: int
    embedding: int
    units: tuple[int, ...]
    projection: int | None = None
    dtype: Any = jnp.float32
    form: Form = "auto"
    holds_at_padding: bool = False

    @nn.compact
    def __call__(self, tokens: Int[Array, "B T"]) -> Float[Array, "B T vocabulary"]:
        table = self.param("embedding", symmetric_uniform, (self.vocabulary, self.embedding), self.dtype)
        x = jnp.take(table, tokens, axis=0)
        for i, units in enumerate(self.units):
            x = LSTM(units, self.dtype, self.form, name=f"lstm{i + 1}")(x)
        if self.holds_at_padding:  # every layer's outputs after the last token are those at the last token
            last = jnp.maximum((tokens != 0).sum(-1, keepdims=True, dtype=jnp.int32) - 1, 0)
            held = jnp.minimum(jnp.arange(tokens.shape[-1], dtype=jnp.int32), last)
            x = jnp.take_along_axis(x, held[..., None], axis=-2)
        if self.projection is not None:
            x = Dense(self.projection, dtype=self.dtype, form=self.form, name="projection")(x)
        return Dense(self.vocabulary, dtype=self.dtype, form=self.form, name="logits")(x)


def shakespeare(dtype: Any = jnp.float32, form: Form = "auto") -> LSTMLM:
    """Return the model of the next of 90 characters: embedding 8, two LSTMs of 256. It has 820,522 parameters."""
    return LSTMLM(90, 8, (256, 256), dtype=dtype, form=form)


def next_word(projection: int | None = 96, dtype: Any = jnp.float32, form: Form = "auto") -> LSTMLM:
    """Return the model of the next of 10,000 words and four special tokens: embedding 96, LSTM of 670.

    It has 4,050,748 parameters with the linear projection to 96 of google-research/federated.

    Args:
      projection: the width of the linear layer before the softmax layer; None for the direct softmax.
      dtype: the dtype of parameters and activations.
      form: the form of the layers, see `lur.models.layers.forms`.
    """
    return LSTMLM(10_004, 96, (670,), projection, dtype, form)
