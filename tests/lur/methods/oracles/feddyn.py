"""FedDyn (Acar et al., 2021, Algorithm 1), whose argmin is some steps of gradient descent from the server's model."""

import numpy as np


def run(theta, gradient, rounds, *, m, alpha, rate):
    """The server's model, its h, and the gradient that each device remembers."""
    h, remembered = np.zeros_like(theta), [np.zeros_like(theta) for _ in range(m)]
    for active in rounds:
        models = []
        for k, batches in active.items():
            model = theta
            for batch in batches:
                model = model - rate * (gradient(model, *batch) - remembered[k] + alpha * (model - theta))
            remembered[k] = remembered[k] - alpha * (model - theta)
            models.append(model)
        h = h - alpha / m * np.sum([model - theta for model in models], axis=0)
        theta = np.sum(models, axis=0) / len(active) - h / alpha
    return theta, h, remembered
