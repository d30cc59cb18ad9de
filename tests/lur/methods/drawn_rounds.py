"""The rounds that `lur.run` draws from a store, as arrays for the oracles in `tests.lur.methods.oracles`."""

import numpy as np

from lur.data.sampling import round_key, sample_clients
from tests.lur.numpy_loop import own_batches


def drawn_rounds(store, *, rounds, M, K, B, seed, epochs=None, weighting="uniform"):
    """For each round its clients as (index, weight, mini-batches): float64 arrays, without padding."""
    drawn = []
    for t in range(rounds):
        key = round_key(seed, t)
        cohort = [int(i) for i in sample_clients(key, store.clients, M)]
        weights = np.array([store.sizes[i] if weighting == "examples" else 1 for i in cohort], float)
        batches = [own_batches(store, key, i, K, B, epochs) for i in cohort]
        batches = [[tuple(np.asarray(array, np.float64) for array in batch) for batch in own] for own in batches]
        drawn.append([*zip(cohort, weights / weights.sum(), batches, strict=True)])
    return drawn
