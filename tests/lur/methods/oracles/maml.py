"""MAML (Finn et al., 2017, Algorithm 2) on quadratics: the last mini-batch of a task is its query."""

import numpy as np


def run(x, rounds, gradient, gamma, eta, hessian, order):
    identity = np.eye(len(x))
    for tasks in rounds:
        meta_gradient = 0.0
        for _, p, batches in tasks:
            *support, query = batches
            y, jacobian = x, identity
            for batch in support:
                jacobian = (identity - gamma * hessian(batch)) @ jacobian
                y = y - gamma * gradient(y, batch)
            after = gradient(y, query)
            meta_gradient = meta_gradient + p * (jacobian.T @ after if order == 2 else after)
        x = x - eta * meta_gradient
    return x
