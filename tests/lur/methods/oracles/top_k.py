"""Local SGD whose clients send the largest entries of their updates, with memory (Stich et al., 2018, Algorithm 1)."""

import numpy as np


def run(x, gradient, rounds, *, N, local_rate, global_rate, k):
    """The model, and the memories of all clients."""
    memories = [np.zeros_like(x) for _ in range(N)]
    for sampled in rounds:
        sent = []
        for i, batches in sampled.items():
            y = x
            for batch in batches:
                y = y - local_rate * gradient(y, *batch)
            whole = memories[i] + (x - y)
            largest = np.argsort(-np.abs(whole), kind="stable")[:k]
            g = np.zeros_like(x)
            g[largest] = whole[largest]
            memories[i] = whole - g
            sent.append(g)
        x = x - global_rate * np.mean(sent, axis=0)
    return x, np.array(memories)
