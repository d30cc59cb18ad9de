"""Instances beyond the paper (B...), computed by the general tools, mostly `surrogate_of`."""

import jax
import jax.numpy as jnp
import numpy as np

import lur
import theory
import theory.maml
from tests.theory.evaluate.inputs import array, matrix, number, problem_of, stochastic_of, theta_of
from theory import clients, methods, moments
from theory.extrapolation import extrapolated_shift
from theory.optimal import worst_condition


def one_client(inputs, problems):
    """The problem of a single client, and x."""
    problem, i = problem_of(problems[inputs["problem"]]), inputs["client"]
    return theory.Problem(problem.A[i : i + 1], problem.c[i : i + 1]), array(inputs["x"])


def message(surrogate, x):
    return surrogate.hessian @ x + surrogate.gradient_at_0


def fedprox(inputs, problems):
    gamma, rho, theta = number(inputs["gamma"]), number(inputs["rho"]), theta_of(inputs)
    if "client" not in inputs:
        problem = problem_of(problems[inputs["problem"]])

        def ends(client, **options):
            return theory.surrogate_of(client, problem, **options).minimizer

        K = len(theta)
        return {
            "x_star_fedprox": ends(clients.sgd(gamma, theta, rho=rho), steps=K),
            "x_star_exact_prox": ends(clients.exact_prox(rho)),
            "x_star_fedavg": ends(clients.sgd(gamma, theta), steps=K),
            "x_star": ends(clients.sgd(gamma, (1.0,))),
        }
    problem, x = one_client(inputs, problems)
    found = {}
    for name, raw in (("prox", False), ("raw", True)):
        sent = theory.surrogate_of(clients.sgd(gamma, theta, rho=rho, raw=raw), problem, steps=len(theta))
        Q = np.linalg.solve(problem.A[0], sent.hessian).T
        found |= {f"q_{name}": message(sent, x), f"Q_{name}": Q}
    return found


def varying_rates(inputs, problems):
    if "problem" not in inputs:
        mu, L, K = inputs["mu"], inputs["L"], inputs["K"]
        gammas = methods.chebyshev_steps(mu, L, K)
        # every eigenvalue where the polynomial can be extreme, and some more, as a diagonal client
        inner = (L + mu) / 2 - (L - mu) / 2 * np.cos(np.pi * np.arange(K + 1) / K)
        problem = theory.Problem(np.diag([*inner, *np.linspace(mu, L, 20)])[None], np.zeros((1, K + 21)))
        by_chebyshev, by_fedavg = (
            theory.surrogate_of(clients.delta(rates, K), problem, steps=K).condition_number for rates in (gammas, 1 / L)
        )
        np.testing.assert_allclose(by_chebyshev, methods.chebyshev_condition(mu, L, K), rtol=1e-12)
        return {"kappa_tilde": by_chebyshev, "fedavg_gamma_1_over_L": by_fedavg, "gammas": gammas}
    problem, x = one_client(inputs, problems)
    gammas, theta = array(inputs["gammas"]), theta_of(inputs)
    sent = theory.surrogate_of(clients.sgd(gammas, theta), problem, steps=len(theta))
    moved = theory.surrogate_of(clients.delta(gammas, len(theta)), problem, steps=len(theta))
    return {
        "q": message(sent, x),
        "Q": np.linalg.solve(problem.A[0], sent.hessian).T,
        "model_delta": message(moved, x),
    }


def stochastic_maml(inputs, problems):
    """The outer mini-batch is fresh, so that its mean is the population's."""
    stochastic, x = stochastic_of(inputs["client"]), array(inputs["x"])
    gamma, K, B = number(inputs["gamma"]), inputs["K"], inputs["B"]
    found = theory.surrogate_of(clients.maml(gamma, K), stochastic, steps=K + 1, B=B)
    descent = theory.surrogate_of(clients.maml(gamma, K), stochastic.problem, steps=K + 1)
    closed = theory.maml.stochastic_maml_gradient(stochastic, 0, x, gamma, K, B)
    np.testing.assert_allclose(message(found, x), closed, rtol=1e-11)
    return {
        "E_grad": message(found, x),
        "GD_value": message(descent, x),
        "bias": message(found, x) - message(descent, x),
        "Hessian": found.hessian,
        "client_minimiser": found.minimizer,
    }


def momentum(inputs, problems):
    problem, x = one_client(inputs, problems)
    K, found = inputs["K"], {}
    for send, name, hessian in (("gradients", "sum_grads", "Hessian_sum"), ("delta", "model_delta", "Hessian_delta")):
        client = clients.momentum(
            number(inputs["gamma"]), number(inputs["beta"]), (1.0,) * K, nesterov=inputs["nesterov"], send=send
        )
        sent = theory.surrogate_of(client, problem, steps=K)
        found |= {name: message(sent, x), hessian: sent.hessian}
    return found


def weight_decay(inputs, problems):
    problem, x = one_client(inputs, problems)
    client = clients.sgd(number(inputs["gamma"]), theta_of(inputs), weight_decay=number(inputs["wd"]))
    sent = theory.surrogate_of(client, problem, steps=inputs["K"])
    return {"q": message(sent, x), "c_eff": sent.minimizer}


def preconditioned(inputs, problems):
    A, gamma = matrix(inputs["A"]), number(inputs["gamma"])
    problem = theory.Problem(A[None], np.zeros((1, len(A))))
    if "D" in inputs:
        theta, D = (1.0,) * inputs["K"], array(inputs["D"])
    else:
        theta, D = (0.0, 0.0, 1.0), np.stack([array(inputs["D1"]), array(inputs["D2"])])
    sent = theory.surrogate_of(clients.preconditioned(gamma, theta, D), problem, steps=len(theta))
    assert sent.has_loss == ("D" in inputs)
    return {"J": sent.hessian, "skew": sent.asymmetry if not sent.has_loss else 0.0}


def reshuffled(inputs, problems):
    stochastic, x = stochastic_of(inputs["client"]), array(inputs["x"])
    m = stochastic.p_z.shape[1]
    client = clients.sgd(number(inputs["gamma"]), (1.0,) * m)
    sent = theory.surrogate_of(client, stochastic, drawing="reshuffled", B=inputs["B"])
    return {
        "E_q": message(sent, x),
        "J": sent.hessian,
        "client_minimiser": sent.minimizer,
        "c_i": stochastic.problem.c[0],
    }


def scaffold(inputs, problems):
    """Option II under full participation, as an affine map of (x, h_1, ..., h_n)."""
    problem = problem_of(problems[inputs["problem"]])
    gamma, K, x = number(inputs["gamma"]), inputs["K"], array(inputs["x1"])
    client = clients.scaffold(gamma, K)
    batches = tuple(jnp.repeat(v[:, None, None], K, 1) for v in (problem.A, problem.c))

    def one_round(state):
        x, h = state
        sent = jax.vmap(client, (0, None, 0))(batches, x, problem.p @ h - h)
        return x - inputs["eta_g"] * gamma * problem.p @ sent, h - problem.p @ h + sent / K

    state = x, jnp.zeros_like(problem.c)
    end = theory.fixed_point_of(one_round, state)
    for _ in range(5):
        state = one_round(state)
    fixed, h = end.state
    np.testing.assert_allclose(h, jnp.einsum("nij,nj->ni", problem.A, fixed - problem.c), rtol=1e-10, atol=1e-12)
    # with the controls held at their fixed point the client has a surrogate, and its minimiser is x*
    held = theory.surrogate_of(client, problem, steps=K, own=problem.p @ h - h)
    np.testing.assert_allclose(held.minimizer, theory.minimizer(problem), rtol=1e-12)
    return {
        "x_after_5": state[0],
        "limit": fixed,
        "fedavg_limit": theory.surrogate_of(clients.delta(gamma, K), problem, steps=K).minimizer,
        "spectral_radius": end.radius,
    }


def uneven_steps(inputs, problems):
    problem, gamma = problem_of(problems[inputs["problem"]]), number(inputs["gamma"])
    steps = np.array(inputs["K_i"])
    found = {
        name: theory.surrogate_of(
            clients.uneven(gamma, normalised=name == "x_fednova"), problem, steps=steps.max(), own=steps
        ).minimizer
        for name in ("x_fedavg", "x_fednova")
    }
    return found | {"x_star": theory.surrogate_of(clients.sgd(gamma, lur.theta.fedavg(1)), problem).minimizer}


def theta_named(text):
    """'1:3' is Theta_{1:3}, 'Theta_3' is Theta_3."""
    if text.startswith("1:"):
        return (1.0,) * int(text[2:])
    return (0.0,) * (int(text.removeprefix("Theta_")) - 1) + (1.0,)


def stationary(inputs, problems):
    problem, gamma = problem_of(problems[inputs["problem"]]), number(inputs["gamma"])
    theta, eta, M = theta_named(inputs["Theta"]), number(inputs["eta"]), inputs["M"]
    noise = np.eye(problem.c.shape[1]) if inputs["gradient_noise_cov"] == "I" else None
    Sigma = moments.stationary_covariance(problem, gamma, theta, eta, M=M, noise=noise)
    bias = theory.surrogate_minimizer(problem, gamma, theta) - theory.minimizer(problem)
    return {
        "Sigma": Sigma,
        "trace": jnp.trace(Sigma),
        "bias_sq": bias @ bias,
        "MSE_to_x_star": jnp.trace(Sigma) + bias @ bias,
        "ms_contraction": moments.contraction(problem, gamma, theta, eta, M),
    }


def transient(inputs, problems):
    problem, gamma, theta = (
        problem_of(problems[inputs["problem"]]),
        number(inputs["gamma"]),
        theta_named(inputs["Theta"]),
    )
    optimum = theory.surrogate_minimizer(problem, gamma, theta)
    found = moments.mean_square_error(
        problem, array(inputs["x1"]), gamma, theta, array(inputs["etas"]), 3, M=inputs["M"], target=optimum
    )
    return {"E_sq_dist_to_x_gamma": found[-1]}


def message_variance(inputs, problems):
    """Of examples that differ in A_z: Assumption 3 does not hold."""
    found = moments.message_covariance(
        stochastic_of(inputs["client"]), array(inputs["x"]), number(inputs["gamma"]), theta_of(inputs), inputs["B"]
    )
    return {"Var_q": jnp.trace(found[0])}


def best_theta(inputs, problems):
    mu, L, K = number(inputs["mu"]), number(inputs["L"]), inputs["K"]
    gamma = 1 / L if inputs["gamma"] == "1/L" else number(inputs["gamma"])
    found = theory.optimal_theta(mu, L, gamma, K, chi_mu_min=inputs.get("chi_mu_min"))
    fedavg = lur.theta.fedavg(K)
    quantities = {
        "Theta_normalised": found.theta,
        "kappa_opt": found.condition_number,
        "fedavg": worst_condition(gamma, fedavg, mu, L),
        "fedavg_chi_mu": theory.chi_mu(gamma, fedavg, mu, L),
        "chebyshev_lower_bound": methods.chebyshev_condition(mu, L, K),
    }
    if K == 2:
        closed = theory.optimal_theta_two(mu, L, gamma)
        np.testing.assert_allclose(found.condition_number, closed.condition_number, rtol=1e-6)
        np.testing.assert_allclose(found.theta, closed.theta, rtol=1e-6)
        quantities |= {"Theta": closed.theta / closed.theta[0], "kappa": closed.condition_number}
    return quantities


METHODS = {
    "FedAvg g=1/10 K=5": (0.1, lur.theta.fedavg(5)),
    "FOMAML g=1/50 K=5": (0.02, lur.theta.fomaml(5)),
    "Theta=(1,0,3) g=1/100": (0.01, (1.0, 0.0, 3.0)),
}


def trade_off(inputs, problems):
    mu, L = number(inputs["mu"]), number(inputs["L"])
    gamma, theta = METHODS[inputs["method"]]
    chi = theory.chi_mu(gamma, theta, mu, L)
    return {
        "chi_mu": chi,
        "kappa_chi_mu": L / mu * chi,
        "kappa_tilde": worst_condition(gamma, theta, mu, L),
        "monotone": not len(methods.turns(gamma, theta, mu, L)),
    }


def extrapolation(inputs, problems):
    problem, theta = problem_of(problems[inputs["problem"]]), theta_of(inputs)
    if "gamma" not in inputs:
        return theory.minimizer_slope(problem, theta)
    gamma = number(inputs["gamma"])
    by_difference = theory.extrapolated_minimizer(problem, gamma, theta) - theory.minimizer(problem)
    left = extrapolated_shift(problem, gamma, theta)
    np.testing.assert_allclose(by_difference, left, atol=1e-14)
    return {
        "err_plain": theory.minimizer_distance(problem, gamma, theta),
        "err_richardson": np.linalg.norm(left),
    }


EVALUATE = {
    "B1": fedprox,
    "B2": varying_rates,
    "B3": stochastic_maml,
    "B4": momentum,
    "B5": weight_decay,
    "B6": preconditioned,
    "B7": reshuffled,
    "B8": best_theta,
    "B9": scaffold,
    "B10": stationary,
    "B10t": transient,
    "B11": extrapolation,
    "B13": message_variance,
    "B14": uneven_steps,
    "B15": trade_off,
}
