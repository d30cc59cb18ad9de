r"""Linear maps of bags of words: sums of rows of the weights.

A bag of words is a list of word ids with values, :math:`\sum_w v_w e_{i_w}`. Its product with a kernel of shape
(vocabulary, outputs) is :math:`\sum_w v_w W_{i_w}`, and the gradient with respect to W is zero in all other rows.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from lur.models.layers.forms import Form, is_fast


def bag_of_words(
    ids: Int[Array, "*batch words"],
    values: Float[Array, "*batch words"],
    kernel: Float[Array, "vocabulary outputs"],
    *,
    form: Form = "auto",
) -> Float[Array, "*batch outputs"]:
    """Return the product of bags of words with a kernel.

    The fast form gathers rows, and its gradient scatters them. The plain form multiplies the bag as a dense vector.

    Args:
      ids: the words of each bag; a word may occur several times. Ids outside 0, ..., vocabulary - 1 give nan.
      values: the value of each word; 0 for padding.
      kernel: the weights.
      form: see `lur.models.layers.forms`.
    """
    if ids.shape != values.shape or not jnp.issubdtype(ids.dtype, jnp.integer):
        raise ValueError(f"ids must be integers of values' shape {values.shape}, got {ids.dtype} of {ids.shape}")
    inside = (ids >= 0) & (ids < kernel.shape[0])
    ids, values = jnp.where(inside, ids, 0), jnp.where(inside, values, jnp.asarray(jnp.nan, values.dtype))
    if is_fast(form):
        return jnp.einsum("...w,...wo->...o", values, kernel[ids])
    return dense_bags(ids, values, kernel.shape[0]) @ kernel


def dense_bags(
    ids: Int[Array, "*batch words"], values: Float[Array, "*batch words"], vocabulary: int
) -> Float[Array, "*batch vocabulary"]:
    """Return bags of words as dense vectors."""

    def dense_bag(ids: Array, values: Array) -> Array:
        return jnp.zeros(vocabulary, values.dtype).at[ids].add(values)

    flat = jax.vmap(dense_bag)(ids.reshape(-1, ids.shape[-1]), values.reshape(-1, ids.shape[-1]))
    return flat.reshape(*ids.shape[:-1], vocabulary)
