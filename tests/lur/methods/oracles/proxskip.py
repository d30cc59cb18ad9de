"""Scaffnew, which is ProxSkip for the mean over clients (Mishchenko et al., 2022, Algorithm 2)."""

import numpy as np


def run(x, gradient, rounds, *, n, rate, probability, coins):
    """The model after each communication (and at first), the clients' models and their control variates."""
    models, controls, communicated = [x] * n, [np.zeros_like(x)] * n, [x]
    for clients, coin in zip(rounds, coins, strict=True):
        moved = [
            models[i] - rate * (gradient(models[i], *batch) - controls[i]) for i, (batch,) in sorted(clients.items())
        ]
        if coin:
            communicated.append(np.mean(moved, axis=0))
        models = [communicated[-1] if coin else moved[i] for i in range(n)]
        controls = [controls[i] + probability / rate * (models[i] - moved[i]) for i in range(n)]
    return communicated, models, controls
