"""FedAvg with two client rates: 2 x(gamma) - x(2 gamma) of two models, or along 2 q(gamma) - q(2 gamma)."""


def mean_update(x, clients, gradient, gamma):
    total = 0.0
    for _, p, batches in clients:
        y = x
        for batch in batches:
            g = gradient(y, batch)
            total, y = total + p * g, y - gamma * g
    return total


def run(x, rounds, gradient, gamma, eta, what):
    first, second = x, x
    for clients in rounds:
        if what == "models":
            first = first - eta * mean_update(first, clients, gradient, gamma)
            second = second - eta * mean_update(second, clients, gradient, 2 * gamma)
        else:
            once, twice = (mean_update(first, clients, gradient, rate) for rate in (gamma, 2 * gamma))
            first = first - eta * (2 * once - twice)
    return 2 * first - second if what == "models" else first
