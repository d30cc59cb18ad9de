"""Batched Reptile (Nichol et al., 2018, Algorithm 2) with Adam inside, beta_1 = 0, new in every task."""

import numpy as np

B2, EPS = 0.999, 1e-8


def run(x, rounds, gradient, gamma, eta, correction=lambda b, t: 1 - b**t):
    for tasks in rounds:
        mean = 0.0
        for _, p, batches in tasks:
            y, v = x, np.zeros_like(x)
            for t, batch in enumerate(batches, start=1):
                g = gradient(y, batch)
                v = B2 * v + (1 - B2) * g**2
                y = y - gamma * g / (np.sqrt(v / correction(B2, t)) + EPS)
            mean = mean + p * (y - x)
        x = x + eta * mean
    return x
