"""Mime and MimeLite (Karimireddy et al., 2020, Algorithm 1). A base optimiser is a pair of a step U and a tracker V."""

import numpy as np


class Sgd:
    def start(self, x):
        return ()

    def U(self, g, s):
        return g

    def V(self, g, s):
        return ()


class Momentum:
    """m <- g + beta m, whose direction is m."""

    beta = 0.9

    def start(self, x):
        return np.zeros_like(x)

    def U(self, g, m):
        return g + self.beta * m

    def V(self, g, m):
        return g + self.beta * m


class Adam:
    b1, b2, eps = 0.8, 0.95, 1e-3

    def start(self, x):
        return np.zeros_like(x), np.zeros_like(x), 0

    def V(self, g, s):
        m, v, t = s
        return self.b1 * m + (1 - self.b1) * g, self.b2 * v + (1 - self.b2) * g**2, t + 1

    def U(self, g, s):
        m, v, t = self.V(g, s)
        return m / (1 - self.b1**t) / (np.sqrt(v / (1 - self.b2**t)) + self.eps)


def run(x, rounds, gradient, gamma, eta, base, lite):
    s = base.start(x)
    for clients in rounds:
        full = [np.mean([gradient(x, batch) for batch in batches], axis=0) for _, _, batches in clients]
        c = sum(p * g for (_, p, _), g in zip(clients, full, strict=True))
        mean = 0.0
        for _, p, batches in clients:
            y = x
            for batch in batches:
                g = gradient(y, batch)
                if not lite:
                    g = g - gradient(x, batch) + c
                y = y - gamma * base.U(g, s)
            mean = mean + p * y
        s = base.V(c, s)
        x = x + eta * (mean - x)
    return x
