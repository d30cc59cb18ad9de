"""Collectives over the devices of a mesh that send many arrays in one message."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from lur.parallel.platform import targets_cpu

LARGE_ARRAY = 2**22
"""On a CPU an array with at least this many elements is sent by itself: copying costs more than another message."""


def packed_psum(tree: PyTree, axis_name: str) -> PyTree:
    """Sum `tree` over the devices of a mesh axis in one all-reduce per dtype."""
    psum = partial(jax.lax.psum, axis_name=axis_name)
    leaves, structure = jax.tree.flatten(tree)
    summed = {k: psum(leaf) for k, leaf in enumerate(leaves) if leaf.size >= LARGE_ARRAY and targets_cpu()}
    rows = {k: leaf[None] for k, leaf in enumerate(leaves) if k not in summed}
    summed |= {k: leaf[0] for k, leaf in packed(psum, rows).items()}
    return jax.tree.unflatten(structure, [summed[k] for k in range(len(leaves))])


def packed(send: Callable[[Array], Array], tree: PyTree) -> PyTree:
    """Apply the collective `send` to all leaves at once, concatenated into one matrix per dtype.

    The leaves must agree on their first axis, which `send` may change; every call of a collective has its latency.
    """
    leaves, structure = jax.tree.flatten(tree)
    for dtype in {leaf.dtype: None for leaf in leaves}:
        positions = [k for k, leaf in enumerate(leaves) if leaf.dtype == dtype]
        rows = [leaves[k].reshape(len(leaves[k]), -1) for k in positions]
        sent = send(jnp.concatenate(rows, axis=1))
        columns = jnp.split(sent, np.cumsum([row.shape[1] for row in rows])[:-1], axis=1)
        for k, column in zip(positions, columns, strict=True):
            leaves[k] = column.reshape(len(sent), *leaves[k].shape[1:])
    return jax.tree.unflatten(structure, leaves)
