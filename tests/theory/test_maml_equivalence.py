"""Theorem 2 on a user's own problem, and the corrected theorems as functions."""

import numpy as np
import pytest

import theory
from theory.surrogate import minimizer, surrogate_hessian, surrogate_minimizer
from theory.trials.prediction import random_problem

pytestmark = pytest.mark.x64


def clients(seed=0, n=3, d=2):
    generator = np.random.default_rng(seed)
    roots = generator.standard_normal((n, d, d))
    A = roots @ roots.swapaxes(-1, -2) + 0.1 * np.eye(d)
    p = generator.uniform(0.2, 1, n)
    return theory.Problem(A, generator.standard_normal((n, d)), p / p.sum())


@pytest.mark.parametrize("K", [0, 1, 4, 30])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.7, 2.2])
def test_maml_is_theta_2K_plus_1(K, share):
    """For every rate, beyond 2/L too, where the terms grow and rounding with them."""
    problem = clients(K)
    gamma = share / float(theory.constants(problem).L)
    found = theory.check_maml_equivalence(problem, gamma, K)
    assert found.holds, (found.gap, found.tolerance)
    assert found.gap.max() < 1e-10
    x = np.ones(2)
    for i in range(3):
        direct = found.maml_hessians[i] @ x - found.surrogate_hessians[i] @ problem.c[i]
        np.testing.assert_allclose(
            direct, theory.maml.maml_gradient(problem.A[i], problem.c[i], x, gamma, K), rtol=1e-8
        )


def test_separate_query_data_break_the_equivalence():
    problem = clients()
    gamma = 0.3 / float(theory.constants(problem).L)
    shifted = theory.Problem(problem.A, problem.c + 1e-6, problem.p)
    assert not theory.check_maml_equivalence(problem, gamma, 3, query=shifted).holds
    other = theory.Problem(1.5 * problem.A, problem.c, problem.p)
    found = theory.check_maml_equivalence(problem, gamma, 3, query=other)
    assert not found.holds
    np.testing.assert_allclose(found.maml_hessians, 1.5 * found.surrogate_hessians, rtol=1e-12)
    np.testing.assert_allclose(found.maml_minimizer, found.surrogate_minimizer, rtol=1e-9)
    assert theory.check_maml_equivalence(problem, gamma, 3, query=problem).holds


def test_wrong_arguments_are_refused():
    problem = clients()
    with pytest.raises(ValueError, match=r"K must be an integer >= 0, got 1\.5"):
        theory.check_maml_equivalence(problem, 0.1, 1.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="query must have the clients and weights of problem"):
        theory.check_maml_equivalence(problem, 0.1, 1, query=clients(n=2))


@pytest.mark.parametrize("seed", range(2))
def test_corrected_bounds_hold_and_are_attained(seed):
    problem = clients(seed, d=2 + seed % 3)
    L = float(theory.constants(problem).L)
    for K in (1, 2, 10):
        gamma = 0.9 / L
        spectrum = np.linalg.eigvalsh(surrogate_hessian(problem, gamma, (1.0,) * K))
        assert spectrum[-1] / spectrum[0] <= float(theory.chord_condition_bound(problem, gamma, K)) * (1 + 1e-12)
        late = (0.0,) * (K - 1) + (1.0,)
        spectrum = np.linalg.eigvalsh(surrogate_hessian(problem, gamma / K, late))
        bound = theory.chord_condition_bound(problem, gamma / K, K, method="fomaml")
        assert spectrum[-1] / spectrum[0] <= float(bound) * (1 + 1e-12)
        gap = surrogate_minimizer(problem, gamma, (1.0,) * K) - problem.p @ problem.c
        assert float(np.linalg.norm(gap)) <= float(theory.one_shot_bound(problem, gamma, K)) * (1 + 1e-12)
    one = theory.Problem([[[2.0]], [[2.0]]], [[0.0], [1.0]])
    assert float(theory.chord_condition_bound(one, 0.1, 3)) == 1
    assert float(theory.one_shot_bound(one, 0.1, 3)) == 0
    two = theory.Problem(np.array([np.diag([1.0, 4.0]), np.diag([4.0, 1.0])]), np.zeros((2, 2)), [0.25, 0.75])
    spectrum = np.linalg.eigvalsh(surrogate_hessian(two, 0.2, (1.0,) * 4))
    assert spectrum[0] / spectrum[-1] > 1 / float(theory.chord_condition_bound(two, 0.2, 4))


def test_the_bounds_refuse_what_they_do_not_cover():
    problem = clients()
    L = float(theory.constants(problem).L)
    with pytest.raises(ValueError, match="gamma must be >= 0 and <= 1/L"):
        theory.chord_condition_bound(problem, 1.1 / L, 2)
    with pytest.raises(ValueError, match=r"1/\(2 L\)"):
        theory.chord_condition_bound(problem, 0.9 / L, 2, method="fomaml")
    with pytest.raises(ValueError, match="method must be 'fedavg' or 'fomaml', got 'reptile'"):
        theory.chord_condition_bound(problem, 0.1 / L, 2, method="reptile")  # pyright: ignore[reportArgumentType]


def test_convergence_with_sampling_is_public():
    problem = random_problem(3)
    assert float(theory.descent_bound(problem, minimizer(problem), 0.1, 2, 0.1)) > 0
