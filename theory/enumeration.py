"""Expectations over mini-batches by enumeration: every sequence of mini-batches of a client with few examples."""

import itertools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from theory.precision import float64


@float64
def batch_sequences(p_z: Float[Array, "m"], K: int, B: int) -> tuple[Int[Array, "s K B"], Float[Array, "s"]]:
    """Returns all (m^B)^K sequences of K mini-batches of B examples, and their probabilities."""
    m = len(p_z)
    if m ** (K * B) > 1_000_000:
        raise ValueError(f"m^(K B) = {m}^{K * B} sequences are too many to enumerate; at most 1,000,000")
    draws = np.array(list(itertools.product(range(m), repeat=K * B)), dtype=np.int32)
    probability = jnp.asarray(p_z, jnp.float64)[draws].prod(axis=1)
    return jnp.asarray(draws.reshape(len(draws), K, B)), probability
