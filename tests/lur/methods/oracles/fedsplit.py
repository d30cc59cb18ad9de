"""FedSplit (Pathak and Wainwright, 2020, Algorithm 1), whose proximal step is some steps of gradient descent from x."""

import numpy as np


def run(x, gradient, rounds, *, m, s, rate):
    """The average and the machines' models."""
    z = [x] * m
    for machines in rounds:
        z_new = list(z)
        for j, batches in machines.items():
            target, u = 2 * x - z[j], x
            for batch in batches:
                u = u - rate * (gradient(u, *batch) + (u - target) / s)
            z_new[j] = z[j] + 2 * (u - x)
        z = z_new
        x = np.mean(z, axis=0)
    return x, z
