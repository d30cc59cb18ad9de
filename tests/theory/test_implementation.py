"""The implementation on trial: lur and the reference agree, and both can be sent to other processes."""

import pickle

import jax.numpy as jnp
import numpy as np
import pytest

import lur
from tests.lur.problems import random_quadratic
from theory.trials import REFERENCE, implementation_of
from theory.trials.arithmetic import arithmetic

LUR = implementation_of(lur)

pytestmark = pytest.mark.x64


def test_inner_loop_and_maml_agree():
    A, c, _ = random_quadratic(0, 8, 3)
    A, c, x = A.reshape(4, 2, 3, 3), c.reshape(4, 2, 3), jnp.array([1.0, -2.0, 3.0])
    ours, theirs = arithmetic(REFERENCE), arithmetic(LUR)
    theta = (1.0, 0.0, 2.0)
    np.testing.assert_allclose(ours.inner_loop(A, c, x, 0.3, theta), theirs.inner_loop(A, c, x, 0.3, theta), rtol=1e-12)
    for steps in (0, 2, 4):
        expected = theirs.maml_gradient(A, c, x, 0.3, steps)
        np.testing.assert_allclose(ours.maml_gradient(A, c, x, 0.3, steps), expected, rtol=1e-12)


def test_local_update_agrees():
    A, c, p = random_quadratic(0, 3, 2)
    x = jnp.ones(2)
    reference, of_lur = (
        arithmetic(implementation).local_update(A, c, p, x, 0.2, (1.0, 1.0), 0.1, 5)
        for implementation in (REFERENCE, LUR)
    )
    np.testing.assert_allclose(reference, of_lur, rtol=1e-12)


@pytest.mark.parametrize(("window", "patience", "cooldown"), [(1, 1, 0), (3, 2, 4)])
def test_decay_agrees(window, patience, cooldown):
    runs = [arithmetic(i).decay_run(window, patience, cooldown, 40) for i in (REFERENCE, LUR)]
    assert runs[0]["decays"] == runs[1]["decays"] > 0
    assert runs[0]["x"] == pytest.approx(runs[1]["x"], rel=1e-12)
    losses = (1.0, 0.9, 0.5, 0.5, 0.6, 0.1)
    assert arithmetic(REFERENCE).decays_after(losses, 2) == arithmetic(LUR).decays_after(losses, 2)


def test_numbers_agree():
    for N, M in ((1000, 10), (1001, 10), (1, 10)):
        assert REFERENCE.rounds_to_see(N, M) == LUR.rounds_to_see(N, M)
    for theta in ((0.0,), (1.0, 2.0, 0.0), (0.0, 1.0)):
        assert REFERENCE.steps(theta) == LUR.steps(theta)


@pytest.mark.parametrize("implementation", [REFERENCE, LUR])
def test_implementations_can_be_sent_to_other_processes(implementation):
    assert pickle.loads(pickle.dumps(implementation)) == implementation
