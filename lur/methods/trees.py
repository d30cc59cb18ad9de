"""Arithmetic on pytrees whose leaves may have different floating dtypes. Every leaf keeps its dtype."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree


def add_scaled(x: PyTree, scalar: Float[Array, ""], y: PyTree) -> PyTree:
    """Return x + scalar * y. Unlike `optax.tree.add_scale`, the scalar takes each leaf's dtype."""
    return jax.tree.map(lambda x, y: x + jnp.asarray(scalar, x.dtype) * y, x, y)


def tree_norm(tree: PyTree, dtype: Any) -> Float[Array, ""]:
    """Return the Euclidean norm over all leaves, computed in `dtype`."""
    squares = [jnp.sum(jnp.square(leaf.astype(dtype))) for leaf in jax.tree.leaves(tree)]
    return jnp.sqrt(sum(squares, start=jnp.zeros((), dtype)))
