"""Sections 2 and 3: what clients send, the surrogate it is the gradient of, and MAML."""

import jax.numpy as jnp
import numpy as np

import lur
import theory
import theory.maml
from tests.lur.problems import descent_batches, quadratic_loss
from tests.theory.evaluate.inputs import array, matrix, messages_of, number, problem_of, stochastic_of, variance


def one_round(inputs, problem, eta):
    """LocalUpdate's next model under full participation, weighted by p."""
    algorithm = lur.local_update(quadratic_loss, lur.theta.fedavg(inputs["K"]))
    state = algorithm.init(array(inputs["x"]), number(inputs["gamma"]), eta)
    batches = descent_batches(np.asarray(problem.A), np.asarray(problem.c), inputs["K"])
    return np.asarray(algorithm.round(state, batches, problem.p)[0].params)


def fedavg_averages_models(inputs, problems):
    problem = problem_of(problems[inputs["problem"]])
    return {"x_next": one_round(inputs, problem, number(inputs["eta"]))}


def reptile(inputs, problems):
    eta = number(inputs["eta_delta"]) * number(inputs["gamma"])
    return {"x_next": one_round(inputs, problem_of(problems[inputs["problem"]]), eta), "equiv_eta": eta}


def client_loss(inputs, problems):
    stochastic, x = stochastic_of(inputs["client"]), array(inputs["x"])
    client, tau = stochastic.problem, theory.loss_offset(stochastic)[0]
    A, c = np.asarray(client.A[0]), np.asarray(client.c[0])
    return {
        "A_i": A,
        "c_i": c,
        "f_i": theory.client_losses(client, x)[0] + tau,
        "tau_i": tau,
        "tau_i_printed": tau - 0.5 * c @ A @ c,
    }


def gradient_recurrence(inputs, problems):
    expected = []
    for k in range(1, inputs["K"] + 1):
        sent, probability = messages_of(inputs, lur.theta.fomaml(k))
        expected.append(probability @ sent)
    return {"E_g": expected}


def surrogate_loss(inputs, problems):
    """f~_i of one client; its gradient must be what the client sends."""
    problem, i, x = problem_of(problems[inputs["problem"]]), inputs["client"], array(inputs["x"])
    gamma, theta = number(inputs["gamma"]), lur.theta.fedavg(inputs["K"])
    client = theory.Problem(problem.A[i : i + 1], problem.c[i : i + 1])
    batches = tuple(v[0] for v in descent_batches(np.asarray(client.A), np.asarray(client.c), inputs["K"]))
    sent, _ = lur.inner_loop(quadratic_loss, x, batches, gamma, theta)
    np.testing.assert_allclose(theory.surrogate_gradient(client, x, gamma, theta), sent, rtol=1e-12, atol=1e-14)
    return {"f_tilde_i": theory.client_surrogate_losses(problem, x, gamma, theta)[i]}


def theorem_1(inputs, problems):
    theta = tuple(array(inputs["Theta"]))
    sent, probability = messages_of(inputs, theta)
    mean = probability @ sent
    client = stochastic_of(inputs["client"]).problem
    Q = theory.distortion(client.A[0], number(inputs["gamma"]), theta)
    np.testing.assert_allclose(Q @ client.A[0] @ (array(inputs["x"]) - client.c[0]), mean, rtol=1e-12)
    return {"E_InnerLoop": mean, "Q_i": Q, "Var_InnerLoop": variance(sent, probability)}


def maml(A, c, x, gamma, K):
    """The MAML gradient by autodiff, equal to the message of Theta_{2K+1} and to the closed form."""
    batches = repeated(A, c, 2 * K + 1)
    gradient = lur.maml.maml_gradient(quadratic_loss, x, batches, gamma, K)
    by_theta, _ = lur.inner_loop(quadratic_loss, x, batches, gamma, lur.theta.maml(K))
    np.testing.assert_allclose(gradient, by_theta, rtol=1e-12)
    np.testing.assert_allclose(gradient, theory.maml.maml_gradient(A, c, x, gamma, K), rtol=1e-12)
    return gradient


def repeated(A, c, steps):
    """Mini-batches of the same single example: gradient descent."""
    return tuple(jnp.broadcast_to(v, (steps, 1, *v.shape)) for v in (A, c))


def theorem_2(inputs, problems):
    problem, i = problem_of(problems[inputs["problem"]]), inputs["client"]
    A, c, x, gamma, K = problem.A[i], problem.c[i], array(inputs["x"]), number(inputs["gamma"]), inputs["K"]
    return {"grad_m_K": maml(A, c, x, gamma, K), "m_K": theory.maml.maml_loss(A, c, x, gamma, K)}


def gradient_along_descent(inputs, problems):
    """The gradient of f_i at X_k, the (k+1)-th that gradient descent meets, beside that of the MAML loss."""
    A, gamma, K = jnp.asarray(matrix(inputs["A"])), number(inputs["gamma"]), inputs["K"]
    c, x = (jnp.asarray(array([inputs[name]])) for name in "cx")

    def at(k):
        return lur.inner_loop(quadratic_loss, x, repeated(A, c, k + 1), gamma, lur.theta.fomaml(k + 1))[0][0]

    return {
        "grad_f_XK": at(K),
        "grad_m": maml(A, c, x, gamma, K)[0],
        "grad_at_X_2K": at(2 * K),
        "grad_at_X_2K_plus_1": at(2 * K + 1),
    }


EVALUATE = {
    "D2": lambda inputs, problems: lur.theta.K(inputs["Theta"]),
    "A1": fedavg_averages_models,
    "A2": reptile,
    "L1": client_loss,
    "L1p": client_loss,
    "L2": gradient_recurrence,
    "D4": surrogate_loss,
    "T1": theorem_1,
    "T2": theorem_2,
    "T2p": gradient_along_descent,
    "T2w": gradient_along_descent,
}
