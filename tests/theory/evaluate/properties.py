"""Section 5: the spectra of Q_i and Q_i A_i, and the condition number of the surrogate."""

import numpy as np

import lur
import theory
from tests.theory.evaluate.inputs import matrix, number, problem_of, theta_of


def distortion(inputs, problems):
    """Q and Q A with their eigenvalues, which must be those that the eigenvalues of A become."""
    A, gamma, theta = matrix(inputs["A"]), number(inputs["gamma"]), theta_of(inputs)
    Q = np.asarray(theory.distortion(A, gamma, theta))
    of_A, of_Q, of_QA = (np.linalg.eigvalsh(M) for M in (A, Q, Q @ A))
    become = np.asarray(theory.distortion_eigenvalue(of_A, gamma, theta))
    np.testing.assert_allclose(of_Q, np.sort(become), rtol=1e-12)
    np.testing.assert_allclose(of_QA, np.sort(become * of_A), rtol=1e-12)
    return {"Q": Q, "eig_Q": of_Q, "eigs": of_Q, "eig_A": of_A, "eig_QA": of_QA, "lmax": of_Q[-1], "lmin": of_Q[0]}


def distortion_fomaml(inputs, problems):
    A, gamma, K = matrix(inputs["A"]), number(inputs["gamma"]), inputs["K"]
    spectrum = np.linalg.eigvalsh(np.asarray(theory.distortion(A, gamma, lur.theta.fomaml(K))))
    mu, L = np.linalg.eigvalsh(A)[[0, -1]]
    return {
        "lmax": spectrum[-1],
        "lmin": spectrum[0],
        "printed_lmax": (1 - gamma * mu) ** K,
        "printed_lmin": (1 - gamma * L) ** K,
    }


def hessian(inputs, problems):
    """The extreme eigenvalues of Q A within their bounds, for any Theta."""
    A, gamma, theta = matrix(inputs["A"]), number(inputs["gamma"]), theta_of(inputs)
    mu, L = np.linalg.eigvalsh(A)[[0, -1]]
    spectrum = np.linalg.eigvalsh(np.asarray(theory.distortion(A, gamma, theta)) @ A)
    bounds = theory.client_hessian_bounds(gamma, theta, mu, L)
    assert bounds.lower <= spectrum[0] <= spectrum[-1] <= bounds.upper
    return {"lmax": spectrum[-1], "lmin": spectrum[0], "upper": bounds.upper, "lower": bounds.lower}


def hessian_fedavg(inputs, problems):
    A, gamma, K = matrix(inputs["A"]), number(inputs["gamma"]), inputs["K"]
    mu, L = np.linalg.eigvalsh(A)[[0, -1]]
    spectrum = np.linalg.eigvalsh(np.asarray(theory.distortion(A, gamma, lur.theta.fedavg(K))) @ A)
    found = {"lmax": theory.phi(K, L, gamma), "lmin": theory.phi(K, mu, gamma)}
    np.testing.assert_allclose([found["lmin"], found["lmax"]], spectrum[[0, -1]], rtol=1e-12)
    return found


def hessian_fomaml(inputs, problems):
    """Theta_K with gamma <= 1/(K L_i): the extremes are those of the extreme eigenvalues of A_i."""
    A, gamma, K = matrix(inputs["A"]), number(inputs["gamma"]), inputs["K"]
    mu, L = np.linalg.eigvalsh(A)[[0, -1]]
    spectrum = np.linalg.eigvalsh(np.asarray(theory.distortion(A, gamma, lur.theta.fomaml(K))) @ A)
    np.testing.assert_allclose([(1 - gamma * v) ** (K - 1) * v for v in (mu, L)], spectrum[[0, -1]], rtol=1e-12)
    condition = theory.fomaml_condition_bound(K, mu, L, gamma)
    np.testing.assert_allclose(condition, spectrum[-1] / spectrum[0], rtol=1e-12)
    return {"lmax": spectrum[-1], "lmin": spectrum[0]}


def phi(inputs, problems):
    return theory.phi(inputs["K"], number(inputs["lam"]), number(inputs["gamma"]))


def phi_ratio(inputs, problems):
    """phi_L / phi_mu; where gamma <= 1/L it is the bound on the condition number."""
    K, mu, L, gamma = inputs["K"], *(number(inputs[name]) for name in ("mu", "L", "gamma"))
    ratio = theory.phi(K, L, gamma) / theory.phi(K, mu, gamma)
    if gamma * L <= 1:
        np.testing.assert_allclose(theory.fedavg_condition_bound(K, mu, L, gamma), ratio, rtol=1e-15)
    return {"ratio": ratio, "L_over_mu": L / mu}


def condition_number(inputs, problems):
    problem, gamma, K = problem_of(problems[inputs["problem"]]), number(inputs["gamma"]), inputs["K"]
    spectrum = np.linalg.eigvalsh(np.asarray(theory.surrogate_hessian(problem, gamma, lur.theta.fedavg(K))))
    true = np.linalg.eigvalsh(np.asarray(theory.surrogate_hessian(problem, 0.0, (1.0,))))
    mu, L, _, _ = theory.constants(problem)
    return {
        "L_tilde": spectrum[-1],
        "mu_tilde": spectrum[0],
        "kappa_tilde": spectrum[-1] / spectrum[0],
        "bound": theory.fedavg_condition_bound(K, mu, L, gamma),
        "kappa_true_f": true[-1] / true[0],
    }


EVALUATE = {
    "D3": distortion,
    "L3": distortion,
    "L4": distortion,
    "L4c": distortion,
    "L5": distortion_fomaml,
    "L6": distortion,
    "L7": distortion,
    "L8a": distortion,
    "L8b": hessian,
    "D5": phi,
    "L9": hessian_fedavg,
    "L10": hessian_fomaml,
    "C1": condition_number,
    "S2": phi_ratio,
    "S2m": lambda inputs, problems: phi_ratio(inputs, problems)["ratio"],
    "L16": phi_ratio,
}
