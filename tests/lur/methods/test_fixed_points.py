"""Where methods converge on the two clients of Section 4 whose numbers of steps differ: exact rationals."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
import theory
from lur import methods
from lur.data.writer import in_memory
from lur.methods.method import Batches, RoundInputs, method_round
from lur.parallel.layouts import parse_layout
from tests.lur.problems import quadratic_loss

pytestmark = pytest.mark.x64

GAMMA = Fraction(1, 4)
STEPS = [(1, 3), (2, 8), pytest.param((3, 3), marks=pytest.mark.full)]


def steps_of_client(source, client):
    """Given mini-batches of a client that takes its first K_i steps."""
    arrays, K_i = client
    return Batches(arrays, is_step=jnp.arange(len(jax.tree.leaves(arrays)[0])) < K_i)


def fixed_point(method, steps):
    """The fixed point of rounds with both clients, gamma = 1/4 and eta = 1/8, and its spectral radius."""
    problem, K = theory.two_clients(), max(steps)
    batches = jax.tree.map(lambda v: jnp.repeat(v[:, None, None], K, axis=1), (problem.A, problem.c))
    state = method.init(jnp.zeros(1), float(GAMMA), 0.125)
    inputs = RoundInputs((batches, jnp.array(steps)))

    def one_round(x):
        start = state._replace(params=x)
        return method_round(method, start, inputs, parse_layout("vmap"), steps_of_client)[0].params

    found = theory.fixed_point_of(one_round, state.params)
    assert found.radius < 1
    return float(found.state[0])


def weighted_minimiser(steps, weight):
    """The zero of sum_i w_i Q_i A_i (x - c_i), Q_i = (1 - (1 - gamma A_i)^K_i) / (gamma A_i), A = 1, 2, c = 1, 1/2."""
    total, moment = Fraction(0), Fraction(0)
    for A, c, K in zip((1, 2), (Fraction(1), Fraction(1, 2)), steps, strict=True):
        pull = weight(K) * (1 - (1 - GAMMA * A) ** K) / GAMMA
        total, moment = total + pull, moment + pull * c
    return moment / total


PUBLISHED = {
    ("fedavg", (1, 3)): Fraction(11, 18),
    ("fednova", (1, 3)): Fraction(19, 26),
    ("fedavg", (2, 8)): Fraction(479, 734),
    ("fednova", (2, 8)): Fraction(1151, 1406),
}


@pytest.mark.parametrize("steps", STEPS)
def test_fedavg_sums_and_fednova_averages_the_local_gradients(steps):
    fedavg = weighted_minimiser(steps, lambda K: Fraction(1))
    fednova = weighted_minimiser(steps, lambda K: Fraction(1, K))
    assert (fedavg == fednova) == (steps[0] == steps[1])
    for name, expected in (("fedavg", fedavg), ("fednova", fednova)):
        assert PUBLISHED.get((name, steps), expected) == expected
    K = max(steps)
    assert fixed_point(methods.local_update(quadratic_loss, lur.theta.fedavg(K)), steps) == pytest.approx(
        float(fedavg), rel=1e-14
    )
    assert fixed_point(methods.fednova(quadratic_loss, K), steps) == pytest.approx(float(fednova), rel=1e-14)


@pytest.mark.parametrize("make", [methods.fedlin, lambda loss, K: methods.mime(loss, K, optax.sgd)])
def test_corrected_gradients_converge_to_the_minimiser(make):
    """For any numbers of steps: x* = 2/3."""
    assert fixed_point(make(quadratic_loss, 8), (2, 8)) == pytest.approx(2 / 3, rel=1e-14)


def masked_loss(x, batch):
    mask = batch["mask"].astype(x.dtype)
    return (mask * batch["A"] * (x - batch["c"]) ** 2).sum() / (2 * mask.sum())


def test_fednova_over_epochs_converges_to_its_fixed_point():
    """Clients with 1 and 3 examples, one epoch with B = 1."""
    store = in_memory(
        (f"{i}", {"A": np.full(K, A), "c": np.full(K, 1 / A)}) for i, (A, K) in enumerate(((1.0, 1), (2.0, 3)))
    )
    method = methods.fednova(masked_loss, 3)
    state, _ = lur.run(
        method, method.init(np.zeros(()), float(GAMMA), 0.25), store, rounds=128, clients_per_round=2, batch_size=1,
        epochs=1, layout="sequential",
    )  # fmt: skip
    np.testing.assert_allclose(state.params, 19 / 26, rtol=1e-14)
