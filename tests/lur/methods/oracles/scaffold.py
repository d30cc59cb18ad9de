"""SCAFFOLD (Karimireddy et al., 2020, Algorithm 1)."""

import numpy as np


def run(x, gradient, rounds, *, N, local_rate, global_rate, option):
    """The model, the server's control variate, and those of all clients."""
    c, controls = np.zeros_like(x), [np.zeros_like(x) for _ in range(N)]
    for sampled in rounds:
        delta_ys, delta_cs = [], []
        for i, batches in sampled.items():
            y = x
            for batch in batches:
                y = y - local_rate * (gradient(y, *batch) - controls[i] + c)
            if option == "I":
                new_control = np.mean([gradient(x, *batch) for batch in batches], axis=0)
            else:
                new_control = controls[i] - c + (x - y) / (len(batches) * local_rate)
            delta_ys.append(y - x)
            delta_cs.append(new_control - controls[i])
            controls[i] = new_control
        x = x + global_rate * np.mean(delta_ys, axis=0)
        c = c + len(sampled) / N * np.mean(delta_cs, axis=0)
    return x, c, controls
