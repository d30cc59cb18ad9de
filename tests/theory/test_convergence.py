"""Exact second moments of LocalUpdate and the repaired bounds: published numbers, enumeration, the claims' sides."""

import itertools
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import theory
from tests.theory.evaluate.inputs import array, messages_of, number, problem_of
from tests.theory.published_paper import PROBLEMS
from theory import convergence, exact
from theory.claims.outsized_importance import moments

pytestmark = pytest.mark.x64


def setting(inputs, problems):
    """The problem, the FedAvg weights, the surrogate minimiser and the options of an instance."""
    problem, gamma, K = problem_of(problems[inputs["problem"]]), number(inputs["gamma"]), inputs["K"]
    full = inputs.get("participation", "iid") == "full"
    variance = number(inputs.get("gradient_noise_var", inputs.get("noise_var", 0)))
    return SimpleNamespace(
        problem=problem, gamma=gamma, K=K, theta=(1.0,) * K, noise=variance * np.eye(problem.c.shape[1]),
        optimum=theory.surrogate_minimizer(problem, gamma, (1.0,) * K), sampling="full" if full else "iid",
        range=convergence.surrogate_range(problem, gamma, K), variance=variance,
    )  # fmt: skip


def descent(inputs, problems):
    s, x, eta = setting(inputs, problems), array(inputs["x_t"]), number(inputs["eta"])
    found = convergence.mean_square_error(
        s.problem, x, s.gamma, s.theta, eta, 1, M=inputs["M"], sampling=s.sampling, noise=s.noise, target=s.optimum
    )
    printed = (1 - eta * s.range.mu) * found[0] + eta**2 * s.K * s.variance / inputs["M"]
    repaired = convergence.descent_bound(
        s.problem, x, s.gamma, s.K, eta, M=inputs["M"], sampling=s.sampling, noise=s.noise
    )
    return {"E_next": found[1], "printed_rhs": printed, "repaired_rhs": repaired}


def fixed_server(inputs, problems):
    s, eta, t, M = setting(inputs, problems), number(inputs["eta"]), inputs["t"], inputs["M"]
    found = convergence.mean_square_error(s.problem, s.optimum, s.gamma, s.theta, eta, t - 1, M=M, target=s.optimum)
    return {
        "E_sq": found[-1],  # of x_t
        "stationary": jnp.trace(convergence.stationary_covariance(s.problem, s.gamma, s.theta, eta, M=M)),
        "printed_bound": 0.0,
        "repaired_bound": convergence.fixed_server_bound(s.problem, s.optimum, s.gamma, s.K, eta, t, M=M),
        "sigma_star_sq": convergence.noise_at_minimizer(s.problem, s.gamma, s.theta, M=M),
        "eta_le_mu_over_L2": eta <= s.range.mu / s.range.L**2,
    }


def decaying_server(inputs, problems):
    """Theorem 7 and its corollary; the published rates are rounded to 1e-12."""
    s, x, t, M = setting(inputs, problems), array(inputs["x1"]), inputs["t"], inputs["M"]
    options = {"M": M, "sampling": s.sampling, "noise": s.noise}
    kappa, start = s.range.L / s.range.mu, jnp.sum((x - s.optimum) ** 2)

    def error(b, target):
        eta = np.round(np.asarray(2 / s.range.mu / (b + np.arange(1.0, t))), 12)
        return convergence.mean_square_error(s.problem, x, s.gamma, s.theta, eta, t - 1, target=target, **options)[-1]

    b, b_repaired = 2 * kappa**2, 4 * kappa
    nu = jnp.maximum(4 * s.K * s.variance / (s.range.mu**2 * M), (b + 1) * start)
    found = {
        "b_printed": b,
        "E_sq": error(b, s.optimum),
        "printed_bound": nu / (b + t),
        "violated": error(b, s.optimum) > nu / (b + t),
        "b_repaired": b_repaired,
        "E_sq_repaired": error(b_repaired, s.optimum),
        "repaired_bound": convergence.decaying_server_bound(s.problem, x, s.gamma, s.K, t, M=M, noise=s.noise),
    }
    if "eps" in inputs:
        constants = theory.constants(s.problem)
        shrunk = np.exp(-s.gamma * s.K * constants.L)
        nu = jnp.maximum(4 * s.variance / (shrunk**2 * constants.mu**2 * s.K * M), (b + 1) * start)
        bias = (
            constants.sigma_c * (1 + constants.sigma_A / constants.mu) * constants.L / constants.mu * (1 / shrunk - 1)
        )
        found |= {"E_sq_to_x_star": error(b, None), "printed_bound": 2 * nu / (b + t) + 2 * bias**2}
        repaired = convergence.true_minimizer_bound(s.problem, x, s.gamma, s.K, t, M=M, noise=s.noise)
        assert error(b_repaired, None) <= repaired
    return found


def message_variance(inputs, problems):
    """Lemma var_bound for one client with additive noise; a client's c does not matter."""
    client, K = inputs["client"], inputs["K"]
    A, c_z, p_z = array(client["A_z"])[0], array(client["c_z"]), array(client["p"])
    g = (c_z - p_z @ c_z) @ A
    C = (g.T * p_z) @ g / inputs["B"]
    sent = convergence.message_noise(theory.Problem(A[None], c_z[:1]), number(inputs["gamma"]), (1.0,) * K, C)
    G2 = np.trace(C) * inputs["B"]
    return {"Var_InnerLoop": jnp.trace(sent[0]), "G2": G2, "printed_bound": K * G2 / (inputs["M"] * inputs["B"])}


EVALUATE = {
    "L17": message_variance,
    "L19": descent,
    "T6": fixed_server,
    "T7": decaying_server,
    "C6": decaying_server,
}

INSTANCES = [
    (
        "L19",
        {
            "inputs": {
                "problem": "P1", "gamma": "1/4", "K": 2, "M": 2, "participation": "full", "noise_var": "1",
                "x_t": ["3"], "eta": "1/6",
            },
            "expected": {
                "E_next": "1.97707587911665128",
                "printed_rhs": "3.82648507232994768",
                "repaired_rhs": "3.8377697945521699",
            },
        },
    ),
    (
        "T6",
        {
            "inputs": {
                "problem": "P5", "gamma": "3/10", "K": 3, "eta": "1/30", "M": 1, "G": 0, "x1": "x_gamma*", "t": 7,
            },
            "expected": {
                "E_sq": "0.022529606561003721025",
                "stationary": "0.032114635866854336392",
                "repaired_bound": "0.16058315100202942669",
                "sigma_star_sq": "5.2751565104166666667",
            },
        },
    ),
    (
        "C6",
        {
            "inputs": {
                "problem": "P1", "gamma": "1/4", "K": 2, "M": 2, "B": 1, "gradient_noise_var": "1",
                "participation": "full", "x1": ["3"], "t": 20, "eps": "1-exp(-gamma K L)",
            },
            "expected": {"E_sq_to_x_star": "0.0111004772442026983", "printed_bound": "6.17217049367700318"},
        },
    ),
]  # fmt: skip


def check(id, instance, problems):
    """Asserts every expected quantity to 1e-12 relative."""
    found = EVALUATE[id](instance["inputs"], problems)
    for name, value in instance["expected"].items():
        expected = float(value) if isinstance(value, bool) else array(value)
        np.testing.assert_allclose(
            np.asarray(found[name], float), expected, rtol=1e-12, atol=1e-15, err_msg=f"{id} {name}"
        )


@pytest.mark.parametrize(("id", "instance"), INSTANCES, ids=[id for id, _ in INSTANCES])
def test_instances_of_the_table(id, instance):
    check(id, instance, PROBLEMS)


@pytest.mark.parametrize("id", EVALUATE)
def test_instances_of_the_published_file(id, published):
    claims, problems = published
    assert claims[id]["instances"]
    for instance in claims[id]["instances"]:
        check(id, instance, problems)


P5 = theory.Problem(*(array(PROBLEMS["P5"][name]) for name in ("A", "c", "p")))
P2 = theory.Problem(*(array(PROBLEMS["P2"][name]) for name in ("A", "c", "p")))


@pytest.mark.parametrize(("M", "sampling"), [(1, "iid"), (2, "iid"), (2, "without replacement"), (3, "full")])
def test_moments_are_those_of_every_possible_run(M, sampling):
    """All choices of clients over three rounds, each with its own gamma_t and eta_t."""
    gammas, etas, theta, x1 = (0.3, 0.2, 0.1), (0.1, 0.05, 0.2), (1.0, 0.5, 2.0), np.array([2.0])
    choices = {
        "iid": list(itertools.product(range(3), repeat=M)),
        "without replacement": list(itertools.combinations(range(3), M)),
        "full": [(0, 1, 2)],
    }[sampling]
    runs = []
    for chosen in itertools.product(choices, repeat=3):
        x = x1
        for gamma, eta, clients in zip(gammas, etas, chosen, strict=True):
            H = np.asarray(theory.client_hessians(P5, gamma, theta))
            x = x - eta * np.mean([H[i] @ (x - P5.c[i]) for i in clients], axis=0)
        runs.append(x)
    found = convergence.moments(
        P5, x1, np.array(gammas), theta, np.array(etas), 3, M=M, sampling=sampling, about=np.zeros(1)
    )
    np.testing.assert_allclose(found.mean[-1], np.mean(runs, axis=0), rtol=1e-12)
    np.testing.assert_allclose(
        found.covariance[-1], np.cov(np.ravel(runs), ddof=0).reshape(1, 1), rtol=1e-11, atol=1e-15
    )


def test_update_noise_is_that_of_every_possible_update():
    client = {"A_z": [[["2", "1"], ["1", "3"]]] * 2, "c_z": [["1", "0"], ["-1", "2"]], "p": ["1/3", "2/3"]}
    theta = (1.0, 2.0, 0.5)
    sent, probability = messages_of({"client": client, "gamma": "1/5", "x": ["1", "2"], "B": 1}, theta)
    A, c_z, p_z = array(client["A_z"])[0], array(client["c_z"]), array(client["p"])
    g = (c_z - p_z @ c_z) @ A
    found = convergence.message_noise(theory.Problem(A[None], c_z[:1]), 0.2, theta, (g.T * p_z) @ g)
    np.testing.assert_allclose(found[0], np.cov(sent.T, aweights=probability, ddof=0), rtol=1e-12)


@pytest.mark.parametrize("sampling", ["iid", "full"])
def test_moments_converge_to_the_stationary_covariance(sampling):
    theta, optimum = (1.0, 1.0), theory.surrogate_minimizer(P2, 0.25, (1.0, 1.0))
    options = {"M": 2, "sampling": sampling, "noise": np.diag([1.0, 0.5])}
    found = convergence.moments(P2, np.ones(2), 0.25, theta, 0.1, 400, about=optimum, **options)
    Sigma = convergence.stationary_covariance(P2, 0.25, theta, 0.1, **options)
    np.testing.assert_allclose(found.second[-1], Sigma, rtol=1e-10)


@pytest.mark.parametrize("slower", [False, True])
@pytest.mark.parametrize(("M", "sampling"), [(1, "iid"), (3, "full")])
def test_repaired_theorem_8_bounds_the_exact_error(slower, M, sampling):
    K, rounds, x = 20, 200, np.array([1.0, -1.0])
    options = {"M": M, "sampling": sampling, "noise": np.eye(2)}
    gamma, eta = convergence.decaying_schedule(P2, K, rounds, slower=slower)
    errors = convergence.mean_square_error(P2, x, gamma, (1.0,) * K, eta, rounds, **options)
    bound = convergence.decaying_client_bound(P2, x, K, np.arange(1.0, rounds + 2), slower=slower, **options)
    assert (np.asarray(errors) <= np.asarray(bound)).all()


def test_theorem_8_as_printed_fails_for_many_local_steps():
    """x_1 = x_1^*, no noise, K = 2700, full participation: the bias decays slower than the printed bound."""
    problem = theory.Problem([[[1.0]], [[3.0]]], [[0.0], [1.0]], [0.8, 0.2])
    K, rounds = 2700, 1803
    gamma, eta = convergence.decaying_schedule(problem, K, rounds)
    start = theory.surrogate_minimizer(problem, gamma[0], (1.0,) * K)
    errors = convergence.mean_square_error(problem, start, gamma, (1.0,) * K, eta, rounds, sampling="full")
    printed = 16 * 0.16 * 9 / (27 + rounds + 1)
    np.testing.assert_allclose([errors[-1], printed], [0.0126475495426, 0.0125832878209], rtol=1e-11)


def test_the_claims_use_the_same_recursion():
    """`theory.claims.outsized_importance.moments` in fractions against `theory.convergence` in floats."""
    fields = {name: exact.array(PROBLEMS["P2"][name]) for name in ("A", "c", "p")}
    I = SimpleNamespace(
        **fields,
        x=exact.array(["1", "-2"]),
        gamma=exact.rational("1/4"),
        noise=exact.rational(3),
        d=2,
        n=3,
        K=3,
        M=2,
        B=2,
    )
    etas, options = exact.array(["1/10", "1/20", "1/5"]), {"M": 2, "noise": np.diag([1.5, 0.0])}
    s = moments.surrogate(exact, I)
    for full, sampling in ((False, "iid"), (True, "full")):
        expected = moments.second_moments(exact, I, s, etas, full)
        found = convergence.mean_square_error(
            P2, array(s.x + I.x), 0.25, (1.0,) * 3, array(etas), 3, target=array(s.x), sampling=sampling, **options
        )
        np.testing.assert_allclose(found[1:], expected.astype(float), rtol=1e-12)
    sigma = convergence.noise_at_minimizer(P2, 0.25, (1.0,) * 3, **options)
    np.testing.assert_allclose(sigma, float(moments.sigma_star(exact, I, s)), rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"M": 0}, "M must be an integer >= 1"),
        ({"M": 2, "sampling": "without replacement"}, "needs a uniform p"),
        ({"sampling": "some"}, "sampling must be"),
        ({"noise": np.eye(3)}, "noise must be covariances"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        convergence.mean_square_error(P2, np.ones(2), 0.1, (1.0,), 0.1, 1, **options)


def test_bounds_refuse_rates_they_do_not_cover():
    with pytest.raises(ValueError, match=r"eta must be in \[0, 1/\(2 L_gamma\)\]"):
        convergence.descent_bound(P5, np.ones(1), 0.1, 2, 1.0)
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1/L\]"):
        convergence.surrogate_range(P5, 1.0, 2)
    with pytest.raises(ValueError, match="eta must keep the second moments stable"):
        convergence.stationary_covariance(P5, 0.1, (1.0, 1.0), 5.0)
