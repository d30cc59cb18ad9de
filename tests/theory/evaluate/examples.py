"""Section 4: the worked examples."""

import numpy as np

import lur
import theory
import theory.examples
from tests.theory.evaluate.inputs import number


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
    client = theory.client_hessians(problem, gamma, theta)[1, 0, 0]
    found = {"Q": Q, "Q1": Q[0], "Q2": Q[1], "Q2A2": client, "hessian_f": hessian}
    if hessian > 0:
        argmin = float(theory.surrogate_minimizer(problem, gamma, theta)[0])
        found |= {"argmin": argmin, "distance": float(theory.minimizer_distance(problem, gamma, theta))}
        np.testing.assert_allclose(
            [closed.argmin, closed.distance], [argmin, found["distance"]], rtol=1e-12, atol=1e-15
        )
    return found


def density(inputs, problems):
    gamma, K = number(inputs["gamma"]), inputs["K"]
    closed, quadrature = theory.examples.density_closed_form(gamma, K), theory.examples.density_quadrature(gamma, K)
    np.testing.assert_allclose(closed.argmin, quadrature.argmin, rtol=1e-11)
    return {"x_star": closed.argmin, "hessian": closed.hessian, "x_star_exact": closed.argmin}


EVALUATE = {
    "E1": worked,
    "E1a": worked,
    "E1b": worked,
    "E2": worked,
    "E3": density,
    "E3c": lambda inputs, problems: theory.examples.density_variance(number(inputs["gamma"]), inputs["K"]),
}
