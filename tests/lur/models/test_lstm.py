"""The explicit gradient of the LSTM, and its conventions against flax's cell."""

import sys
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from lur.models.layers import LSTM, lstm
from tests.lur.models.forms import assert_close, assert_equal_forms, compiled, gradients, normal, random_params


def weights(inputs: int, units: int, dtype=jnp.float64):
    return (
        normal(1, inputs, 4 * units, dtype=dtype),
        normal(2, units, 4 * units, dtype=dtype),
        normal(3, 4 * units, dtype=dtype),
    )


@pytest.mark.x64
def test_equal_in_every_use():
    fast, plain = partial(lstm, form="fast"), partial(lstm, form="plain")
    assert_equal_forms(fast, plain, normal(0, 2, 5, 3), *weights(3, 4))


@pytest.mark.x64
def test_large_weights_are_not_transposed(monkeypatch):
    """The form of weights larger than `MAX_TRANSPOSED_SIZE`, in every use."""
    module, taken = sys.modules["lur.models.layers.lstm"], []
    product = module.times_transposed_weights
    monkeypatch.setattr(module, "MAX_TRANSPOSED_SIZE", 0)
    monkeypatch.setattr(module, "times_transposed_weights", lambda *inputs: taken.append(1) or product(*inputs))
    fast, plain = partial(lstm, form="fast"), partial(lstm, form="plain")
    assert_equal_forms(fast, plain, normal(0, 3, 5, 2), *weights(2, 6))
    assert taken


@pytest.mark.x64
@pytest.mark.parametrize(("B", "T", "inputs", "units"), [(1, 1, 2, 3), (3, 4, 1, 1)])
def test_smallest_sizes(B, T, inputs, units):
    x, ws = normal(0, B, T, inputs), weights(inputs, units)
    assert_close(*(gradients(partial(lstm, form=form), x, *ws) for form in ("fast", "plain")))


def test_single_precision():
    x, ws = normal(0, 4, 20, 8, dtype=jnp.float32), weights(8, 16, jnp.float32)
    ws = jax.tree.map(lambda w: 0.25 * w, ws)
    assert_close(*(gradients(partial(lstm, form=form), x, *ws) for form in ("fast", "plain")), 1e-5)


@pytest.mark.x64
def test_conventions_are_those_documented():
    units, x = 4, normal(0, 2, 6, 3)
    cell = nn.RNN(nn.OptimizedLSTMCell(units, dtype=jnp.float64, param_dtype=jnp.float64))
    params = random_params(cell, x)
    (tree,) = params["params"].values()
    kernel = jnp.concatenate([tree[f"i{gate}"]["kernel"] for gate in "ifgo"], axis=1)
    recurrent = jnp.concatenate([tree[f"h{gate}"]["kernel"] for gate in "ifgo"], axis=1)
    bias = jnp.concatenate([tree[f"h{gate}"]["bias"] for gate in "ifgo"])
    assert_close(compiled(lstm)(x, kernel, recurrent, bias), compiled(cell.apply)(params, x))


def test_initial_parameters():
    params = compiled(LSTM(8).init)(jax.random.key(0), jnp.zeros((1, 2, 3)))["params"]
    assert_close(params["recurrent"] @ params["recurrent"].T, jnp.eye(8), 1e-5)
    assert_close(params["bias"], jnp.repeat(jnp.array([0.0, 1.0, 0.0, 0.0]), 8))
    assert jnp.abs(params["kernel"]).max() <= (6 / (3 + 32)) ** 0.5


def test_invalid_arguments_are_refused():
    x = jnp.zeros((1, 2, 3))
    with pytest.raises(ValueError, match=r"\(in, 4 units\).*got \(3, 8\), \(2, 8\), \(7,\) for x of \(1, 2, 3\)"):
        lstm(x, jnp.zeros((3, 8)), jnp.zeros((2, 8)), jnp.zeros(7))
