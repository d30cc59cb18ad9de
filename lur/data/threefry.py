r"""Threefry-2x32 with 20 rounds (Salmon et al. 2011), the generator of `jax.random`, unrolled for the CPU.

The two words of the key and the two words of a counter are mixed by additions, rotations and exclusive ors in five
groups of four rounds, and words of the key are added after each group. `fold_in` and `bits` return the same bits as
`jax.random.fold_in` and `jax.random.bits`. On a CPU JAX runs the rounds in a loop; unrolled, they are one kernel, and
the draws of a small model's round take 0.4 instead of 0.8 microseconds.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int, Key, UInt32

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


def key_of(seed: UInt32[Array, ""] | int) -> Key[Array, ""]:
    """Return the Threefry key of a seed, independently of JAX's default generator."""
    return jax.random.key(seed, impl="threefry2x32")


def fold_in(key: Key[Array, ""], data: Int[Array, ""] | int) -> Key[Array, ""]:
    """Return the key derived from a key and a 32-bit integer, as `jax.random.fold_in`."""
    data = jnp.asarray(data).astype(jnp.uint32)
    return jax.random.wrap_key_data(jnp.stack(threefry2x32(key, jnp.zeros_like(data), data)), impl="threefry2x32")


def bits(key: Key[Array, ""], shape: tuple[int, ...]) -> UInt32[Array, "..."]:
    """Return random 32-bit words, as `jax.random.bits`: the exclusive or of the two words of each counter 0, 1, ..."""
    if math.prod(shape) >= 2**32:
        raise ValueError(f"shape must have fewer than 2^32 entries, got {shape}")
    counter = lax.iota(jnp.uint32, math.prod(shape))
    high, low = threefry2x32(key, jnp.zeros_like(counter), counter)
    return (high ^ low).reshape(shape)


def threefry2x32(
    key: Key[Array, ""], high: UInt32[Array, "..."], low: UInt32[Array, "..."]
) -> tuple[UInt32[Array, "..."], UInt32[Array, "..."]]:
    """Return the two words of a counter, encrypted with the key."""
    words = jax.random.key_data(key)
    schedule = (words[0], words[1], words[0] ^ words[1] ^ PARITY)
    x, y = high + schedule[0], low + schedule[1]
    for i in range(5):
        for distance in ROTATIONS[i % 2]:
            x = x + y
            rotated = (y << np.uint32(distance)) | (y >> np.uint32(32 - distance))
            y = rotated ^ x
        x, y = x + schedule[(i + 1) % 3], y + schedule[(i + 2) % 3] + np.uint32(i + 1)
    return x, y
