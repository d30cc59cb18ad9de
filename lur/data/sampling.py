r"""Sampling of clients and of their mini-batches, as functions of (seed, round) alone.

Each round draws the cohort :math:`I_t`: by default M distinct clients uniformly among all N (Algorithm 1), or M clients
independently of each other, from any distribution; or it takes all clients, or the next M in a fixed cyclic order.
Client i then draws its mini-batches with its own key, from :math:`(seed, t, i)`: either B examples with replacement, K
times (Algorithm 2), or E shuffled epochs over its data, :math:`K_i = \lceil E n_i / B \rceil`, as FedAvg is often run.
The draws depend neither on learning rates nor on the layout, so every setting sees the same clients and batches.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from lur.data.threefry import bits, fold_in, key_of


class Draw(NamedTuple):
    """The mini-batches of one client.

    Attributes:
      positions: positions within the client's data.
      mask: which positions count, since the last mini-batches may be short or empty; None if all do.
    """

    positions: Int[Array, "K B"]
    mask: Bool[Array, "K B"] | None


def round_key(seed: Any, t: Int[Array, ""] | int) -> Key[Array, ""]:
    """Return the key of round t."""
    return fold_in(key_of(seed), t)


def client_key(key: Key[Array, ""], i: Int[Array, ""] | int) -> Key[Array, ""]:
    """Return the key of client i in the round whose key is `key`."""
    return fold_in(fold_in(key, 1), i)


def sample_clients(key: Key[Array, ""], N: int, M: int) -> Int[Array, "M"]:
    """Return M distinct clients of N, every set equally likely, in O(M^2) operations (Floyd's algorithm)."""
    if not 1 <= M <= N:
        raise ValueError(f"clients_per_round must be between 1 and the store's {N} clients, got {M}")
    tops = jnp.arange(N - M, N, dtype=jnp.int32)
    drawn = uniform_integers(fold_in(key, 0), (M,), tops + 1)

    def pick(k, chosen):
        taken = (chosen == drawn[k]).any()
        return chosen.at[k].set(jnp.where(taken, tops[k], drawn[k]))

    return jax.lax.fori_loop(0, M, pick, jnp.full((M,), -1, jnp.int32))


def sample_independent(key: Key[Array, ""], N: int, M: int) -> Int[Array, "M"]:
    """Return M clients of N, each drawn uniformly and independently: a client may occur several times."""
    return uniform_integers(fold_in(key, 0), (M,), N)


def probability_bounds(p: Float[np.ndarray, "N"]) -> UInt32[np.ndarray, "bounds"]:
    r"""Return the bounds from which `sample_by_bounds` draws client i with probability p_i, up to 2^-32.

    They are :math:`2^{32} \sum_{j \le i} p_j`, rounded, for all clients before the last one with a positive p_i: of 32
    random bits, client i has those from the bound before it up to its own.
    """
    last = int(np.flatnonzero(p)[-1])
    sums = np.cumsum(p, dtype=np.float64)
    return np.minimum(np.rint(sums[:last] / sums[-1] * 2.0**32), 2.0**32 - 1).astype(np.uint32)


def sample_by_bounds(key: Key[Array, ""], bounds: UInt32[Array, "bounds"], M: int) -> Int[Array, "M"]:
    """Return M clients, drawn independently with the probabilities of `probability_bounds`."""
    drawn = bits(fold_in(key, 0), (M,))
    return jnp.searchsorted(bounds, drawn, side="right").astype(jnp.int32)


def next_in_order(t: Int[Array, ""] | int, N: int, M: int) -> Int[Array, "M"]:
    """Return the clients tM, ..., tM + M - 1 modulo N of round t.

    tM is formed modulo N from the bits of t, because it may exceed 32 bits.
    """
    t = jnp.asarray(t).astype(jnp.uint32)

    def add_bit(k, first):
        return (2 * first + ((t >> (31 - k).astype(jnp.uint32)) & 1) * np.uint32(M % N)) % np.uint32(N)

    first = jax.lax.fori_loop(0, 32, add_bit, jnp.zeros((), jnp.uint32))
    return ((first + jnp.arange(M, dtype=jnp.uint32)) % np.uint32(N)).astype(jnp.int32)


def uniform_integers(key: Key[Array, ""], shape: tuple[int, ...], n: Int[Array, "..."] | int) -> Int[Array, "..."]:
    r"""Return integers in [0, n), uniform up to 2^-32: :math:`\lfloor n u / 2^{32} \rfloor` for 32 random bits u.

    `jax.random.randint` uses twice the bits and four divisions, which take a fifth of the round of a small model.
    """
    u = bits(key, shape)
    n = jnp.asarray(n, jnp.int32).astype(jnp.uint32)
    u1, u0, n1, n0 = u >> 16, u & 0xFFFF, n >> 16, n & 0xFFFF
    low = u1 * n0 + (u0 * n0 >> 16)
    return (u1 * n1 + (low >> 16) + (u0 * n1 + (low & 0xFFFF) >> 16)).astype(jnp.int32)


def sample_steps(key: Key[Array, ""], low: int, high: int) -> Int[Array, ""]:
    """Return K_i, an integer from `low` to `high`, uniformly from a client's key."""
    return low + uniform_integers(fold_in(key, 3), (), high - low + 1)


def with_replacement(key: Key[Array, ""], n: Int[Array, ""] | int, K: int, B: int) -> Draw:
    """Return K mini-batches of B examples, each drawn uniformly from the client's n examples."""
    return Draw(uniform_integers(key, (K, B), n), None)


def steps_of_epochs(E: int, n: int, B: int) -> int:
    """Return K = ceil(E n / B), the number of local steps in E epochs over n examples."""
    return math.ceil(E * n / B)


def shuffled_epochs(key: Key[Array, ""], n: Int[Array, ""] | int, E: int, B: int, largest: int) -> Draw:
    """Return E epochs over the client's n examples, each shuffled independently, as mini-batches of B.

    Args:
      key: the client's key.
      n: the number of the client's examples.
      E: the number of epochs.
      B: the batch size.
      largest: the number of examples of the largest client, which decides the shape of the result; positions beyond
        the client's E n examples are masked.
    """
    K = steps_of_epochs(E, largest, B)
    order = jax.random.uniform(key, (E, largest), jnp.float32)
    order = jnp.where(jnp.arange(largest, dtype=jnp.int32) < n, order, jnp.inf).argsort(axis=1).astype(jnp.int32)
    j = jnp.arange(K * B, dtype=jnp.int32)
    n = jnp.asarray(n, jnp.int32)
    positions = order[jnp.minimum(j // n, E - 1), j % n]
    return Draw(positions.reshape(K, B), (j < E * n).reshape(K, B))
