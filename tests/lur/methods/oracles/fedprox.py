"""FedProx (T. Li et al., 2020, Algorithm 2), whose clients run SGD on the proximal objective."""


def run(x, rounds, gradient, gamma, eta, prox):
    for clients in rounds:
        mean = 0.0
        for _, p, batches in clients:
            y = x
            for batch in batches:
                y = y - gamma * (gradient(y, batch) + prox * (y - x))
            mean = mean + p * y
        x = x + eta * (mean - x)
    return x
