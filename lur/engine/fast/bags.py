"""Products with features that are dense or bags of words. Bags stay sparse on a CPU.

On a CPU, X W and X^T R are products with a matrix in compressed sparse rows. Elsewhere bags are written out as vectors,
and everything is a dense matrix product.
"""

from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import sequential_vmap
from jax.experimental.sparse import BCSR
from jaxtyping import Array, Float, Int

MAX_SORT_GROUPS = 4
"""With more groups than this, each a pass over all of the result, sorting is slower than adding row by row."""


class Bags(NamedTuple):
    """Bags of words as features: the vector of an example is the sum of values[w] * e_{ids[w]}.

    Attributes:
      ids: the ids of an example's words. A word may occur several times.
      values: the values of the words; padding has value 0.
    """

    ids: Int[Array, "*examples words"]
    values: Float[Array, "*examples words"]


Features = Array | Bags
"""Features of examples: an array with a last axis of size d, or `Bags`."""


def product(features: Features, kernel: Float[Array, "d outputs"]) -> Float[Array, "n outputs"]:
    """Return X W, the logits without bias of examples with these features."""
    return rows_product(*features, kernel) if isinstance(features, Bags) else features @ kernel


def gram(features: Features, d: int) -> Float[Array, "n n"]:
    """Return the Gram matrix X X^T of the examples, whose features have d dimensions."""
    if not isinstance(features, Bags):
        return features @ features.T
    return rows_product(*features, dense_columns(features, d))


def dense_columns(bags: Bags, d: int) -> Float[Array, "d n"]:
    """Return X^T written out: the bags of n examples as columns."""
    n = len(bags.ids)
    columns = jnp.zeros((d, n), bags.values.dtype)
    return columns.at[bags.ids, jnp.arange(n, dtype=jnp.int32)[:, None]].add(bags.values)


def transposed_product(features: Features, S: Float[Array, "n outputs"], d: int) -> Float[Array, "d outputs"]:
    """Return X^T S.

    Sorted by word, the entries of bags are the compressed rows of X^T, in which padding has no place. A word and its
    position among the entries of all bags are sorted as one number of 32 bits, in as many groups as that takes.
    """
    if not isinstance(features, Bags):
        return features.T @ S
    n, W = features.ids.shape
    bits = 32 - d.bit_length()
    group_size = (1 << max(bits, 0)) // max(W, 1)
    if n > MAX_SORT_GROUPS * group_size:
        return added_rows(features, S, d)
    groups = -(-n // group_size)
    padded = jax.tree.map(lambda leaf: jnp.pad(leaf, ((0, -n % groups), (0, 0))), (features, S))
    parts = [jax.tree.map(lambda leaf, g=g: jnp.split(leaf, groups)[g], padded) for g in range(groups)]
    return reduce(jnp.add, [sorted_product(bags, S, d, bits) for bags, S in parts])


def sorted_product(bags: Bags, S: Float[Array, "n outputs"], d: int, bits: int) -> Float[Array, "d outputs"]:
    """Return X^T S of bags with at most 2^bits entries, by sorting them."""
    n, W = bags.ids.shape

    @sequential_vmap
    def multiply(ids: Array, values: Array, S: Array) -> Array:
        words = jnp.where(values == 0, d, ids).reshape(-1).astype(jnp.uint32)
        keys = jax.lax.sort((words << bits) | jnp.arange(n * W, dtype=jnp.uint32), is_stable=False)
        ends = jnp.searchsorted(keys, jnp.arange(d + 1, dtype=jnp.uint32) << bits).astype(jnp.int32)
        position = (keys & np.uint32((1 << bits) - 1)).astype(jnp.int32)
        return BCSR((values.reshape(-1)[position], position // W, ends), shape=(d, n)) @ S

    return multiply(*bags, S)


def added_rows(bags: Bags, S: Float[Array, "n outputs"], d: int) -> Float[Array, "d outputs"]:
    """Return X^T S, adding one example's rows after another's."""

    def add(total: Array, example: Any) -> tuple[Array, None]:
        (ids, values), s = example
        return total.at[ids].add(values[:, None] * s), None

    return jax.lax.scan(add, jnp.zeros((d, S.shape[-1]), S.dtype), (bags, S))[0]


@sequential_vmap
def rows_product(ids: Array, values: Array, kernel: Array) -> Array:
    """Return X W with the bags as the compressed rows of X. On a CPU this is a library call without a batched form."""
    n, W = ids.shape
    ends = jnp.arange(n + 1, dtype=jnp.int32) * W
    return BCSR((values.reshape(-1), ids.reshape(-1), ends), shape=(n, len(kernel))) @ kernel


def checked_features(features: Features, d: int, is_sparse: bool) -> Features:
    """Return features of d dimensions, with bags written out unless they may stay sparse.

    Ids outside 0, ..., d - 1 give nan.
    """
    if not isinstance(features, Bags):
        if features.ndim != 4 or features.shape[-1] != d:
            raise ValueError(f"features must have shape (M, K, B, {d}) as the kernel has d = {d}, got {features.shape}")
        return features
    ids, values = features
    if ids.ndim != 4 or ids.shape != values.shape or not jnp.issubdtype(ids.dtype, jnp.integer):
        raise ValueError(
            f"ids must be integers of shape (M, K, B, words) like values {values.shape}, got {ids.dtype} of {ids.shape}"
        )
    is_word = (ids >= 0) & (ids < d)
    ids = jnp.where(is_word, ids, 0).astype(jnp.int32)
    bags = Bags(ids, jnp.where(is_word, values, jnp.asarray(jnp.nan, values.dtype)))
    if is_sparse:
        return bags
    return dense_columns(flat(bags, ids[..., 0].size), d).T.reshape(*ids.shape[:-1], d)


def flat(features: Any, n: int) -> Any:
    """Return the features of n examples along one axis."""
    return jax.tree.map(lambda leaf: leaf.reshape(n, leaf.shape[-1]), features)
