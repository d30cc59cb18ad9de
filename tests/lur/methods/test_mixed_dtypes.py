"""Parameters of several floating dtypes: every leaf keeps its own, and the numbers are those of float32 to rounding."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
from lur.methods.method import Method
from tests.lur.numpy_loop import random_store

M, K, B, D = 4, 3, 2, 3
DTYPES = {"bfloat16": jnp.bfloat16, "float16": jnp.float16, "float32": jnp.float32}
TOLERANCE = 0.05
"""Of the way gone in float32; bfloat16 has 8 bits, and a round takes a dozen operations."""
OPTIONS = {
    "sgd": {},
    "prox": {"prox": 0.5, "loss_on": "all"},
    "delta": {"send": "delta"},
    "momentum": {"client": partial(optax.sgd, momentum=0.9), "server": partial(optax.sgd, momentum=0.5)},
    "built": {"client": optax.sgd(1.0, momentum=0.9), "server": optax.sgd(1.0, nesterov=True, momentum=0.5)},
    "weights": {"theta": (0.0, 0.5, 2.0)},
    "yogi": {"server": lur.optimizers.yogi},
}
PROMOTING = {"adam": {"client": optax.adam, "server": optax.adam}, "adamw": {"client": optax.adamw}}
"""optax's Adam promotes its step count."""


def loss(params, batch):
    """Least squares with three coefficients of each dtype and a quartic term, computed in float32."""
    leaves = [leaf.astype(jnp.float32) for leaf in params.values()]
    z = sum(batch["x"] @ leaf for leaf in leaves)
    return jnp.mean((z - batch["y"]) ** 2) / 2 + sum(jnp.sum(leaf**4) for leaf in leaves) / 16


def start(mixed=True):
    rng = np.random.default_rng(0)
    values = {name: jnp.asarray(rng.normal(size=D) / 2, dtype) for name, dtype in DTYPES.items()}
    return values if mixed else {name: leaf.astype(jnp.float32) for name, leaf in values.items()}


def method_of(theta=(1.0,) * K, **options) -> Method:
    return lur.local_update(loss, theta, **options)


def check(state, infos, expected):
    """The dtypes of the parameters, float32 for all else, and numbers near those of a float32 run."""
    assert {name: leaf.dtype for name, leaf in state.params.items()} == DTYPES
    numbers = (state.client_lr, state.server_lr, infos.loss, infos.client_norms)
    assert all(leaf.dtype == jnp.float32 for leaf in numbers)
    begin = np.concatenate([*start(mixed=False).values()])
    found = np.concatenate([np.asarray(leaf, np.float32) for leaf in state.params.values()])
    right = np.concatenate([*expected.params.values()])
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - right) < TOLERANCE * np.linalg.norm(right - begin)


def rounds(options, layout, mixed=True, count=3):
    rng = np.random.default_rng(1)
    batches = {"x": rng.normal(size=(M, K, B, D)), "y": rng.normal(size=(M, K, B))}
    batches = {name: leaf.astype(np.float32) for name, leaf in batches.items()}
    method, info = method_of(**options), None
    state = method.init(start(mixed), 0.05, 0.5)
    for _ in range(count):
        state, info = method.round(state, batches, np.array([1.0, 2.0, 3.0, 4.0]), layout=layout)
    return state, info


@pytest.mark.parametrize("layout", ["vmap", "chunked:3"])
@pytest.mark.parametrize("name", OPTIONS)
def test_rounds_keep_every_dtype(name, layout):
    check(*rounds(OPTIONS[name], layout), rounds(OPTIONS[name], layout, mixed=False)[0])


@pytest.mark.promote
@pytest.mark.parametrize("layout", ["vmap", "sequential"])
@pytest.mark.parametrize("name", PROMOTING)
def test_rounds_keep_every_dtype_with_optimizers_that_promote(name, layout):
    check(*rounds(PROMOTING[name], layout), rounds(PROMOTING[name], layout, mixed=False)[0])


@pytest.mark.parametrize(
    ("layout", "data"), [("vmap", None), ("sequential", None), ("chunked:2", None), ("sharded", None), ("vmap", "host")]
)
@pytest.mark.parametrize("name", ["sgd", "prox"])
def test_runs_keep_every_dtype(name, layout, data):
    store, method = random_store(0, (3, 4, 2, 5), D, np.float32), method_of(**OPTIONS[name])
    options = {"rounds": 3, "clients_per_round": 3, "batch_size": B, "weighting": "examples"}
    state, infos = lur.run(method, method.init(start(), 0.05, 0.5), store, layout=layout, data=data, **options)
    expected, _ = lur.run(method, method.init(start(mixed=False), 0.05, 0.5), store, **options)
    check(state, infos, expected)


def test_a_grid_keeps_every_dtype():
    store, method = random_store(0, (3, 4, 2, 5), D, np.float32), method_of()
    options = {"rounds": 3, "clients_per_round": 3, "batch_size": B}
    states, infos = lur.run_grid(method, start(), store, client_lr=(0.01, 0.05), server_lr=(0.5,), **options)
    expected, _ = lur.run(method, method.init(start(mixed=False), 0.05, 0.5), store, **options)
    check(*jax.tree.map(lambda leaf: leaf[1, 0, 0], (states, infos)), expected)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("layout", ["vmap", "sequential"])
def test_large_weights_do_not_overflow(dtype, layout):
    """Numbers of examples beyond the range of the parameters' dtype are normalised before they are rounded."""

    def mean_distance(w, batch):
        return jnp.mean((w - batch) ** 2) / 2

    method = lur.local_update(mean_distance, [1.0])
    batches = jnp.asarray(np.array([1.0, 3.0]).reshape(2, 1, 1), dtype)
    for weights, mean in (([70000, 70000], 2.0), ([70000, 0], 1.0), (np.array([3e38, 3e38], np.float32), 2.0)):
        state, info = method.round(method.init(jnp.zeros((), dtype), 0.1, 1.0), batches, weights, layout=layout)
        np.testing.assert_allclose(float(state.params), mean, rtol=0.02)
        assert np.isfinite(float(info.loss))


def test_batches_of_a_dtype_that_no_parameter_has_are_refused():
    method = lur.local_update(lambda params, batch: params["a"].sum() * batch.sum(), [1.0])
    state = method.init({"a": jnp.ones(2, jnp.bfloat16), "b": jnp.ones(2, jnp.float32)}, 0.1, 0.1)
    with pytest.raises(ValueError, match="batches must have the dtype of params, bfloat16 or float32, got float16"):
        method.round(state, jnp.ones((1, 1, 1), jnp.float16))


METHODS = {
    "fednova": lambda: lur.methods.fednova(loss, K, momentum=0.5, prox=0.1),
    "mime": lambda: lur.methods.mime(loss, K, partial(optax.sgd, momentum=0.9)),
    "mimelite": lambda: lur.methods.mimelite(loss, K, optax.adam),
    "diloco": lambda: lur.methods.diloco(loss, K),
    "fedexp": lambda: lur.methods.fedexp(loss, K),
    "fedlin": lambda: lur.methods.fedlin(loss, K),
    "maml": lambda: lur.methods.maml(loss, K - 1, query="separate"),
}


@pytest.mark.full
@pytest.mark.parametrize("name", METHODS)
def test_a_round_keeps_every_dtype(name):
    """Of the whole state, and stays near the round of a float32 model."""
    method, rng = METHODS[name](), np.random.default_rng(3)
    batches = {"x": rng.normal(size=(M, K, B, D)), "y": rng.normal(size=(M, K, B))}
    batches = {key: value.astype(np.float32) for key, value in batches.items()}
    states = [method.init(start(mixed), 0.05, 0.5, clients=M) for mixed in (True, False)]
    found, expected = (method.round(state, batches) for state in states)
    shapes = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state) for state in (states[0], found[0])]
    assert shapes[0] == shapes[1]
    check(found[0], found[1], expected[0])
