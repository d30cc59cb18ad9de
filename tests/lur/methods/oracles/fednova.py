"""FedNova (Wang et al., 2020), with the vectors a_i written out (Section 4 and its appendix)."""

import numpy as np


def accumulation(tau, momentum, alpha):
    """a_i: how often each of tau gradients is in (x - y) / gamma, with momentum and alpha = gamma * prox."""
    return np.array(
        [
            sum((1 - alpha) ** (tau - 1 - k) * momentum ** (k - j) for k in range(j, tau))
            for j in range(tau)
        ]
    )  # fmt: skip


def run(x, rounds, gradient, gamma, eta, momentum=0.0, prox=0.0):
    for clients in rounds:
        directions, norms, weights = [], [], []
        for _, p, batches in clients:
            y, buffer = x, np.zeros_like(x)
            for batch in batches:
                buffer = momentum * buffer + gradient(y, batch)
                y = y - gamma * (buffer + prox * (y - x))
            norm = accumulation(len(batches), momentum, gamma * prox).sum()
            directions.append((x - y) / (gamma * norm))
            norms.append(norm)
            weights.append(p)
        tau_eff = np.dot(weights, norms)
        x = x - eta * tau_eff * np.tensordot(weights, directions, axes=1)
    return x
