"""Methods with two exchanges per round: the cohort's mean of `prepare` reaches every client."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
from lur.data.sampling import round_key, sample_clients
from lur.methods.method import Batches, Broadcast, ClientOutput, Method
from lur.methods.server import InitServer, ServerUpdate
from tests.lur import numpy_loop
from tests.lur.numpy_loop import own_batches, random_store

pytestmark = pytest.mark.x64

SIZES, M, K, B, ROUNDS, SEED = (1, 4, 2, 7, 3, 5), 3, 3, 2, 4, 5
START, GAMMA, ETA = np.array([1.0, -2.0, 0.5]), 0.2, 0.7
RUN: dict[str, Any] = {"rounds": ROUNDS, "clients_per_round": M, "batch_size": B}


def gradient(w, batch):
    return jax.grad(numpy_loop.loss)(w, batch)


class Prepare(NamedTuple):
    """The client's gradient at the broadcast model, and its count of rounds."""

    def __call__(self, broadcast: Broadcast, client_state, batches: Batches):
        g, _ = batches.scan(lambda total, batch: (total + gradient(broadcast.params, batch) / K, None), 0 * START)
        return {"gradient": g, "count": client_state["count"].astype(g.dtype)}


class Corrected(NamedTuple):
    """Local steps along g_k(y) - g_k(x) + the cohort's mean gradient at x (FedLin; Mitra et al., 2021)."""

    def __call__(self, broadcast: Broadcast, client_state, batches: Batches) -> ClientOutput:
        x, prepared = broadcast.params, broadcast.prepared

        def step(y, batch):
            g = gradient(y, batch) - gradient(x, batch) + prepared["gradient"] + 0.01 * prepared["count"]
            return y - broadcast.client_lr * g, numpy_loop.loss(x, batch)

        y, losses = batches.scan(step, x)
        return ClientOutput(x - y, {"count": client_state["count"] + 1}, losses[0])


def init_client(params):
    return {"count": jnp.int32(0)}


METHOD = Method(
    InitServer(optax.sgd, None, K), Corrected(), ServerUpdate(optax.sgd, None), K, init_client, prepare=Prepare()
)


def numpy_run(store, gamma=GAMMA, eta=ETA, seed=SEED, weighting="uniform"):
    x, counts = START, np.zeros(len(SIZES), np.int32)
    for t in range(ROUNDS):
        key = round_key(seed, t)
        cohort = [int(i) for i in sample_clients(key, len(SIZES), M)]
        batches = {i: own_batches(store, key, i, K, B, None) for i in cohort}
        weights = [SIZES[i] if weighting == "examples" else 1 for i in cohort]
        own = [np.mean([numpy_loop.gradient(x, *batch) for batch in batches[i]], axis=0) for i in cohort]
        mean, count = np.average(own, axis=0, weights=weights), np.average(counts[cohort], weights=weights)
        updates = []
        for i in cohort:
            y = x
            for batch in batches[i]:
                g = numpy_loop.gradient(y, *batch) - numpy_loop.gradient(x, *batch) + mean + 0.01 * count
                y = y - gamma * g
            updates.append(x - y)
        counts[cohort] += 1
        x = x - eta * np.average(updates, axis=0, weights=weights)
    return x, counts


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
@pytest.mark.parametrize(
    ("layout", "data"),
    [("vmap", None), ("sequential", None), ("chunked:2", None), ("sharded", None), ("vmap", "host")],
)
def test_the_prepared_mean_is_that_of_a_numpy_loop(layout, data, weighting):
    store = random_store(0, SIZES)
    state = METHOD.init(START, GAMMA, ETA, clients=len(SIZES))
    state, _ = lur.run(METHOD, state, store, seed=SEED, layout=layout, data=data, weighting=weighting, **RUN)
    x, counts = numpy_run(store, weighting=weighting)
    np.testing.assert_allclose(state.params, x, rtol=1e-12)
    np.testing.assert_array_equal(state.clients["count"], counts)


@pytest.mark.parametrize("layout", ["vmap", "sequential"])
def test_every_cell_of_a_grid_has_a_prepared_mean_of_its_own(layout):
    store, rates = random_store(0, SIZES), {"client_lr": (0.0, GAMMA, 0.3), "server_lr": (ETA, 1.0)}
    states, _ = lur.run_grid(METHOD, START, store, **rates, seeds=(SEED, 6), layout=layout, **RUN)
    for i, gamma in enumerate(rates["client_lr"]):
        for j, eta in enumerate(rates["server_lr"]):
            for k, seed in enumerate((SEED, 6)):
                x, counts = numpy_run(store, gamma, eta, seed)
                np.testing.assert_allclose(states.params[i, j, k], x, rtol=1e-12)
                np.testing.assert_array_equal(states.clients["count"][i, j, k], counts)


@pytest.mark.parametrize("layout", ["vmap", "sequential", "chunked:2"])
def test_round_prepares_with_the_given_weights(layout):
    rng = np.random.default_rng(0)
    batches = {"x": rng.normal(size=(M, K, B, 3)), "y": rng.normal(size=(M, K, B))}
    weights = np.array([1.0, 0.0, 3.0])
    state = METHOD.init(START, GAMMA, ETA, clients=M)
    state, _ = METHOD.round(state, batches, weights, layout=layout)
    own = [[(batches["x"][m, k], batches["y"][m, k]) for k in range(K)] for m in range(M)]
    means = [np.mean([numpy_loop.gradient(START, *batch) for batch in client], axis=0) for client in own]
    mean, updates = np.average(means, axis=0, weights=weights), []
    for client in own:
        y = START
        for batch in client:
            y = y - GAMMA * (numpy_loop.gradient(y, *batch) - numpy_loop.gradient(START, *batch) + mean)
        updates.append(START - y)
    np.testing.assert_allclose(state.params, START - ETA * np.average(updates, axis=0, weights=weights), rtol=1e-12)
