"""SCAFFOLD, FedDyn, ProxSkip and FedSplit on quadratics: where they converge, how fast, and when SCAFFOLD diverges."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lur
import theory
from lur.data.writer import in_memory
from lur.engine import host_store, rounds
from lur.methods import feddyn, fedsplit, proxskip, scaffold
from lur.methods.method import Batches, Broadcast, RoundInputs, method_round
from lur.parallel.layouts import parse_layout
from lur.parallel.mesh import mesh_of
from tests.lur import numpy_loop
from tests.lur.numpy_loop import random_store
from tests.lur.problems import descent_batches, quadratic_loss, random_quadratic

pytestmark = pytest.mark.x64

n, d, K, GAMMA = 5, 3, 3, 0.2
A, c, p = random_quadratic(3, n, d)
UNIFORM = np.full(n, 1 / n)
METHODS = {
    "scaffold I": partial(scaffold, quadratic_loss, K, "I"),
    "scaffold II": partial(scaffold, quadratic_loss, K),
    "feddyn": partial(feddyn, quadratic_loss, K, 1.0),
    "proxskip": partial(proxskip, quadratic_loss, 0.4),
    "fedsplit": partial(fedsplit, quadratic_loss, K, 1.0),
    "fedavg": partial(lur.local_update, quadratic_loss, lur.theta.fedavg(K), send="delta"),
}


def minimizer(weights):
    """The minimiser of the weighted mean loss."""
    return np.linalg.solve(np.einsum("n,nij->ij", weights, A), np.einsum("n,nij,nj->i", weights, A, c))


@pytest.mark.parametrize("name", METHODS)
def test_weighted_rounds_of_all_clients_end_at_the_weighted_minimiser(name):
    """All but FedAvg, with few and inexact local steps; in the client states are the gradients at the minimiser."""
    method = METHODS[name]()
    batches = descent_batches(A, c, method.local_steps)

    @jax.jit
    def run(state):
        return jax.lax.fori_loop(0, 1500, lambda _, s: method.round(s, batches, p)[0], state)

    state, star = run(method.init(np.zeros(d), GAMMA, 1.0, clients=n)), minimizer(p)
    distance = np.abs(method.model(state) - star).max()
    if name == "fedavg":
        assert distance > 1e-2
        return
    assert distance < 1e-12
    gradients = np.einsum("nij,nj->ni", A, star - c)
    found = {"proxskip": lambda s: s.control, "fedsplit": lambda s: star - s}.get(name, lambda s: s)(state.clients)
    np.testing.assert_allclose(found, gradients, atol=1e-11)


@pytest.mark.parametrize(
    "name", ["scaffold II", "feddyn", "fedavg", pytest.param("scaffold I", marks=pytest.mark.full)]
)
def test_rounds_of_two_of_five_clients_end_at_the_minimiser(name):
    """All but FedAvg, whose model does not settle either."""
    store = in_memory((f"{i}", {"A": A[i][None], "c": c[i][None]}) for i in range(n))
    method = METHODS[name]()
    state, _ = lur.run(
        method, method.init(np.zeros(d), GAMMA, 1.0, clients=n), store, rounds=1500, clients_per_round=2,
        batch_size=1, view=lambda key, example: (example["A"], example["c"]), layout="vmap",
    )  # fmt: skip
    distance = np.abs(state.params - minimizer(UNIFORM)).max()
    assert distance > 1e-2 if name == "fedavg" else distance < 1e-12


# Two clients f_i = a_i (x - b_i)^2 / 2 with K_i steps: SCAFFOLD contracts or diverges.
CURVATURES, CENTERS, HALF = np.array([1.0, 0.1]), np.array([1.0, -2.0]), 0.5


def scaffold_matrix(steps):
    """The linear map of a SCAFFOLD round (option II, server rate 1) of (x, c_1, c_2), with c = (c_1 + c_2) / 2.

    K_i steps multiply the distance from the corrected loss's minimiser b_i + (c_i - c) / a_i by (1 - gamma a_i)^K_i.
    """
    x, *controls = np.eye(3)
    c = np.mean(controls, axis=0)
    deltas = [
        (1 - (1 - HALF * a) ** k) * (x - (c_i - c) / a) for a, k, c_i in zip(CURVATURES, steps, controls, strict=True)
    ]
    new = [c_i - c + delta / (k * HALF) for c_i, delta, k in zip(controls, deltas, steps, strict=True)]
    return np.array([x - np.mean(deltas, axis=0), *new])


def masked_loss(x, batch):
    """The mean loss of the examples (a, b) in the mask, nan without any."""
    mask = batch["mask"].astype(x.dtype)
    return (mask * batch["a"] * (x - batch["b"]) ** 2).sum() / (2 * mask.sum())


@pytest.mark.parametrize(("steps", "radius"), [((50, 50), 0.787), ((1, 50), 1.48)])
def test_the_spectral_radius_of_scaffold(steps, radius):
    """Differentiated through the round, from the closed form, and in a run of epochs over unequal clients."""
    method, longest = scaffold(masked_loss, 50), max(steps)
    state = method.init(np.float64(3.0), HALF, 1.0, clients=2)
    ones = np.ones((2, longest, 1))
    given = {"a": CURVATURES[:, None, None] * ones, "b": CENTERS[:, None, None] * ones, "mask": ones}
    is_step = np.arange(longest) < np.array(steps)[:, None]

    def one_round(memory):
        x, controls = memory
        before = state._replace(params=x, method_state=controls.mean(), clients=controls)
        inputs = RoundInputs((given, is_step), clients=jnp.arange(2))
        after, _ = method_round(
            method, before, inputs, parse_layout("vmap"), lambda _, own: Batches(own[0], is_step=own[1])
        )
        return after.params, after.clients

    expected = scaffold_matrix(steps)
    fixed = theory.fixed_point_of(one_round, (state.params, state.clients))
    np.testing.assert_allclose(fixed.matrix, expected, rtol=1e-12, atol=1e-13)
    largest = np.abs(np.linalg.eigvals(expected)).max()
    assert abs(fixed.radius - largest) < 1e-12
    assert round(largest, 3 if radius < 1 else 2) == radius
    star = CURVATURES @ CENTERS / CURVATURES.sum()
    np.testing.assert_allclose(fixed.state[0], star, rtol=1e-12)
    np.testing.assert_allclose(fixed.state[1], CURVATURES * (star - CENTERS), rtol=1e-12)

    store = in_memory(
        (f"{a}", {"a": np.full(k, a), "b": np.full(k, b)}) for k, a, b in zip(steps, CURVATURES, CENTERS, strict=True)
    )
    error, errors = np.array([3.0, 0.0, 0.0]) - np.array([star, *CURVATURES * (star - CENTERS)]), []
    for count in (12, 1, 1, 1):
        state, _ = lur.run(
            method, state, store, rounds=count, clients_per_round=2, batch_size=1, epochs=1, layout="vmap", capacity=12
        )
        error = np.linalg.matrix_power(expected, count) @ error
        errors.append(float(state.params) - star)
        np.testing.assert_allclose(errors[-1], error[0], rtol=1e-8)
    if radius < 1:  # one real eigenvalue leads
        assert abs(errors[3] / errors[2] - radius) < 1e-3
    else:  # e_{t+2} = 2 Re(lambda) e_{t+1} - |lambda|^2 e_t
        square = (errors[1] * errors[3] - errors[2] ** 2) / (errors[0] * errors[2] - errors[1] ** 2)
        assert abs(np.sqrt(square) - radius) < 1e-2


@pytest.mark.parametrize("is_step", [None, np.array([True, True, False])])
def test_option_ii_is_the_formula_of_the_paper_with_a_rate_per_step(is_step):
    """c_i+ - c_i = -c + (x - y) / (sum of the rates of the client's own steps)."""
    gammas, rng = np.array([0.3, 0.0, 0.2]), np.random.default_rng(0)
    x, server, own = jnp.asarray(rng.normal(size=(3, d)))
    batches = tuple(jnp.asarray(v[0]) for v in descent_batches(A[:1], c[:1], K))
    output = scaffold(quadratic_loss, K).client_update(
        Broadcast(x, jnp.asarray(gammas), server), own, Batches(batches, is_step=is_step)
    )
    delta, change = output.update
    taken = gammas.sum() if is_step is None else gammas[is_step].sum()
    np.testing.assert_allclose(change, -server + delta / taken, rtol=1e-12)
    np.testing.assert_allclose(output.state, own + change, rtol=1e-12)
    y = x
    for gamma, counts in zip(gammas, np.ones(K, bool) if is_step is None else is_step, strict=True):
        y = y - counts * gamma * (A[0] @ (y - c[0]) - own + server)
    np.testing.assert_allclose(delta, x - y, rtol=1e-12)


def test_a_rate_that_has_become_0_gives_the_gradients_at_the_model():
    """Not nan: a rate may decay to 0."""
    batches = descent_batches(A, c, K)
    for name in ("scaffold I", "scaffold II", "proxskip"):
        method = METHODS[name]()
        state = method.init(np.ones(d), GAMMA, 1.0, clients=n)
        state, _ = method.round(
            state._replace(client_lr=jnp.zeros(())), tuple(v[:, : method.local_steps] for v in batches)
        )
        state, _ = method.round(state, tuple(v[:, : method.local_steps] for v in batches))
        np.testing.assert_array_equal(state.params, 1.0)
        found = state.clients.control if name == "proxskip" else state.clients
        gradients = np.einsum("nij,nj->ni", A, 1 - c)
        np.testing.assert_allclose(found, 0 * gradients if name == "proxskip" else gradients, rtol=1e-12)


@pytest.mark.parametrize("weighting", ["uniform", pytest.param("examples", marks=pytest.mark.full)])
def test_padded_clients_of_several_processes_are_not_counted(weighting, monkeypatch):
    """Two further places of weight 0 change neither x nor c: M is 3 of 7 clients, not 5."""
    store = random_store(0, (3, 2, 4, 1, 2, 5, 3))
    method = scaffold(numpy_loop.loss, K)
    start = method.init(np.ones(3), 0.1, 0.5, clients=7)
    options = {"rounds": 4, "clients_per_round": 3, "batch_size": 2, "seed": 3, "weighting": weighting}
    expected, _ = lur.run(method, start, store, layout="vmap", **options)
    shares = []

    def process_share(M, layout):
        shares.append(host_store.ProcessShare(M + 2, np.arange(M + 2), mesh_of(layout)))
        return shares[-1]

    monkeypatch.setattr(rounds, "process_share", process_share)
    monkeypatch.setattr(rounds, "prefetched", lambda read, starts, depth: map(read, starts))  # threads have no x64
    padded, infos = lur.run(method, start, store, layout="sequential", data="host", **options)
    assert len(shares) == 1
    assert infos.client_losses.shape == (4, 3)
    for found, other in zip(padded[:1] + padded[-2:], expected[:1] + expected[-2:], strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-12, atol=1e-15)
