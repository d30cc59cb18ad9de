"""DiLoCo (Douillard et al., 2023, Algorithm 1) with AdamW (Loshchilov and Hutter, 2019) and Nesterov momentum."""

import numpy as np

B1, B2, EPS, WEIGHT_DECAY, OUTER_MOMENTUM = 0.9, 0.999, 1e-8, 0.1, 0.9


def run(x, rounds, gradient, gamma, eta, keep, correction=lambda b, t: 1 - b**t):
    inner, velocity = {}, np.zeros_like(x)
    for clients in rounds:
        outer_gradient = 0.0
        for i, p, batches in clients:
            y = x
            m, v, t = inner.get(i, (0.0, 0.0, 0)) if keep else (0.0, 0.0, 0)
            for batch in batches:
                g, t = gradient(y, batch), t + 1
                m = B1 * m + (1 - B1) * g
                v = B2 * v + (1 - B2) * g * g
                m_hat, v_hat = m / correction(B1, t), v / correction(B2, t)
                y = y - gamma * (m_hat / (np.sqrt(v_hat) + EPS) + WEIGHT_DECAY * y)
            inner[i] = (m, v, t)
            outer_gradient = outer_gradient + p * (x - y)
        velocity = OUTER_MOMENTUM * velocity + outer_gradient
        x = x - eta * (outer_gradient + OUTER_MOMENTUM * velocity)
    return x
