"""The closed forms against their definitions written out in numpy and in exact fractions."""

import subprocess
import sys
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import theory
from tests.lur.problems import random_quadratic
from theory import exact
from theory.spectrum import geometric_sum

thetas = st.lists(st.floats(0, 3), min_size=1, max_size=8)


def numpy_distortion(A, gamma, theta):
    return sum(t * np.linalg.matrix_power(np.eye(len(A)) - gamma * A, k) for k, t in enumerate(theta))


@settings(deadline=None, max_examples=40)
@given(thetas, st.floats(-1, 2), st.integers(1, 5), st.integers(0, 10**6))
def test_distortion_is_its_definition(theta, gamma, d, seed):
    A, _, _ = random_quadratic(seed, 3, d)
    found = theory.distortion(A, gamma, theta)
    assert found.dtype == jnp.float64
    for i in range(3):
        np.testing.assert_allclose(found[i], numpy_distortion(A[i], gamma, theta), rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(theory.distortion(A[i], gamma, theta), found[i], rtol=1e-13, atol=1e-13)


@settings(deadline=None, max_examples=20)
@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.floats(0, 0.45),
    thetas.filter(lambda t: sum(t) > 0.1),
    st.integers(0, 10**6),
)
def test_surrogate_minimiser_is_where_the_gradient_vanishes(n, d, gamma, theta, seed):
    problem = theory.Problem(*random_quadratic(seed, n, d))
    x = theory.surrogate_minimizer(problem, gamma, theta)
    with jax.enable_x64(True):
        gradient = jax.grad(lambda x: theory.surrogate_loss(problem, x, gamma, theta))(x)
        hessian = jax.hessian(lambda x: theory.surrogate_loss(problem, x, gamma, theta))(x)
    np.testing.assert_allclose(gradient, 0, atol=1e-9)
    np.testing.assert_allclose(hessian, theory.surrogate_hessian(problem, gamma, theta), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(theory.surrogate_gradient(problem, x, gamma, theta), 0, atol=1e-9)


def test_minimisers_of_the_true_loss_and_of_no_local_progress():
    problem = theory.Problem(*random_quadratic(0, 3, 2))
    with jax.enable_x64(True):
        gradient = jax.grad(lambda x: theory.loss(problem, x))(theory.minimizer(problem))
    np.testing.assert_allclose(gradient, 0, atol=1e-12)
    for gamma, theta in ((0.0, (1, 2, 3)), (0.3, (2,))):
        np.testing.assert_allclose(
            theory.surrogate_minimizer(problem, gamma, theta), theory.minimizer(problem), rtol=1e-12
        )
    far = theory.surrogate_minimizer(problem, 0.4, (1,) * 400)
    np.testing.assert_allclose(far, theory.average_minimizer(problem), rtol=1e-10)


@given(st.fractions(-3, 3, max_denominator=9), st.integers(0, 70))
def test_geometric_sum_is_exact(v, K):
    assert geometric_sum(v, K) == sum((v**k for k in range(K)), Fraction(0))


@pytest.mark.parametrize("K", [1, 2, 3, 20, 1000])
def test_phi_is_smooth_at_zero(K):
    """phi(0) = K lambda and phi'(0) = -K(K-1)/2 lambda^2, with no division by gamma."""
    with jax.enable_x64(True):
        value, slope = jax.value_and_grad(lambda g: theory.phi(K, 1.5, g))(0.0)
    assert float(value) == K * 1.5
    assert float(slope) == pytest.approx(-K * (K - 1) / 2 * 1.5**2, rel=1e-13)
    gamma = 0.3
    assert float(theory.phi(K, 1.5, gamma)) == pytest.approx((1 - (1 - gamma * 1.5) ** K) / gamma, rel=1e-13)


def test_chi():
    assert float(theory.chi(0.0, (1, 2), 3.0)) == 1.0
    assert float(theory.chi(0.1, (1, 2), 3.0)) == pytest.approx((1 + 2 * 0.7) / 3)
    with pytest.raises(ValueError, match="Assumption 0"):
        theory.chi(0.1, (0, 0), 3.0)


def test_constants():
    problem = theory.two_clients()
    assert [float(v) for v in theory.constants(problem)] == [1.0, 2.0, 0.5, 0.25]
    A, c, p = random_quadratic(4, 3, 3)
    found = theory.constants(theory.Problem(A, c, p))
    mean = np.tensordot(p, A, 1)
    assert float(found.sigma_A) == pytest.approx(
        np.sqrt(sum(p[i] * np.linalg.norm(A[i] - mean, 2) ** 2 for i in range(3)))
    )
    assert float(found.sigma_c) == pytest.approx(np.sqrt(sum(p[i] * np.sum((c[i] - p @ c) ** 2) for i in range(3))))


def test_double_precision_inside_a_single_precision_program():
    """Theory neither needs nor changes jax's global setting."""
    assert not jax.config.jax_enable_x64
    assert theory.minimizer(theory.two_clients()).dtype == jnp.float64
    assert float(theory.minimizer(theory.two_clients())[0]) == 2 / 3
    assert jnp.ones(1).dtype == jnp.float32


def test_theory_imports_jax_only():
    """The closed forms are independent: importing them loads neither lur nor optax nor flax."""
    program = "import sys, theory.exact, theory.maml, theory.claims; print({'lur', 'optax', 'flax'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@settings(deadline=None, max_examples=25)
@given(st.lists(st.fractions(-3, 3, max_denominator=5), min_size=9, max_size=9), st.integers(1, 3))
def test_exact_arithmetic_against_floats(values, d):
    """Solve, eigenvalues and operator norm of exact matrices against numpy."""
    G = np.array(values, dtype=object).reshape(3, 3)[:d, :d]
    S = G @ G.T + 2 * np.eye(d, dtype=int)
    A, floats = exact.array(S), S.astype(float)
    np.testing.assert_allclose(exact.inverse(A).astype(float), np.linalg.inv(floats), rtol=1e-9, atol=1e-12)
    assert (exact.inverse(A) @ A == exact.eye(d)).all()
    np.testing.assert_allclose([float(v) for v in exact.eigvalsh(A)], np.linalg.eigvalsh(floats), rtol=1e-9)
    general = exact.array(G)
    np.testing.assert_allclose(
        float(exact.operator_norm(general)), np.linalg.norm(G.astype(float), 2), rtol=1e-7, atol=1e-12
    )


def test_exact_square_roots():
    assert exact.sqrt(exact.rational("9/4")) == exact.rational("3/2")
    root = exact.sqrt(exact.rational(2))
    assert root > exact.rational("1.41421356237309504880")
    assert root < exact.rational("1.41421356237309504881")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: theory.Problem([[[1.0, 0.5], [0.0, 1.0]]], [[0.0, 0.0]]), "A must be symmetric"),
        (lambda: theory.Problem(np.ones((2, 2)), np.ones(2)), r"A must have shape \(n, d, d\)"),
        (lambda: theory.Problem(np.ones((1, 1, 1)), np.ones((2, 1))), r"c must have shape \(1, 1\)"),
        (lambda: theory.Problem(np.ones((2, 1, 1)), np.ones((2, 1)), [0.5, 0.6]), "p must sum to 1"),
        (lambda: theory.Problem(np.ones((2, 1, 1)), np.ones((2, 1)), [1.5, -0.5]), "p must be nonnegative"),
        (lambda: theory.Problem(np.ones((2, 1, 1)), np.ones((2, 1)), [1.0]), r"p must have shape \(2,\)"),
        (lambda: theory.Problem(np.full((1, 1, 1), np.nan), np.ones((1, 1))), "A must be finite"),
        (lambda: theory.Problem(np.ones((1, 1, 1)), np.full((1, 1), np.inf)), "c must be finite"),
        (lambda: theory.Problem(np.ones((0, 1, 1)), np.ones((0, 1))), "n >= 1"),
        (lambda: theory.minimizer(theory.Problem(-np.ones((1, 1, 1)), np.ones((1, 1)))), "eigenvalue -1"),
        (lambda: theory.constants(theory.Problem(np.zeros((1, 1, 1)), np.ones((1, 1)))), "A must be positive definite"),
        (lambda: theory.surrogate_minimizer(theory.two_clients(), 1.3, (1, 1)), "surrogate Hessian"),
        (lambda: theory.distortion(np.array([[1.0, 2.0], [0.0, 1.0]]), 0.1, (1,)), "A must be symmetric"),
        (lambda: theory.distortion(np.eye(2), 0.1, ()), "theta must be a non-empty"),
        (lambda: theory.distortion(np.eye(2), 0.1, (1, -1)), "theta must be finite and >= 0"),
        (lambda: theory.distortion(np.eye(2), float("nan"), (1,)), "gamma must be finite"),
        (lambda: theory.distortion(np.eye(2), np.ones(2), (1,)), "gamma must be a scalar"),
        (lambda: theory.StochasticProblem(np.zeros((1, 2, 1, 1)), np.zeros((1, 2, 1))).problem, "invertible"),
        (
            lambda: theory.StochasticProblem(np.ones((1, 2, 1, 1)), np.ones((1, 2, 1)), [[0.5, 0.4]]),
            "p_z must sum to 1",
        ),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
