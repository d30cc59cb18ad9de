"""`lur.diagnose` on quadratics, whose surrogate is known, and on a convex loss, against dense matrices."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lur
import theory
from lur import tasks
from lur.tasks import quadratic
from tests.lur.problems import random_quadratic

pytestmark = pytest.mark.x64

d, n = 12, 5
A, c, _ = random_quadratic(6, n, d)
PROBLEM = theory.Problem(A, c)


@pytest.mark.parametrize(
    ("dtype", "thetas"), [(jnp.float64, ((1.0,), (0.0, 0.0, 1.0))), (jnp.float32, ((1.0,), (1.0,) * 4))]
)
def test_quadratics_agree_with_theory(dtype, thetas):
    """Eigenvalues, condition number, asymmetry and both gaps, for FOMAML and for FedAvg."""
    task = quadratic.task(A, c, dtype=dtype)
    found = lur.diagnose(task, jnp.ones(d, dtype), gammas=(0.05, 0.3), thetas=thetas, clients=n, depth=d)
    assert [(row.gamma, row.theta) for row in found][:2] == [(0.05, thetas[0]), (0.05, thetas[1])]
    assert len(found) == 3
    for row in found:
        spectrum = np.linalg.eigvalsh(np.asarray(theory.surrogate_hessian(PROBLEM, row.gamma, row.theta)))
        for seen in (row.jacobian, row.predicted):
            np.testing.assert_allclose([seen.smallest, seen.largest], spectrum[[0, -1]], rtol=1e-4)
            np.testing.assert_allclose(seen.condition_number, spectrum[-1] / spectrum[0], rtol=1e-4)
        assert row.asymmetry < 1e-4
        assert row.jacobian_gap < 1e-4
        assert row.update_gap < 1e-4
    K = [len(row.theta) for row in found]
    assert [row.products for row in found] == [n * (k * (3 * d + 3 * 4) + k - 1) for k in K]


def test_fewer_lanczos_steps_bound_the_largest_eigenvalue():
    """A Ritz value is below the largest eigenvalue, and within its error bound of some eigenvalue."""
    task = quadratic.task(A, c, dtype=jnp.float64)
    (row,) = lur.diagnose(task, jnp.zeros(d), gammas=(0.2,), thetas=((1.0, 1.0),), clients=n, depth=4)
    spectrum = np.linalg.eigvalsh(np.asarray(theory.surrogate_hessian(PROBLEM, 0.2, (1.0, 1.0))))
    assert spectrum[0] <= row.jacobian.smallest <= row.jacobian.largest <= spectrum[-1]
    assert np.abs(spectrum - row.jacobian.largest).min() <= row.jacobian.largest_error
    assert row.jacobian.largest_error > 1e-6


def test_a_convex_loss_agrees_with_dense_matrices():
    """The Jacobian by jacfwd, Hessians by jax.hessian."""
    task = tasks.load("quadratic", clients=3, d=4, dtype=jnp.float64)

    def loss(x, batch):  # convex, not quadratic
        return jnp.mean(jnp.logaddexp(0.0, 6 * jnp.einsum("bij,j->bi", batch["A"], x) - batch["c"])) + 0.05 * x @ x

    def outcomes(x, batch):
        losses = jax.vmap(lambda A, c: loss(x, {"A": A[None], "c": c[None]}))(batch["A"], batch["c"])
        return tasks.Outcomes(losses, losses, losses)

    convex = dataclasses.replace(task, outcomes=outcomes)
    x, gamma, theta = jnp.array([0.5, -1.0, 2.0, 0.0]), 2.0, (1.0, 1.0, 1.0)
    (row,) = lur.diagnose(convex, x, gammas=(gamma,), thetas=(theta,), clients=3, depth=4, probes=400)
    clients = [
        {"A": A_i[None], "c": c_i[None]}
        for A_i, c_i in zip(task.store.features["A"], task.store.features["c"], strict=True)
    ]
    J = P = np.zeros((4, 4))
    gaps = []
    for batch in clients:
        steps = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (3, *leaf.shape)), batch)

        def update(x, steps=steps):
            return lur.inner_loop(loss, x, steps, gamma, theta)[0]

        H = np.asarray(jax.hessian(loss)(x, batch))
        Q = np.asarray(theory.distortion(H, gamma, theta))
        J, P = J + np.asarray(jax.jacfwd(update)(x)) / 3, P + Q @ H / 3
        q = update(x)
        gaps.append(np.linalg.norm(q - Q @ jax.grad(loss)(x, batch)) / np.linalg.norm(q))
    np.testing.assert_allclose(row.update_gap, np.mean(gaps), rtol=1e-6)
    assert row.update_gap > 0.01
    spectrum = np.linalg.eigvalsh((J + J.T) / 2)
    np.testing.assert_allclose([row.jacobian.smallest, row.jacobian.largest], spectrum[[0, -1]], rtol=1e-6)
    norm = np.linalg.norm(J)
    np.testing.assert_allclose(row.asymmetry, np.linalg.norm(J - J.T) / norm, rtol=0.2)
    np.testing.assert_allclose(row.jacobian_gap, np.linalg.norm(J - P) / norm, rtol=0.2)


def test_invalid_arguments_are_refused():
    task = quadratic.task(A, c, dtype=jnp.float64)
    with pytest.raises(ValueError, match="depth must be an integer >= 1, got 0"):
        lur.diagnose(task, jnp.zeros(d), depth=0)
    with pytest.raises(ValueError, match="gammas must be finite and >= 0"):
        lur.diagnose(task, jnp.zeros(d), gammas=(-1.0,))
