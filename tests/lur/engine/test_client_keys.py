"""`Batches.key`: one key for each (seed, round, client), in every layout; where no client draws, it costs nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
from lur.data.sampling import round_key, sample_clients
from lur.data.writer import in_memory
from lur.engine.grid import run_grid
from lur.methods.method import Batches, ClientOutput, Method, RoundInputs, method_round
from lur.methods.mini_batches import given_batches
from lur.methods.server import InitServer, ServerUpdate
from lur.parallel.layouts import parse_layout

pytestmark = pytest.mark.x64
N, M, K, B, D, ROUNDS, SEED = 7, 3, 2, 2, 4, 5, 11
RUN = {"rounds": ROUNDS, "clients_per_round": M, "batch_size": B, "seed": SEED}


def send_noise(broadcast, client_state, batches):
    """The update is a draw of the client's key."""
    return ClientOutput(jax.random.normal(batches.key, (D,), jnp.float64), client_state, jnp.zeros(()))


NOISY = Method(InitServer(optax.sgd, None, K), send_noise, ServerUpdate(optax.sgd, None), K)


def store():
    rng = np.random.default_rng(0)
    return in_memory([(f"{n}", {"x": rng.normal(size=(n, D))}) for n in (1, 3, 2, 5, 4, 7, 6)])


def start():
    return NOISY.init(np.zeros(D), 0.1, 1.0)


def mean_draw(key, clients):
    """The mean over clients, each of whose keys is folded out of the round's with its index."""
    keys = [jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, 1), i), 2) for i in clients]
    return np.mean([jax.random.normal(k, (D,), jnp.float64) for k in keys], axis=0)


def expected_model(seed=SEED):
    keys = [round_key(seed, t) for t in range(ROUNDS)]
    return -np.sum([mean_draw(key, sample_clients(key, N, M)) for key in keys], axis=0)


@pytest.mark.parametrize("layout", ["vmap", "sequential", "chunked:2"])
@pytest.mark.parametrize("data", [None, "host"])
def test_a_run_draws_with_the_key_of_seed_round_and_client(layout, data):
    state, _ = lur.run(NOISY, start(), store(), layout=layout, data=data, **RUN)
    np.testing.assert_allclose(state.params, expected_model(), rtol=1e-12)


def test_all_cells_of_a_grid_draw_alike_and_seeds_do_not():
    options = {name: value for name, value in RUN.items() if name != "seed"}
    rates = {"client_lr": [0.1, 0.2], "server_lr": [1.0]}
    states, _ = run_grid(NOISY, np.zeros(D), store(), seeds=(SEED, 3), **rates, **options)
    for gamma in range(2):
        np.testing.assert_allclose(states.params[gamma, 0], [expected_model(), expected_model(3)], rtol=1e-12)


@pytest.mark.parametrize("layout", ["vmap", "sequential"])
def test_given_batches_draw_with_the_key_of_round_and_client(layout):
    batches, state, total = {"x": np.zeros((M, K, B, D))}, start(), 0
    for t, clients in enumerate((None, [4, 0, 6], [0, 1, 2])):
        state, _ = NOISY.round(state, batches, clients=None if clients is None else np.array(clients), layout=layout)
        key = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), t)
        keys = [jax.random.fold_in(key, i) for i in clients or range(M)]
        total = total - np.mean([jax.random.normal(k, (D,), jnp.float64) for k in keys], axis=0)
    np.testing.assert_allclose(state.params, total, rtol=1e-12)


@pytest.mark.parametrize(("clients", "said"), [([0, 1], "3 integers"), ([0, 1, -1], "indices >= 0")])
def test_wrong_indices_of_clients_without_state_are_refused(clients, said):
    with pytest.raises(ValueError, match=said):
        NOISY.round(start(), {"x": np.zeros((M, K, B, D))}, clients=np.array(clients))


def test_a_key_that_no_client_uses_costs_nothing():
    """The compiled round is the program of batches without a key: no random bits, and the same operations."""
    method = lur.local_update(lambda x, batch: jnp.sum((x - batch["x"]) ** 2), lur.theta.fedavg(K))
    state = method.init(np.zeros(D), 0.1, 1.0)
    inputs = RoundInputs(({"x": jnp.ones((M, K, B, D))}, jnp.arange(M, dtype=jnp.int32)), source=state.round)

    def flops(method, batches_of):
        compiled = jax.jit(lambda state, inputs: method_round(method, state, inputs, parse_layout("vmap"), batches_of))
        return compiled.lower(state, inputs).compile().cost_analysis()["flops"]

    without = flops(method, lambda _, client: Batches(client[0]))
    assert flops(method, given_batches) == without
    assert flops(NOISY, given_batches) > without  # the count sees a draw
