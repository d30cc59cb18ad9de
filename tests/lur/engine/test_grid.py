"""`lur.run_grid`: each cell equals a run with its rates and seed."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
from lur.data.writer import in_memory
from tests.lur.engine.test_run import K, clients, loss

GAMMAS, ETAS, SEEDS = (0.0, 0.1, 0.5), (0.1, 1.0), (0, 7)


@pytest.mark.x64
@pytest.mark.parametrize("layout", ["vmap", "sequential"])
def test_every_cell_equals_a_separate_run(layout):
    store = in_memory(clients())
    method = lur.local_update(loss, lur.theta.fedavg(K), optax.sgd)
    options = {"rounds": 6, "clients_per_round": 3, "batch_size": 2, "layout": layout}
    states, infos = lur.run_grid(method, jnp.ones(3), store, client_lr=GAMMAS, server_lr=ETAS, seeds=SEEDS, **options)
    assert states.params.shape == (3, 2, 2, 3)
    assert infos.loss.shape == (3, 2, 2, 6)
    for i, gamma in enumerate(GAMMAS):
        for j, eta in enumerate(ETAS):
            for k, seed in enumerate(SEEDS):
                state, info = lur.run(method, method.init(jnp.ones(3), gamma, eta), store, seed=seed, **options)
                np.testing.assert_allclose(states.params[i, j, k], state.params, rtol=1e-12)
                np.testing.assert_allclose(infos.loss[i, j, k], info.loss, rtol=1e-12)


def test_a_diverging_cell_does_not_affect_the_others():
    store = in_memory(clients(dtype=np.float32))
    method = lur.local_update(loss, lur.theta.fedavg(K), optax.sgd)
    options = {"server_lr": (0.1,), "rounds": 60, "clients_per_round": 3, "batch_size": 2}
    states, _ = lur.run_grid(method, jnp.ones(3), store, client_lr=(0.1, 1e6), **options)
    finite = jax.tree.map(lambda leaf: np.isfinite(leaf).all(axis=-1), states.params)
    assert finite[:, 0, 0].tolist() == [True, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"client_lr": ()}, "client_lr must be a list of at least one number"),
        ({"server_lr": 0.1}, "server_lr must be a list"),
        ({"client_lr": (-1.0,)}, "client_lr must be finite and >= 0"),
        ({"seeds": (-1,)}, "seed must be an integer"),
        ({"seeds": 0}, "seeds must be a list of at least one number, got 0"),
        ({"rounds": 0}, "rounds must be an integer >= 1"),
    ],
)
def test_invalid_arguments_are_rejected(options, message):
    method = lur.local_update(loss, lur.theta.fedavg(K), optax.sgd)
    arguments = {
        "client_lr": (0.1,),
        "server_lr": (0.1,),
        "rounds": 2,
        "clients_per_round": 2,
        "batch_size": 2,
        **options,
    }
    with pytest.raises(ValueError, match=message):
        lur.run_grid(method, jnp.ones(3, jnp.float32), in_memory(clients(dtype=np.float32)), **arguments)
