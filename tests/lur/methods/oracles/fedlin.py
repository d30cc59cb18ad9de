"""FedLin (Mitra et al., 2021, Algorithm 1) without sparsification: client i's rate is gamma / tau_i."""

import numpy as np


def run(x, rounds, gradient, gamma, eta):
    for clients in rounds:
        g = sum(p * np.mean([gradient(x, batch) for batch in batches], axis=0) for _, p, batches in clients)
        mean = 0.0
        for _, p, batches in clients:
            y = x
            for batch in batches:
                y = y - gamma / len(batches) * (gradient(y, batch) - gradient(x, batch) + g)
            mean = mean + p * y
        x = x + eta * (mean - x)
    return x
