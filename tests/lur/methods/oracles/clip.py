"""Federated averaging with clipped updates (McMahan et al., 2018, Algorithm 1: FlatClip, equal weights, no noise)."""

import numpy as np


def run(x, gradient, rounds, *, local_rate, global_rate, clip):
    """The model, and the norms of all updates before the clip."""
    norms = []
    for sampled in rounds:
        deltas = []
        for batches in sampled.values():
            y = x
            for batch in batches:
                y = y - local_rate * gradient(y, *batch)
            delta = y - x
            norms.append(np.linalg.norm(delta))
            deltas.append(delta * min(1.0, clip / norms[-1]))
        x = x + global_rate * np.mean(deltas, axis=0)
    return x, np.array(norms)
