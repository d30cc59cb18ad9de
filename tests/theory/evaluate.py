"""What lur and theory say about a published instance, under the names the instance uses.

One function per claim id: inputs in, the expected quantities out. `tests.theory.tables` holds our own copy of a few
instances; the whole file is read where it is at hand.
"""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np

import lur
import theory
import theory.examples
import theory.maml
from tests.lur.problems import descent_batches, quadratic_loss
from theory.enumeration import batch_sequences


def number(text):
    """'3/4', '0.25' or 2 as a float, correctly rounded."""
    return float(Fraction(str(text)))


def array(nested):
    """Nested lists of numbers in text as a float64 array."""
    return np.vectorize(number, otypes=[float])(np.asarray(nested, dtype=object))


def problem_of(entry):
    return theory.Problem(array(entry["A"]), array(entry["c"]), array(entry["p"]))


def stochastic_of(client):
    return theory.StochasticProblem(array(client["A_z"])[None], array(client["c_z"])[None], array(client["p"])[None])


def one_round(inputs, problem, eta):
    """LocalUpdate's next model under full participation, weighted by p."""
    algorithm = lur.local_update(quadratic_loss, lur.theta.fedavg(inputs["K"]))
    state = algorithm.init(array(inputs["x"]), number(inputs["gamma"]), eta)
    batches = descent_batches(np.asarray(problem.A), np.asarray(problem.c), inputs["K"])
    return np.asarray(algorithm.round(state, batches, problem.p)[0].params)


def messages_of(inputs, theta):
    """Every message an SGD client can send, with its probability."""
    client, gamma, x = inputs["client"], number(inputs["gamma"]), array(inputs["x"])
    A_z, c_z, p_z = jnp.asarray(array(client["A_z"])), jnp.asarray(array(client["c_z"])), array(client["p"])
    draws, probability = batch_sequences(p_z, len(theta), inputs["B"])
    sent = jax.vmap(lambda d: lur.client.inner_loop(quadratic_loss, x, (A_z[d], c_z[d]), gamma, theta)[0])(draws)
    return np.asarray(sent), np.asarray(probability)


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


def theorem_1(inputs, problems):
    theta = tuple(array(inputs["Theta"]))
    sent, probability = messages_of(inputs, theta)
    mean = probability @ sent
    client = stochastic_of(inputs["client"]).problem
    Q = theory.distortion(client.A[0], number(inputs["gamma"]), theta)
    np.testing.assert_allclose(Q @ client.A[0] @ (array(inputs["x"]) - client.c[0]), mean, rtol=1e-12)
    return {"E_InnerLoop": mean, "Q_i": Q, "Var_InnerLoop": probability @ np.sum((sent - mean) ** 2, axis=1)}


def theorem_2(inputs, problems):
    problem, i = problem_of(problems[inputs["problem"]]), inputs["client"]
    A, c, x, gamma, K = problem.A[i], problem.c[i], array(inputs["x"]), number(inputs["gamma"]), inputs["K"]
    batches = tuple(jnp.broadcast_to(v, (2 * K + 1, 1, *v.shape)) for v in (A, c))
    by_autodiff = lur.maml.maml_gradient(quadratic_loss, x, batches, gamma, K)
    by_theta, _ = lur.client.inner_loop(quadratic_loss, x, batches, gamma, lur.theta.maml(K))
    np.testing.assert_allclose(by_autodiff, by_theta, rtol=1e-12)
    np.testing.assert_allclose(by_autodiff, theory.maml.maml_gradient(A, c, x, gamma, K), rtol=1e-12)
    return {"grad_m_K": by_autodiff, "m_K": theory.maml.maml_loss(A, c, x, gamma, K)}


def worked(inputs, problems):
    """The two-client example from the general formulas; the paper's closed forms must say the same."""
    problem, gamma = theory.two_clients(), number(inputs["gamma"])
    K = inputs.get("K", 2)
    theta = lur.theta.fedavg(K)
    Q = np.asarray(theory.distortion(problem.A, gamma, theta)).ravel()
    hessian = float(theory.surrogate_hessian(problem, gamma, theta)[0, 0])
    closed = theory.examples.vary_gamma(gamma) if K == 2 else theory.examples.vary_steps(K)
    if K == 2 or gamma == 0.5:
        np.testing.assert_allclose(closed.Q, Q, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(closed.hessian, hessian, rtol=1e-12)
    found = {"Q": Q, "Q1": Q[0], "Q2": Q[1], "hessian_f": hessian}
    if hessian > 0:
        argmin = float(theory.surrogate_minimizer(problem, gamma, theta)[0])
        found |= {"argmin": argmin, "distance": abs(argmin - float(theory.minimizer(problem)[0]))}
        np.testing.assert_allclose(
            [closed.argmin, closed.distance], [argmin, found["distance"]], rtol=1e-12, atol=1e-15
        )
    return found


def density(inputs, problems):
    gamma, K = number(inputs["gamma"]), inputs["K"]
    closed, quadrature = theory.examples.density_closed_form(gamma, K), theory.examples.density_quadrature(gamma, K)
    np.testing.assert_allclose(closed.argmin, quadrature.argmin, rtol=1e-11)
    return {"x_star": closed.argmin, "hessian": closed.hessian, "x_star_exact": closed.argmin}


def theta_of(inputs):
    return tuple(array(inputs["Theta"])) if "Theta" in inputs else lur.theta.fedavg(inputs["K"])


def distortion(inputs, problems):
    A, gamma = array(inputs["A"]), number(inputs["gamma"])
    Q = np.asarray(theory.distortion(A, gamma, theta_of(inputs)))
    return {
        "Q": Q,
        "eig_Q": np.linalg.eigvalsh(Q),
        "eig_A": np.linalg.eigvalsh(A),
        "eig_QA": np.linalg.eigvalsh(Q @ A),
        "lmax": np.linalg.eigvalsh(Q)[-1],
        "lmin": np.linalg.eigvalsh(Q)[0],
    }


def distortion_fomaml(inputs, problems):
    A, gamma, K = array(inputs["A"]), number(inputs["gamma"]), inputs["K"]
    spectrum = np.linalg.eigvalsh(np.asarray(theory.distortion(A, gamma, lur.theta.fomaml(K))))
    mu, L = np.linalg.eigvalsh(A)[[0, -1]]
    return {
        "lmax": spectrum[-1],
        "lmin": spectrum[0],
        "printed_lmax": (1 - gamma * mu) ** K,
        "printed_lmin": (1 - gamma * L) ** K,
    }


def hessian_fedavg(inputs, problems):
    A, gamma, K = array(inputs["A"]), number(inputs["gamma"]), inputs["K"]
    mu, L = np.linalg.eigvalsh(A)[[0, -1]]
    spectrum = np.linalg.eigvalsh(np.asarray(theory.distortion(A, gamma, lur.theta.fedavg(K))) @ A)
    found = {"lmax": theory.phi(K, L, gamma), "lmin": theory.phi(K, mu, gamma)}
    np.testing.assert_allclose([found["lmin"], found["lmax"]], spectrum[[0, -1]], rtol=1e-12)
    return found


def decay(inputs, problems):
    problem = problem_of(problems[inputs["problem"]])
    rule = lur.decay.plateau(
        "paper", number(inputs["Delta"]), number(inputs["al"]), number(inputs["be"]),
        inputs.get("W", 1), inputs.get("Pat", 1), inputs.get("C", 0),
    )  # fmt: skip
    algorithm = lur.local_update(quadratic_loss, lur.theta.fedavg(inputs["K"]), decay=rule)
    state = algorithm.init(array(inputs["x1"]), number(inputs["g"]), number(inputs["eta"]))
    batches = descent_batches(np.asarray(problem.A), np.asarray(problem.c), inputs["K"])
    for _ in range(inputs["Tm"]):
        state, info = algorithm.round(state, batches, problem.p)
    return {
        "x_final": state.params,
        "gamma": state.client_lr,
        "eta": state.server_lr,
        "n_decays": state.decay_state.decays,
        "loss_T": info.loss,
    }


EVALUATE = {
    "D2": lambda inputs, problems: lur.theta.K(inputs["Theta"]),
    "A1": fedavg_averages_models,
    "A2": reptile,
    "L1": client_loss,
    "L1p": client_loss,
    "L2": gradient_recurrence,
    "T1": theorem_1,
    "T2": theorem_2,
    "E1": worked,
    "E1a": worked,
    "E2": worked,
    "E3": density,
    "L3": distortion,
    "L4": distortion,
    "L5": distortion_fomaml,
    "L6": distortion,
    "L7": distortion,
    "L9": hessian_fedavg,
    "D7f": decay,
    "D7h": lambda inputs, problems: lur.decay.rounds_to_see(inputs["N"], inputs["M"]),
}


def check(id, instance, problems):
    """Every expected quantity of an instance, to 1e-12 relative or to its own tolerance."""
    found, expected = EVALUATE[id](instance["inputs"], problems), instance["expected"]
    tolerance = instance.get("tolerance", 1e-12)
    if not isinstance(expected, dict):
        found, expected = {"value": found}, {"value": expected}
    for name, value in expected.items():
        if value is not None:
            np.testing.assert_allclose(
                np.asarray(found[name], float), array(value), rtol=tolerance, atol=1e-15, err_msg=f"{id} {name}"
            )
