"""Section 6 against numpy transcriptions of its formulas, and the bounds against the distances they bound."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import theory
from tests.lur.problems import random_quadratic
from theory import exact
from theory.exact import rational

THETAS = ((1.0, 1.0, 1.0), (0.0, 0.0, 1.0), (1.0, 2.0, 0.5), (0.0, 3.0, 0.0, 0.25))
SIZES = ((2, 1), (3, 2), (1, 2), (2, 3))
seeds, steps = st.integers(0, 10**6), st.sampled_from((1, 2, 3, 6))
few = settings(deadline=None, max_examples=20)


def numpy_phi(K, lam, gamma):
    return (1 - (1 - gamma * lam) ** K) / gamma if gamma else K * lam


def numpy_constants(A, c, p):
    eigenvalues = np.linalg.eigvalsh(A)
    sigma_A = np.sqrt(sum(p[i] * np.linalg.norm(A[i] - np.tensordot(p, A, 1), 2) ** 2 for i in range(len(p))))
    sigma_c = np.sqrt(sum(p[i] * np.linalg.norm(c[i] - p @ c) ** 2 for i in range(len(p))))
    return eigenvalues.min(), eigenvalues.max(), sigma_A, sigma_c


def numpy_hessians(A, gamma, theta):
    identity = np.eye(A.shape[-1])
    return [sum(t * np.linalg.matrix_power(identity - gamma * A_i, k) for k, t in enumerate(theta)) @ A_i for A_i in A]


def numpy_minimizer(A, c, p, gamma, theta):
    weighted = [p_i * H for p_i, H in zip(p, numpy_hessians(A, gamma, theta), strict=True)]
    return np.linalg.solve(sum(weighted), sum(H @ c_i for H, c_i in zip(weighted, c, strict=True)))


def instance(seed, part):
    """A random problem of a few clients, and gamma = part / (64 L)."""
    A, c, p = random_quadratic(seed, *SIZES[seed % len(SIZES)])
    return (A, c, p), theory.Problem(A, c, p), part / 64 / np.linalg.eigvalsh(A).max()


def rounding(A, c, p, gamma, theta, start=0.0):
    """Returns how far rounding can move the distance, which is 0 for one client, where its bounds are exactly 0.

    To first order, E[H]^-1 E[gap_i (x* - c_i)] is off by m eps ||E[H]^-1|| max ||gap_i|| cond(E[H_0]) max ||c_i||:
    x* by cond(E[H_0]) times the m roundings of K products of d x d matrices, two solves and a mean over n clients.
    The norm of gap_i is at most |gamma - start| L^2 sum_k k theta_k, since ||I - gamma A_i|| <= 1. W_i has the same
    factors.
    """
    n, d, K = *c.shape, len(theta)
    first, last = (np.tensordot(p, np.array(numpy_hessians(A, rate, theta)), 1) for rate in (start, gamma))
    gap = abs(gamma - start) * np.linalg.eigvalsh(A).max() ** 2 * sum(k * t for k, t in enumerate(theta))
    roundings = n + K * d + 3 * d**2
    scale = gap / np.linalg.eigvalsh(last).min() * np.linalg.cond(first) * np.linalg.norm(c, axis=1).max()
    return roundings * np.finfo(float).eps * scale


@few
@given(seeds, st.integers(1, 63), st.sampled_from(THETAS))
def test_theorem_3(seed, part, theta):
    (A, c, p), problem, gamma = instance(seed, part)
    mu, L, sigma_A, sigma_c = numpy_constants(A, c, p)

    def s(lam):
        return sum(t * (1 - gamma * lam) ** k for k, t in enumerate(theta))

    distance = float(theory.minimizer_distance(problem, gamma, theta))
    shift = numpy_minimizer(A, c, p, gamma, theta) - numpy_minimizer(A, c, p, 0.0, (1.0,))
    np.testing.assert_allclose(theory.minimizer_shift(problem, gamma, theta), shift, rtol=1e-8, atol=1e-12)
    assert distance == pytest.approx(np.linalg.norm(shift), rel=1e-8, abs=1e-12)
    chi, chi_mu = s(L) / sum(theta), s(L) / s(mu)
    assert float(theory.chi_mu(gamma, theta, mu, L)) == pytest.approx(chi_mu, rel=1e-12)
    front = L * sigma_c / mu * (1 + sigma_A / mu)
    printed, sharper = (
        float(bound(problem, gamma, theta))
        for bound in (theory.minimizer_distance_bound, theory.sharper_distance_bound)
    )
    assert printed == pytest.approx(front * (1 - chi) / chi, rel=1e-9)
    assert sharper == pytest.approx(front / 2 * (1 - chi_mu) / chi_mu, rel=1e-9, abs=1e-12)
    optimal = float(theory.instance_optimal_distance_bound(problem, gamma, theta))
    slack, rounded = 1 + 1e-12, rounding(A, c, p, gamma, theta)
    assert distance <= slack * optimal + rounded
    assert optimal <= slack * sharper + rounded
    assert sharper <= slack * printed


@few
@given(seeds, st.integers(0, 64), steps)
def test_theorem_4(seed, part, K):
    (A, c, p), problem, gamma = instance(seed, part)
    mu, L, sigma_A, sigma_c = numpy_constants(A, c, p)
    phi_L, phi_mu = numpy_phi(K, L, gamma), numpy_phi(K, mu, gamma)
    printed = float(theory.fedavg_distance_bound(problem, gamma, K))
    vanishing = float(theory.fedavg_heterogeneity_bound(problem, gamma, K))
    assert printed == pytest.approx(sigma_c * (1 + sigma_A / mu) * (K * L - phi_L) / phi_mu, rel=1e-9, abs=1e-12)
    assert vanishing == pytest.approx(
        sigma_c * sigma_A * K / phi_mu * (1 - phi_L / (K * L)) * (2 + L / mu), rel=1e-9, abs=1e-12
    )
    distance = float(theory.minimizer_distance(problem, gamma, (1.0,) * K))
    assert distance <= (1 + 1e-12) * min(printed, vanishing) + rounding(A, c, p, gamma, (1.0,) * K)
    if part < 64:
        assert printed <= (1 + 1e-12) * float(theory.minimizer_distance_bound(problem, gamma, (1.0,) * K)) + 1e-15


@few
@given(seeds, st.integers(0, 64), st.integers(0, 64), steps)
def test_theorem_5(seed, one, other, K):
    (A, c, p), problem, _ = instance(seed, 0.0)
    mu, L, _, sigma_c = numpy_constants(A, c, p)
    gamma1, gamma2 = sorted((one / 64 / L, other / 64 / L))
    theta = (1.0,) * K
    (L1, L2), (mu1, mu2) = ([numpy_phi(K, lam, gamma) for gamma in (gamma1, gamma2)] for lam in (L, mu))
    bound = float(theory.gamma_distance_bound(problem, gamma1, gamma2, K))
    linear = float(theory.gamma_distance_linear_bound(problem, gamma1, gamma2, K))
    assert bound == pytest.approx(sigma_c * (1 + L2 / mu2) * (L1 - L2) / mu1, rel=1e-9, abs=1e-12)
    assert linear == pytest.approx(K * sigma_c * L**3 / mu**2 * (gamma2 - gamma1), rel=1e-12)
    shift = numpy_minimizer(A, c, p, gamma2, theta) - numpy_minimizer(A, c, p, gamma1, theta)
    distance = float(theory.minimizer_distance(problem, gamma2, theta, gamma1))
    assert distance == pytest.approx(np.linalg.norm(shift), rel=1e-8, abs=1e-12)
    optimal = float(theory.instance_optimal_distance_bound(problem, gamma2, theta, gamma1))
    rounded = rounding(A, c, p, gamma2, theta, gamma1)
    assert distance <= (1 + 1e-12) * optimal + rounded
    assert optimal <= (1 + 1e-12) * bound + rounded
    assert bound <= (1 + 1e-12) * linear


@few
@given(seeds, st.integers(0, 64), steps)
def test_distance_by_eps(seed, part, K):
    _, problem, _ = instance(seed, 0.0)
    mu, L, sigma_A, sigma_c = (float(v) for v in theory.constants(problem))
    eps = part / 64 * -np.expm1(-K)
    gamma = float(theory.client_rate_limit(K, L, eps))
    assert gamma == pytest.approx(np.log(1 / (1 - eps)) / (K * L), rel=1e-12)
    for lam in (mu, L):
        assert float(theory.phi(K, lam, gamma)) >= (1 - 1e-12) * (1 - eps) * K * lam
    bound = float(theory.fedavg_eps_distance_bound(problem, eps, K))
    assert bound == pytest.approx(sigma_c * (1 + sigma_A / mu) * L / mu * eps / (1 - eps), rel=1e-12)
    assert float(theory.fedavg_distance_bound(problem, gamma, K)) <= (1 + 1e-12) * bound


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("start", [0.0, 0.1])
def test_the_instance_optimal_bound_is_attained(theta, start):
    """By minimisers c_i - c proportional to W_i^T u, u the top eigenvector of E[W_i W_i^T]."""
    A, _, p = random_quadratic(5, 3, 3)
    gamma = 0.4

    def scaled(gamma):
        hessians = np.array(numpy_hessians(A, gamma, theta))
        return np.linalg.solve(np.tensordot(p, hessians, 1), hessians)

    W = scaled(gamma) - scaled(start)
    spread = np.einsum("n,nij,nkj->ik", p, W, W)
    problem = theory.Problem(A, np.einsum("nji,j->ni", W, np.linalg.eigh(spread)[1][:, -1]) + 7.0, p)
    bound = float(theory.instance_optimal_distance_bound(problem, gamma, theta, start))
    assert bound == pytest.approx(np.linalg.eigvalsh(spread)[-1], rel=1e-9)
    assert float(theory.minimizer_distance(problem, gamma, theta, start)) == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize("exponent", [1, 4, 8, 16, 40, 200])
@pytest.mark.parametrize("theta", THETAS)
def test_distances_stay_accurate_for_small_gamma(exponent, theta):
    """Distance and bounds from gamma = 2^-exponent to 1e-13 relative, against exact fractions."""
    A, c, p = np.array([[[2, 1], [1, 3]], [[1, 0], [0, 4]]]) / 4, np.array([[1.0, 0.0], [-1.0, 2.0]]), [0.25, 0.75]
    problem, gamma = theory.Problem(A, c, p), 0.5**exponent
    exact_A, exact_c, exact_p, g = exact.array(A), exact.array(c), exact.array(p), rational(gamma)

    def minimizer(gamma, theta):
        hessians = [exact.distortion(A_i, gamma, theta) @ A_i for A_i in exact_A]
        pulls = [H @ c_i for H, c_i in zip(hessians, exact_c, strict=True)]
        return exact.solve(exact.mean(exact_p, hessians), exact.mean(exact_p, pulls))

    theta_exact = [rational(t) for t in theta]
    for start in (0.0, gamma / 2):
        shift = minimizer(g, theta_exact) - minimizer(rational(start), theta_exact)
        found = theory.minimizer_shift(problem, gamma, theta, start)
        np.testing.assert_allclose(found, [float(v) for v in shift], rtol=1e-13)
    gaps = [rational(sum(theta)) * A_i - exact.distortion(A_i, g, theta_exact) @ A_i for A_i in exact_A]
    expected = np.array([[[float(v) for v in row] for row in gap] for gap in gaps])
    np.testing.assert_allclose(theory.hessian_gaps(problem, gamma, theta), expected, rtol=1e-13)
    K, lam = len(theta), rational("3/2")
    drop = K * lam - lam * sum((1 - g * lam) ** k for k in range(K))
    assert float(theory.phi_drop(K, 1.5, gamma)) == pytest.approx(float(drop), rel=1e-13)


@few
@given(seeds, st.integers(1, 64), st.sampled_from((1, 4, 40)))
def test_asymptotic_loss(seed, part, K):
    (A, c, p), problem, gamma = instance(seed, part)
    x = np.linspace(-1, 2, A.shape[-1])
    limit = float(theory.limit_loss(problem, x, gamma))
    assert limit == pytest.approx(p @ np.sum((x - c) ** 2, axis=1) / (2 * gamma))
    assert float(theory.surrogate_loss(problem, x, gamma, (1.0,) * K)) <= (1 + 1e-12) * limit
    if part > 20:
        assert float(theory.surrogate_loss(problem, x, gamma, (1.0,) * 1000)) == pytest.approx(limit, rel=1e-9)


@few
@given(seeds)
def test_inverse_gap(seed):
    (A, _, p), problem, _ = instance(seed, 0.0)
    gap = np.asarray(theory.inverse_gap(problem))
    expected = np.tensordot(p, np.linalg.inv(A), 1) - np.linalg.inv(np.tensordot(p, A, 1))
    np.testing.assert_allclose(gap, expected, rtol=1e-9, atol=1e-13)
    assert np.linalg.eigvalsh(gap).min() >= -1e-15


@few
@given(seeds, st.integers(0, 64), steps)
def test_condition_bounds(seed, part, K):
    (A, c, p), problem, gamma = instance(seed, part)
    mu, L, _, _ = numpy_constants(A, c, p)
    for theta, bound, rate in (
        ((1.0,) * K, theory.fedavg_condition_bound, gamma),
        ((0.0,) * (K - 1) + (1.0,), theory.fomaml_condition_bound, gamma / K),
    ):
        spectrum = np.linalg.eigvalsh(theory.surrogate_hessian(problem, rate, theta))
        found = float(bound(K, mu, L, rate))
        assert spectrum[-1] / spectrum[0] <= (1 + 1e-12) * found
        assert found <= (1 + 1e-12) * L / mu
        if rate * L < 1:
            lower, upper = theory.client_hessian_bounds(rate, theta, mu, L)
            assert (1 - 1e-12) * float(lower) <= spectrum[0] <= spectrum[-1] <= (1 + 1e-12) * float(upper)


def test_bounds_are_differentiable():
    """Also at gamma = 0, where each is linear in gamma."""
    problem = theory.Problem(*random_quadratic(1, 3, 2))
    for bound in (
        lambda gamma: theory.minimizer_distance_bound(problem, gamma, (1.0, 1.0, 1.0)),
        lambda gamma: theory.sharper_distance_bound(problem, gamma, (1.0, 1.0, 1.0)),
        lambda gamma: theory.fedavg_distance_bound(problem, gamma, 3),
        lambda gamma: theory.fedavg_heterogeneity_bound(problem, gamma, 3),
        lambda gamma: theory.gamma_distance_bound(problem, 0.0, gamma, 3),
        lambda gamma: theory.gamma_distance_linear_bound(problem, 0.0, gamma, 3),
    ):
        with jax.enable_x64(True):
            slope = float(jax.jit(jax.grad(bound))(0.0))
        assert slope == pytest.approx(float(bound(1e-9)) / 1e-9, rel=1e-6)


two = theory.two_clients


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: theory.minimizer_distance_bound(two(), 0.5, (1, 1)), "gamma must be >= 0 and < 1/L"),
        (lambda: theory.minimizer_distance_bound(two(), -0.1, (1, 1)), "gamma must be >= 0"),
        (lambda: theory.minimizer_distance_bound(two(), 0.1, (1, -1)), "theta must be finite and >= 0"),
        (lambda: theory.sharper_distance_bound(two(), float("nan"), (1, 1)), "gamma must be finite"),
        (lambda: theory.fedavg_distance_bound(two(), 0.6, 2), "gamma must be >= 0 and <= 1/L"),
        (lambda: theory.fedavg_heterogeneity_bound(two(), 0.6, 2), "gamma must be >= 0 and <= 1/L"),
        (lambda: theory.fedavg_eps_distance_bound(two(), 0.9, 2), r"eps must be in \[0, 1 - e\^\(-K\)\]"),
        (lambda: theory.client_rate_limit(1, 1.0, -0.1), "eps must be in"),
        (lambda: theory.gamma_distance_bound(two(), 0.3, 0.2, 2), "gamma1 must be <= gamma2"),
        (lambda: theory.gamma_distance_linear_bound(two(), 0.3, 0.7, 2), "got gamma = 0.7, L = 2"),
        (lambda: theory.limit_loss(two(), [0.0], 0.0), "gamma must be > 0"),
        (lambda: theory.inverse_gap(theory.Problem(-np.ones((1, 1, 1)), np.ones((1, 1)))), "A must be positive"),
        (lambda: theory.minimizer_shift(two(), 1.3, (1, 1)), "surrogate Hessian"),
        (lambda: theory.instance_optimal_distance_bound(two(), 1.3, (1, 1)), "surrogate Hessian"),
        (lambda: theory.fedavg_condition_bound(2, 2.0, 1.0, 0.1), "0 < mu <= L"),
        (lambda: theory.fomaml_condition_bound(3, 1.0, 2.0, 0.2), r"<= 1/\(3 L\)"),
        (lambda: theory.client_hessian_bounds(0.5, (1,), 1.0, 2.0), "< 1/L"),
        (lambda: theory.minimizer_distance_bound(theory.Problem(np.zeros((1, 1, 1)), np.ones((1, 1))), 0.1, (1,)),
         "A must be positive definite"),
    ],
)  # fmt: skip
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
