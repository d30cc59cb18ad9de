"""Arguments of `lur.run` that do not belong together: an error instead of a wrong number, or a copy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
from lur.data.gather import resident
from lur.data.writer import in_memory
from lur.engine.fast.linear import LinearModel, linear_form

SIZES = {"rounds": 2, "clients_per_round": 2, "batch_size": 1}


def loss(w, batch):
    return jnp.mean((w - batch["x"]) ** 2) / 2


def store(shift=0.0):
    """Two clients, with 1 and 4 examples."""
    return in_memory((f"{n}", {"x": np.arange(n, dtype=np.float32) + np.float32(shift)}) for n in (1, 4))


def run(method, state, data=None, **options):
    return lur.run(method, state, store(), **SIZES, data=data, **options)


def test_data_that_is_neither_host_nor_a_copy_is_refused():
    method = lur.local_update(loss, [1.0])
    with pytest.raises(ValueError, match=r"data must be None, 'host' or .* got 'nonsense'"):
        run(method, method.init(jnp.zeros(()), 0.1, 0.1), "nonsense")


@pytest.mark.parametrize("shift", [1e-3, 1.0])
def test_a_copy_of_another_store_is_refused(shift):
    method = lur.local_update(loss, [1.0])
    state = method.init(jnp.zeros(()), 0.1, 0.1)
    expected, _ = run(method, state)
    found, _ = run(method, state, resident(store()))
    assert found.params == expected.params
    with pytest.raises(ValueError, match="data must be a copy of this store"):
        run(method, state, resident(store(shift)))


@pytest.mark.promote
def test_the_state_of_another_server_optimizer_is_refused():
    sgd, adam = (lur.local_update(loss, [1.0], server) for server in (optax.sgd, optax.adam))
    with pytest.raises(ValueError, match="state must be that of this method, with server_state"):
        run(sgd, adam.init(jnp.zeros(()), 0.1, 0.1))
    with pytest.raises(ValueError, match="state must be that of this method, with server_state"):
        run(adam, sgd.init(jnp.zeros(()), 0.1, 0.1))


def test_the_state_of_a_decay_that_the_method_has_not_is_refused():
    decaying = lur.local_update(loss, [1.0], decay=lur.decay.plateau())
    with pytest.raises(ValueError, match="state must be that of this method, with decay_state"):
        run(lur.local_update(loss, [1.0]), decaying.init(jnp.zeros(()), 0.1, 0.1))


@pytest.mark.parametrize("make", [jnp.ones, np.ones], ids=["jax", "numpy"])
def test_a_donated_state_leaves_the_callers_parameters_alone(make):
    method = lur.local_update(loss, [1.0])
    params = make((), np.float32)
    run(method, method.init(params, 0.1, 0.1), donate=True)
    assert float(params) == 1.0


def linear_loss(params, batch):
    mask = batch["mask"].astype(jnp.float32)
    return (mask * (batch["x"] * params["kernel"][0] - 1) ** 2 / 2).sum() / jnp.maximum(mask.sum(), 1)


def test_a_linear_model_refuses_late_weights_over_unequal_clients():
    """Theta_K of the largest client would give a smaller one, which takes fewer steps, no weight at all."""
    model = LinearModel(
        (), lambda batch: batch["x"][..., None], lambda batch: jnp.ones_like(batch["x"]), lambda z, y: (z - y) ** 2 / 2
    )
    method = linear_form(lur.local_update(linear_loss, [0.0, 0.0, 0.0, 1.0]), model)
    state = method.init({"kernel": jnp.zeros(1)}, 0.1, 0.1)
    with pytest.raises(ValueError, match="theta must have equal weights"):
        run(method, state, epochs=1)


def test_a_view_of_a_tuple_with_epochs():
    """The mini-batches of epochs get a mask, which has no place in a tuple."""
    store = in_memory([(str(i), {"x": np.ones((i + 1, 2), np.float32)}) for i in range(4)], {})
    method = lur.local_update(lambda params, batch: jnp.mean((params - batch[0]) ** 2), lur.theta.fedavg(4))
    state = method.init(jnp.zeros(2), client_lr=0.1, server_lr=0.1)
    options = {"rounds": 2, "clients_per_round": 2, "batch_size": 1, "view": lambda key, examples: (examples["x"],)}
    with pytest.raises(ValueError, match=r"view must return arrays by name with epochs, .* got tuple"):
        lur.run(method, state, store, epochs=1, **options)


def test_raw_random_keys_in_batches():
    method = lur.local_update(lambda params, batch: jnp.mean((params - batch["x"]) ** 2), lur.theta.fedavg(2))
    state = method.init(jnp.zeros(2), client_lr=0.1, server_lr=0.1)
    keys = jax.random.split(jax.random.key(0), (3, 2))
    x = jnp.ones((3, 2, 4, 2))
    method.round(state, {"x": x, "key": keys})
    with pytest.raises(ValueError, match=r"agree on the B axis .*; give random keys of jax.random.key, not of jax"):
        method.round(state, {"x": x, "key": jax.random.key_data(keys)})


def test_equinox_modules_as_params():
    eqx = pytest.importorskip("equinox")
    method = lur.local_update(lambda model, x: jnp.mean(jax.vmap(model)(x) ** 2), lur.theta.fedavg(2))
    state = method.init(eqx.nn.Linear(2, 1, key=jax.random.key(0)), client_lr=0.1, server_lr=0.1)
    state, _ = method.round(state, jnp.ones((3, 2, 4, 2)))
    assert state.params.weight.shape == (1, 2)
    with pytest.raises(ValueError, match=r"got .* at \.activation; .*equinox.partition"):
        method.init(eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0)), client_lr=0.1, server_lr=0.1)
