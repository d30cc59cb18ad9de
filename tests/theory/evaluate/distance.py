"""Section 6: the distance between minimisers, and its bounds."""

import numpy as np

import lur
import theory
from tests.theory.evaluate.inputs import array, matrix, number, problem_of, theta_of


def asymptotic(inputs, problems):
    problem, x, gamma = problem_of(problems[inputs["problem"]]), array(inputs["x"]), number(inputs["gamma"])
    return {
        "f_tilde": theory.surrogate_loss(problem, x, gamma, lur.theta.fedavg(inputs["K"])),
        "upper": theory.limit_loss(problem, x, gamma),
        "c": theory.average_minimizer(problem),
    }


def minimizers(inputs, problems):
    """Both minimisers; the shift between them, computed without their difference, must be that difference."""
    problem, gamma, theta = problem_of(problems[inputs["problem"]]), number(inputs["gamma"]), theta_of(inputs)
    surrogate, true = theory.surrogate_minimizer(problem, gamma, theta), theory.minimizer(problem)
    np.testing.assert_allclose(theory.minimizer_shift(problem, gamma, theta), surrogate - true, rtol=1e-12, atol=1e-15)
    return {"x_star_gamma": surrogate, "x_star": true}


def expected_inverse(inputs, problems):
    problem = problem_of(problems[inputs["problem"]])
    gap = np.asarray(theory.inverse_gap(problem))
    mean = np.tensordot(np.asarray(problem.p), np.asarray(problem.A), 1)
    return {
        "diff": gap,
        "min_eig": np.linalg.eigvalsh(gap)[0],
        "norm_inv_mean": np.linalg.norm(np.linalg.inv(mean), 2),
    }


def distance(inputs, problems):
    """Theorem 3 and, for Theta_{1:K}, Theorem 4, with the constants they need."""
    problem, gamma, theta = problem_of(problems[inputs["problem"]]), number(inputs["gamma"]), theta_of(inputs)
    found = theory.constants(problem)._asdict() | {
        "distance": theory.minimizer_distance(problem, gamma, theta),
        "printed_bound": theory.minimizer_distance_bound(problem, gamma, theta),
        "sharper_bound": theory.sharper_distance_bound(problem, gamma, theta),
        "instance_optimal_bound": theory.instance_optimal_distance_bound(problem, gamma, theta),
    }
    if "K" in inputs:
        found["fedavg_bound"] = theory.fedavg_distance_bound(problem, gamma, inputs["K"])
        found["sigA_bound"] = theory.fedavg_heterogeneity_bound(problem, gamma, inputs["K"])
    return found


def scaled_hessian(inputs, problems):
    """||tau Q A - A|| and ||tau Q A - I|| of one client, with the bound (K L - phi) / K."""
    A, gamma, K = matrix(inputs["A"]), number(inputs["gamma"]), inputs["K"]
    client = theory.Problem(A[None], np.zeros((1, len(A))))
    scaled = np.asarray(theory.client_hessians(client, gamma, lur.theta.fedavg(K))[0]) / K
    gap = np.asarray(theory.hessian_gaps(client, gamma, lur.theta.fedavg(K))[0]) / K
    np.testing.assert_allclose(A - scaled, gap, rtol=1e-12, atol=1e-14)
    return {
        "norm_tauQA_minus_A": np.linalg.norm(gap, 2),
        "norm_tauQA_minus_I": np.linalg.norm(scaled - np.eye(len(A)), 2),
        "bound": theory.phi_drop(K, np.linalg.eigvalsh(A)[-1], gamma) / K,
    }


def largest_rate(inputs, problems):
    K, lam, eps = inputs["K"], number(inputs["lam"]), number(inputs["eps"])
    gamma = theory.client_rate_limit(K, lam, eps)
    return {"gamma": gamma, "phi": theory.phi(K, lam, gamma), "rhs": (1 - eps) * K * lam}


def largest_rate_of_all(inputs, problems):
    K, mu, L, eps = inputs["K"], *(number(inputs[name]) for name in ("mu", "L", "eps"))
    gamma = theory.client_rate_limit(K, L, eps)
    found = {"gamma": gamma, "phi_L": theory.phi(K, L, gamma), "phi_mu": theory.phi(K, mu, gamma)}
    assert found["phi_L"] >= (1 - eps) * K * L
    assert found["phi_mu"] >= (1 - eps) * K * mu
    return found


def distance_by_eps(inputs, problems):
    problem, K, eps = problem_of(problems[inputs["problem"]]), inputs["K"], number(inputs["eps"])
    gamma = theory.client_rate_limit(K, theory.constants(problem).L, eps)
    return {
        "gamma": gamma,
        "distance": theory.minimizer_distance(problem, gamma, lur.theta.fedavg(K)),
        "bound": theory.fedavg_eps_distance_bound(problem, eps, K),
    }


def distance_of_gammas(inputs, problems):
    problem, K = problem_of(problems[inputs["problem"]]), inputs["K"]
    gamma1, gamma2 = number(inputs["gamma1"]), number(inputs["gamma2"])
    linear = theory.gamma_distance_linear_bound(problem, gamma1, gamma2, K)
    return {
        "distance": theory.minimizer_distance(problem, gamma2, lur.theta.fedavg(K), gamma1),
        "thm_bound": theory.gamma_distance_bound(problem, gamma1, gamma2, K),
        "cor_printed": 2 / K * linear,
        "cor_corrected": linear,
    }


def hessian_gap(inputs, problems):
    """The eigenvalues of Q(gamma_1) A - Q(gamma_2) A: those of A in phi(gamma_1) - phi(gamma_2)."""
    A, K = matrix(inputs["A"]), inputs["K"]
    gamma1, gamma2 = number(inputs["gamma1"]), number(inputs["gamma2"])
    client = theory.Problem(A[None], np.zeros((1, len(A))))
    spectrum = np.linalg.eigvalsh(theory.hessian_gaps(client, gamma2, lur.theta.fedavg(K), gamma1)[0])
    drops = np.asarray(theory.phi_drop(K, np.linalg.eigvalsh(A), gamma2, gamma1))
    np.testing.assert_allclose(spectrum, np.sort(drops), rtol=1e-12)
    return {"eigs": spectrum}


EVALUATE = {
    "L11": asymptotic,
    "L12": minimizers,
    "L13": expected_inverse,
    "T3": distance,
    "T4": distance,
    "T4a": scaled_hessian,
    "L14": largest_rate,
    "C3": largest_rate_of_all,
    "C4": distance_by_eps,
    "T5": distance_of_gammas,
    "T5q": hessian_gap,
}
