r"""Who takes part in a round and which examples they draw: functions of (seed, round) alone.

:math:`I_t` is M distinct clients, uniform over all N, anew each round (Algorithm 1). Client i then draws its
mini-batches from a key of its own, :math:`(seed, t, i)`: either B examples with replacement, K times
(Algorithm 2), or E shuffled epochs over its data, :math:`K_i = \lceil E n_i / B \rceil`, as FedAvg is often run.
Neither learning rates nor layout enter, so every setting sees the same clients and batches.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from lur.data.threefry import bits, fold_in, key_of


class Draw(NamedTuple):
    """Positions within a client's data, and which of them count (a last mini-batch may be short, or empty)."""

    positions: Int[Array, "K B"]
    mask: Bool[Array, "K B"] | None


def round_key(seed: Any, t: Int[Array, ""] | int) -> Key[Array, ""]:
    """The key of round t."""
    return fold_in(key_of(seed), t)


def client_key(key: Key[Array, ""], i: Int[Array, ""] | int) -> Key[Array, ""]:
    """The key of client i in the round of `key`."""
    return fold_in(fold_in(key, 1), i)


def sample_clients(key: Key[Array, ""], N: int, M: int) -> Int[Array, "M"]:
    """M distinct clients of N, every set equally likely, in O(M^2) work whatever N (Floyd's algorithm)."""
    if not 1 <= M <= N:
        raise ValueError(f"clients_per_round must be between 1 and the store's {N} clients, got {M}")
    tops = jnp.arange(N - M, N, dtype=jnp.int32)
    drawn = below(fold_in(key, 0), (M,), tops + 1)

    def pick(k, chosen):
        taken = (chosen == drawn[k]).any()
        return chosen.at[k].set(jnp.where(taken, tops[k], drawn[k]))

    return jax.lax.fori_loop(0, M, pick, jnp.full((M,), -1, jnp.int32))


def below(key: Key[Array, ""], shape: tuple[int, ...], n: Int[Array, "..."] | int) -> Int[Array, "..."]:
    r"""Integers from 0 to n - 1, uniform up to 2^-32: :math:`\lfloor n u / 2^{32} \rfloor` for 32 random bits u.

    `jax.random.randint` takes twice the bits and four divisions, which for a small model is a fifth of the round.
    """
    u = bits(key, shape)
    n = jnp.asarray(n, jnp.int32).astype(jnp.uint32)
    u1, u0, n1, n0 = u >> 16, u & 0xFFFF, n >> 16, n & 0xFFFF
    low = u1 * n0 + (u0 * n0 >> 16)
    return (u1 * n1 + (low >> 16) + (u0 * n1 + (low & 0xFFFF) >> 16)).astype(jnp.int32)


def with_replacement(key: Key[Array, ""], n: Int[Array, ""] | int, K: int, B: int) -> Draw:
    """K mini-batches of B examples, each drawn uniformly from the client's n."""
    return Draw(below(key, (K, B), n), None)


def steps_of_epochs(E: int, n: int, B: int) -> int:
    """K = ceil(E n / B): the local steps of E epochs."""
    return math.ceil(E * n / B)


def shuffled_epochs(key: Key[Array, ""], n: Int[Array, ""] | int, E: int, B: int, largest: int) -> Draw:
    """E epochs over the client's n examples, each shuffled anew, cut into mini-batches of B.

    The shape is that of the largest client; what is beyond the client's own E n examples is masked.
    """
    K = steps_of_epochs(E, largest, B)
    order = jax.random.uniform(key, (E, largest), jnp.float32)
    order = jnp.where(jnp.arange(largest, dtype=jnp.int32) < n, order, jnp.inf).argsort(axis=1).astype(jnp.int32)
    j = jnp.arange(K * B, dtype=jnp.int32)
    n = jnp.asarray(n, jnp.int32)
    positions = order[jnp.minimum(j // n, E - 1), j % n]
    return Draw(positions.reshape(K, B), (j < E * n).reshape(K, B))
