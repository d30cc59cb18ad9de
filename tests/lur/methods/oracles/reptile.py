"""Batched Reptile (Nichol et al., 2018, Algorithm 2) with Adam inside, beta_1 = 0, new in every task."""

import numpy as np


def run(x, rounds, gradient, gamma, eta, b2=0.999, eps=1e-8):
    for tasks in rounds:
        mean = 0.0
        for _, p, batches in tasks:
            y, v = x, np.zeros_like(x)
            for t, batch in enumerate(batches, start=1):
                g = gradient(y, batch)
                v = b2 * v + (1 - b2) * g**2
                y = y - gamma * g / (np.sqrt(v / (1 - b2**t)) + eps)
            mean = mean + p * (y - x)
        x = x + eta * mean
    return x
