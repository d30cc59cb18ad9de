"""DiLoCo (Douillard et al., 2023, Algorithm 1) with AdamW (Loshchilov and Hutter, 2019) and Nesterov momentum."""

import numpy as np

ADAMW = {"b1": 0.9, "b2": 0.999, "eps": 1e-8, "weight_decay": 0.1}
OUTER_MOMENTUM = 0.9


def run(x, rounds, gradient, gamma, eta, keep, adamw=ADAMW, correction=lambda b, t: 1 - b**t):
    b1, b2, eps, weight_decay = adamw["b1"], adamw["b2"], adamw["eps"], adamw["weight_decay"]
    inner, velocity = {}, np.zeros_like(x)
    for clients in rounds:
        outer_gradient = 0.0
        for i, p, batches in clients:
            y = x
            m, v, t = inner.get(i, (0.0, 0.0, 0)) if keep else (0.0, 0.0, 0)
            for batch in batches:
                g, t = gradient(y, batch), t + 1
                m = b1 * m + (1 - b1) * g
                v = b2 * v + (1 - b2) * g * g
                m_hat, v_hat = m / correction(b1, t), v / correction(b2, t)
                y = y - gamma * (m_hat / (np.sqrt(v_hat) + eps) + weight_decay * y)
            inner[i] = (m, v, t)
            outer_gradient = outer_gradient + p * (x - y)
        velocity = OUTER_MOMENTUM * velocity + outer_gradient
        x = x - eta * (outer_gradient + OUTER_MOMENTUM * velocity)
    return x
