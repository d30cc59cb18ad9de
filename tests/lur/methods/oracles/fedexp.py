"""FedExP (Jhunjhunwala et al., 2023, Algorithm 1). Returns the last two iterates."""


def run(x, rounds, gradient, gamma, eta, epsilon=1e-3):
    before = x
    for clients in rounds:
        mean, mean_square = 0.0, 0.0
        for _, p, batches in clients:
            y = x
            for batch in batches:
                y = y - gamma * gradient(y, batch)
            delta = x - y
            mean, mean_square = mean + p * delta, mean_square + p * (delta @ delta)
        eta_g = max(1.0, mean_square / (2 * (mean @ mean + epsilon)))
        before, x = x, x - eta * eta_g * mean
    return x, before
