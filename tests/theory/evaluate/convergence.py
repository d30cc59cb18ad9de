"""Section 7, up to the rates of convergence, which tests.theory.test_convergence reproduces."""

import numpy as np

import lur
import theory
from tests.theory.evaluate.inputs import all_messages, array, matrix, number, stochastic_of, variance


def gradient_noise(inputs, problems):
    """E||grad f(x; z) - grad f_i(x)||^2: the variance of a single gradient."""
    return {"E_sq_dev": variance(*all_messages(inputs, array([inputs["x"]]), 0.0, (1.0,), 1))}


def message_variance(inputs, problems):
    """By enumeration, at two models, since additive noise does not depend on x; by its closed form too."""
    client, gamma, K, B = inputs["client"], number(inputs["gamma"]), inputs["K"], inputs["B"]
    mean = stochastic_of(client).problem
    A, c = np.asarray(mean.A[0]), np.asarray(mean.c[0])
    found = [variance(*all_messages(client, x, gamma, lur.theta.fedavg(K), B)) for x in (c, c + 1)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
    sent, probability = all_messages(client, c, 0.0, (1.0,), 1)
    step = np.eye(len(c)) - gamma * A
    noise = [sent @ np.linalg.matrix_power(step, j) for j in range(K)]
    np.testing.assert_allclose(found[0], sum(variance(each, probability) for each in noise) / B, rtol=1e-12)
    G2 = variance(sent, probability)
    return {"Var_InnerLoop": found[0], "G2": G2, "printed_bound": K * G2 / (inputs["M"] * B)}


def correlated_gradients(inputs, problems):
    """s_k = g_k - E[g_k] of the first two gradients along the same mini-batches."""
    x = np.array([0.5])
    (g1, p), (g2, _), (both, _) = (
        all_messages(inputs, x, number(inputs["gamma"]), theta, inputs["B"])
        for theta in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
    )
    s1, s2 = g1 - p @ g1, g2 - p @ g2
    return {"E_s2_sq": variance(g2, p), "E_s1s2": p @ np.sum(s1 * s2, axis=1), "Var_sum": variance(both, p)}


def surrogate_curvatures(inputs, problems):
    A, gamma, K = matrix(inputs["A"]), number(inputs["gamma"]), inputs["K"]
    client = theory.Problem(A[None], np.zeros((1, len(A))))
    spectrum = np.linalg.eigvalsh(theory.surrogate_hessian(client, gamma, lur.theta.fedavg(K)))
    mu, L = np.linalg.eigvalsh(A)[[0, -1]]
    return {
        "min_eig": spectrum[0],
        "max_eig": spectrum[-1],
        "mu_gamma": theory.phi(K, mu, gamma),
        "L_gamma": theory.phi(K, L, gamma),
    }


def smoothness(inputs, problems):
    K, L = inputs["K"], number(inputs["L"])
    return {"L_gamma": theory.phi(K, L, number(inputs["gamma"])), "at_0": theory.phi(K, L, 0.0)}


EVALUATE = {
    "A3a": gradient_noise,
    "L17": message_variance,
    "L17p": correlated_gradients,
    "L18": surrogate_curvatures,
    "S8": smoothness,
}
