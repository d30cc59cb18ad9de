r"""Splitting a store: test examples of every client, or held-out clients that are never trained on.

Which examples of a client are for testing depends on its id, its number of examples and the seed of the split alone,
and which clients are held out on the ids and that seed. So a split is the same for every training seed, layout and
resume, and in every order of the clients. The rule is recorded in the provenance (`Store.about`) of both parts.

A client always keeps an example to train on. One with too few examples has no test example: the test store holds the
other clients only, under the same ids (`clients_in`).
"""

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Int

from lur.data.ragged import Ragged
from lur.data.store import Feature, Store
from lur.data.store_cache import cached, digest
from lur.data.writer import Examples, in_memory

Rule = Literal["random", "last"]
Kept = Mapping[int, Int[np.ndarray, "n"]]
"""The kept examples of each kept client, as increasing positions among the client's own."""


def split_examples(
    store: Store, fraction: float, *, seed: int = 0, rule: Rule = "random"
) -> tuple[Store, Store | None]:
    """Return the training and the test part of every client's examples.

    Args:
      store: the clients. A store on disk is split on disk, in the cache of prepared stores.
      fraction: the fraction of each client's examples that is for testing, rounded to the nearest number.
      seed: the seed of the split; without effect with ``last``.
      rule: ``random`` draws the test examples; ``last`` takes the last ones, for text and time series.

    Returns:
      The training part, with all clients, and the test part, with the clients that have test examples; None if none
      has.
    """
    check_fraction(fraction)
    if rule not in ("random", "last"):
        raise ValueError(f"rule must be 'random' or 'last', got {rule!r}")
    train, test = {}, {}
    for i, n in enumerate(store.sizes.tolist()):
        is_test = is_for_testing(store.id(i), n, fraction, seed, rule)
        train[i] = np.flatnonzero(~is_test)
        if is_test.any():
            test[i] = np.flatnonzero(is_test)
    split = {"examples": rule, "fraction": float(fraction), "seed": int(seed)}
    return subset(store, train, {**split, "part": "train"}), (
        subset(store, test, {**split, "part": "test"}) if test else None
    )


def split_clients(store: Store, fraction: float, *, seed: int = 0) -> tuple[Store, Store]:
    """Return the store of the clients to train on, and that of the held-out clients.

    Args:
      store: the clients, at least two.
      fraction: the fraction of the clients that is held out: at least one client, and not all of them.
      seed: the seed of the split.
    """
    check_fraction(fraction)
    N = store.clients
    if N < 2:
        raise ValueError(f"store must have at least 2 clients to hold one out, got {N}")
    order = sorted(range(N), key=lambda i: id_digest(store.id(i), seed))
    held_out = {*order[: min(max(nearest(fraction * N), 1), N - 1)]}
    sizes, split = store.sizes, {"clients": float(fraction), "seed": int(seed)}
    parts = (("train", [i for i in range(N) if i not in held_out]), ("held out", sorted(held_out)))
    train, rest = (
        subset(store, {i: np.arange(sizes[i]) for i in clients}, {**split, "part": part}) for part, clients in parts
    )
    return train, rest


def is_for_testing(id: str, n: int, fraction: float, seed: int, rule: Rule) -> Bool[np.ndarray, "n"]:
    """Return which of a client's n examples are for testing; at least one is not."""
    count = min(nearest(fraction * n), n - 1)
    chosen = np.zeros(n, bool)
    if rule == "last":
        chosen[n - count :] = True
    else:
        words = np.frombuffer(id_digest(id, seed), np.uint32)
        chosen[np.random.default_rng(words).permutation(n)[:count]] = True
    return chosen


def clients_in(test: Store, store: Store) -> Int[np.ndarray, "N_test"]:
    """Return the index in `store` of each client of `test`, which must all be clients of `store`."""
    index = {store.id(i): i for i in range(store.clients)}
    ids = [test.id(j) for j in range(test.clients)]
    if unknown := [id for id in ids if id not in index]:
        raise ValueError(
            f"test must have clients of the training store only, got {len(unknown):,} others, such as {unknown[0]!r}"
        )
    return np.array([index[id] for id in ids], np.int64)


def subset(store: Store, kept: Kept, split: Mapping[str, Any]) -> Store:
    """Return some examples of some clients, in memory or, like the store, on disk.

    Args:
      store: the store.
      kept: the clients and their examples, in the order of the store.
      split: how they were chosen, for the provenance.
    """

    def clients() -> Iterator[tuple[str, Examples]]:
        for i, rows in kept.items():
            yield store.id(i), {name: take(feature, rows) for name, feature in store.client(i).items()}

    about = {**store.about, "splits": [*store.about.get("splits", ()), dict(split)]}
    if store.path is None:
        return in_memory(clients(), about)
    return cached(f"split-{len(kept)}", about, clients, key=digest(store))


def take(feature: Feature, rows: Int[np.ndarray, "n"]) -> Feature:
    """Return some rows of a feature."""
    if not isinstance(feature, Ragged):
        return feature[rows]
    lengths = np.diff(feature.offsets)[rows]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    values = np.repeat(np.asarray(feature.offsets)[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return Ragged(np.asarray(feature.values)[values], offsets)


def id_digest(id: str, seed: int) -> bytes:
    """Return 32 bytes that depend on a client's id and the seed of a split."""
    return hashlib.sha256(f"{int(seed)} {id}".encode()).digest()


def nearest(x: float) -> int:
    """Return the nearest integer, and the larger one of two equally near."""
    return math.floor(x + 0.5)


def check_fraction(fraction: float) -> None:
    """Refuse a fraction that is not between 0 and 1."""
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must be between 0 and 1, both excluded, got {fraction!r}")
