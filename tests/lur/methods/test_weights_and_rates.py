"""Weights and rates that the parameters' dtype cannot hold: means as in float64 to the rounding of the result."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lur
from lur.data.writer import in_memory
from lur.engine.fast.linear import LinearModel, linear_form
from lur.engine.fast.single_gradient import single_gradient_form

HALVES = [jnp.float16, jnp.bfloat16]
LAYOUTS = ["vmap", "sequential", "chunked:2", "sharded", "sharded:vmap"]
WEIGHTS = {
    "beyond float16": [70000, 1, 3],
    "equal": [9000] * 10,
    "beyond float32 together": [3e38] * 3,
    "no sum of powers of two": [1, 2, 4, 7, 11, 13],
}


def mean_distance(w, batch):
    """f = (w - x)^2 / 2, whose gradient at w = 0 is -x."""
    return jnp.mean((w - batch["x"]) ** 2) / 2


def values(M):
    """One number for each of M clients, exact in every dtype."""
    return np.arange(1, M + 1) / 8


def half_ulp(value, dtype):
    return float(jnp.finfo(dtype).eps) / 2 * abs(value)


@pytest.mark.parametrize("dtype", [*HALVES, jnp.float32])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", WEIGHTS)
def test_a_mean_is_rounded_once(name, layout, dtype):
    """Neither the weights nor the running sum are rounded to the parameters' dtype. Devices add in that dtype."""
    weights = np.array(WEIGHTS[name])
    x = values(len(weights))
    method = lur.local_update(mean_distance, [1.0])
    batches = {"x": jnp.asarray(x.reshape(-1, 1, 1), dtype)}
    state, info = method.round(method.init(jnp.zeros((), dtype), 0.1, 1.0), batches, weights, layout=layout)
    shares = weights / weights.max() / (weights / weights.max()).sum()
    devices = jax.device_count() if layout.startswith("sharded") else 1
    roundings = devices + 8 * len(x) * float(jnp.finfo(jnp.float32).eps / jnp.finfo(dtype).eps)
    for found, expected in ((state.params, shares @ x), (info.loss, shares @ x**2 / 2)):
        assert abs(float(found) - expected) <= roundings * half_ulp(expected, dtype)


def test_traced_weights_do_not_overflow():
    method = lur.local_update(mean_distance, [1.0])
    state, batches = method.init(jnp.zeros(()), 0.1, 1.0), {"x": jnp.array([1.0, 3.0]).reshape(2, 1, 1)}
    found, _ = jax.jit(partial(method.round, state, batches))(jnp.array([3e38, 3e38]))
    np.testing.assert_allclose(found.params, 2.0, rtol=1e-6)


def linear_losses(z, y):
    return (z - y) ** 2 / 2


def linear_features(batch):
    return batch["x"][..., None]


def linear_loss(params, batch):
    return jnp.mean((params["kernel"][0] * batch["x"] - 1) ** 2) / 2


def ones(batch):
    return jnp.ones_like(batch["x"])


@pytest.mark.promote
@pytest.mark.parametrize("dtype", [*HALVES, jnp.float32])
@pytest.mark.parametrize("form", ["reference", "linear", "single gradient", "grid"])
@pytest.mark.parametrize("layout", ["vmap", "sequential"])
def test_ten_clients_of_9000_examples(layout, form, dtype):
    """Weights by size, in every form of a round. All examples of a client are one number x: the update is -x."""
    x = values(10)
    store = in_memory((f"{i}", {"x": np.full(9000, value, jnp.dtype(dtype))}) for i, value in enumerate(x))
    method = lur.local_update(linear_loss, [1.0])
    params = {"kernel": jnp.zeros(1, dtype)}
    options = {"rounds": 1, "clients_per_round": 10, "batch_size": 1, "weighting": "examples", "layout": layout}
    if form == "grid":
        states, infos = lur.run_grid(method, params, store, client_lr=(0.1,), server_lr=(1.0,), **options)
        state, infos = jax.tree.map(lambda leaf: leaf[0, 0, 0], (states, infos))
    else:
        model = LinearModel((), linear_features, ones, linear_losses)
        rewritten = {"linear": partial(linear_form, model=model), "single gradient": single_gradient_form}
        method = rewritten.get(form, lambda method: method)(method)
        state, infos = lur.run(method, method.init(params, 0.1, 1.0), store, **options)
    tolerance = 2 * 10 * float(jnp.finfo(dtype).eps) * x.mean()
    assert abs(float(state.params["kernel"][0]) - x.mean()) <= tolerance
    assert abs(float(infos.loss[0]) - 0.5) <= 20 * float(jnp.finfo(dtype).eps)


RATES = [
    (jnp.float16, 1e5, "float16"),
    (jnp.float16, 1e-8, "float16"),
    (jnp.bfloat16, 1e39, "bfloat16"),
    (jnp.bfloat16, 1e-42, "bfloat16"),
    (jnp.float32, 1e39, "float32"),
    (jnp.float32, 1e-46, "float32"),
]


@pytest.mark.parametrize(("dtype", "rate", "name"), RATES)
def test_rates_beyond_the_dtype_are_refused(dtype, rate, name):
    params = jnp.ones(2, dtype)
    method = lur.local_update(mean_distance, [1.0, 1.0])
    refused = rf"must be 0 or in the range of {name}, .* got {re.escape(str(rate))}"
    with pytest.raises(ValueError, match=f"client_lr {refused}"):
        method.init(params, rate, 0.1)
    with pytest.raises(ValueError, match=f"server_lr {refused}"):
        method.init(params, 0.1, rate)
    with pytest.raises(ValueError, match="client_lr must be 0 or in the range"):
        method.init(params, np.array([0.1, rate]), 0.1)
    with pytest.raises(ValueError, match="gamma must be 0 or in the range"):
        lur.inner_loop(mean_distance, params, {"x": jnp.ones((2, 1), dtype)}, rate, [1.0, 1.0])
    store = in_memory([("a", {"x": np.ones(3, jnp.dtype(dtype))})])
    with pytest.raises(ValueError, match="server_lr must be 0 or in the range"):
        lur.run_grid(
            method, params, store, client_lr=(0.1,), server_lr=(0.1, rate), rounds=1, clients_per_round=1, batch_size=1
        )


def test_other_factors_beyond_the_dtype_are_refused():
    state = lur.local_update(mean_distance, [1.0]).init(jnp.ones(()), 0.1, 0.1)
    batches = {"x": jnp.ones((1, 1, 1))}
    with pytest.raises(ValueError, match="prox must be 0 or in the range of float32"):
        lur.local_update(mean_distance, [1.0], prox=1e39).round(state, batches)
    with pytest.raises(ValueError, match="theta must be 0 or in the range of float32"):
        lur.local_update(mean_distance, [1e-60]).round(state, batches)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("layout", ["vmap", "sequential"])
def test_a_rate_is_not_rounded_to_the_parameters_dtype(dtype, layout):
    """gamma = 1e-7 is 1.19e-7 in float16. Two steps with gradient 2^13 end at -2^14 gamma, rounded to the dtype."""

    def linear(w, batch):
        return jnp.mean(w * batch["x"])

    method = lur.local_update(linear, [1.0, 1.0], send="delta")
    batches = {"x": jnp.full((1, 2, 1), 2.0**13, dtype)}
    state, _ = method.round(method.init(jnp.zeros((), dtype), 1e-7, 1.0), batches, layout=layout)
    expected = -(2.0**14) * 1e-7
    assert abs(float(state.params) - expected) <= 4 * half_ulp(expected, dtype)
    store = in_memory([("a", {"x": np.full(3, 2.0**13, jnp.dtype(dtype))})])
    method = lur.local_update(linear, [1e-7, 1e-7])  # SGD with gradients: the fast steps
    state, _ = lur.run(
        method, method.init(jnp.zeros((), dtype), 0.5, 1.0), store, rounds=1, clients_per_round=1, batch_size=1
    )
    assert abs(float(state.params) - expected) <= 4 * half_ulp(expected, dtype)
