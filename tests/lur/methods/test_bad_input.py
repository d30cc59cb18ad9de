"""Every bad input is a clear error before anything compiles."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
from tests.lur.problems import quadratic_loss

M, K, d = 2, 3, 2


def batches(m=M, k=K, b=1, dtype=np.float32):
    return np.ones((m, k, b, d, d), dtype), np.ones((m, k, b, d), dtype)


def algorithm(**options):
    return lur.local_update(options.pop("loss_fn", quadratic_loss), options.pop("theta", (1, 1, 1)), **options)


def x(dtype=np.float32):
    return np.zeros(d, dtype)


@pytest.fixture(autouse=True)
def nothing_compiles(monkeypatch):
    """A compilation would be a program that is lowered; errors must come before."""
    compiled = []
    real = jax._src.interpreters.mlir.lower_jaxpr_to_module

    def watch(*args, **kwargs):
        compiled.append(kwargs.get("name") or args[0])
        return real(*args, **kwargs)

    monkeypatch.setattr(jax._src.interpreters.mlir, "lower_jaxpr_to_module", watch)
    return compiled


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf"), np.array([0.1, -0.1, 0.1])])
def test_client_rate(bad):
    with pytest.raises(ValueError, match="client_lr must be finite and >= 0"):
        algorithm().init(x(), bad, 0.1)
    with pytest.raises(ValueError, match="gamma must be finite and >= 0"):
        lur.inner_loop(quadratic_loss, x(), jax.tree.map(lambda v: v[0], batches()), bad, (1, 1, 1))


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf")])
def test_server_rate(bad):
    with pytest.raises(ValueError, match=r"server_lr must be finite and >= 0, got"):
        algorithm().init(x(), 0.1, bad)


@pytest.mark.parametrize("bad", [np.ones(2), np.ones((1, 3))])
def test_rate_shape(bad):
    with pytest.raises(ValueError, match=r"client_lr must have shape \(\) or \(3,\)"):
        algorithm().init(x(), bad, 0.1)


def test_rate_is_a_number():
    with pytest.raises(ValueError, match="server_lr must be a number"):
        algorithm().init(x(), 0.1, "fast")


@pytest.mark.parametrize(
    ("theta", "message"), [([], "non-empty"), ([1, -1], "theta_2 = -1"), ([0.0, 0.0], "positive weight")]
)
def test_theta(theta, message):
    with pytest.raises(ValueError, match=message):
        algorithm(theta=theta)


def test_theta_longer_than_the_batches(nothing_compiles):
    state = algorithm().init(x(), 0.1, 0.1)
    nothing_compiles.clear()
    with pytest.raises(ValueError, match=r"theta needs K\(theta\) = 3 mini-batches, got batches with 2"):
        algorithm().round(state, batches(k=2))
    assert not nothing_compiles


@pytest.mark.parametrize(("second", "axis"), [((3, 3, 1, 2), "M"), ((2, 4, 1, 2), "K"), ((2, 3, 5, 2), "B")])
def test_leading_axes_that_disagree(second, axis, nothing_compiles):
    state = algorithm().init(x(), 0.1, 0.1)
    nothing_compiles.clear()
    with pytest.raises(ValueError, match=rf"batches must agree on the {axis} axis"):
        algorithm().round(state, (batches()[0], np.ones(second, np.float32)))
    assert not nothing_compiles


def test_no_clients():
    with pytest.raises(ValueError, match="at least 1 along the M axis"):
        algorithm().round(algorithm().init(x(), 0.1, 0.1), batches(m=0))


def test_empty_mini_batches():
    with pytest.raises(ValueError, match="at least 1 along the B axis"):
        algorithm().round(algorithm().init(x(), 0.1, 0.1), batches(b=0))


def test_batches_without_axes():
    with pytest.raises(ValueError, match="leading axes"):
        algorithm().round(algorithm().init(x(), 0.1, 0.1), np.float32(1.0))


def test_no_batches():
    with pytest.raises(ValueError, match="batches must have at least one array"):
        algorithm().round(algorithm().init(x(), 0.1, 0.1), ())


@pytest.mark.x64
def test_mixed_dtypes(nothing_compiles):
    state = algorithm().init(x(), 0.1, 0.1)
    nothing_compiles.clear()
    with pytest.raises(ValueError, match="batches must have the dtype of params, float32, got float64"):
        algorithm().round(state, batches(dtype=np.float64))
    assert not nothing_compiles
    with pytest.raises(ValueError, match="loss_fn must return the dtype of params, float32, got float64"):
        algorithm(loss_fn=lambda x, b: quadratic_loss(x, b).astype(jnp.float64)).round(state, batches())


def test_integer_params():
    with pytest.raises(ValueError, match="params must be floating point, got int32"):
        algorithm().init(np.zeros(2, np.int32), 0.1, 0.1)


def test_empty_params():
    with pytest.raises(ValueError, match="params must have at least one array"):
        algorithm().init({}, 0.1, 0.1)


def test_loss_that_returns_a_vector(nothing_compiles):
    state = algorithm().init(x(), 0.1, 0.1)
    nothing_compiles.clear()
    with pytest.raises(ValueError, match=r"loss_fn must return a scalar, got \(2,\)"):
        algorithm(loss_fn=lambda x, batch: x * 1.0).round(state, batches())
    with pytest.raises(ValueError, match="loss_fn must return a scalar, got tuple"):
        algorithm(loss_fn=lambda x, batch: (x.sum(), x.sum())).round(state, batches())
    assert not nothing_compiles


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), "one entry per client"),
        (np.zeros(2), "not all zero"),
        (np.array([1.0, -1.0]), ">= 0"),
        (np.array([1.0, np.nan]), "finite"),
    ],
)
def test_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        algorithm().round(algorithm().init(x(), 0.1, 0.1), batches(), weights)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"send": "both"}, "send must be"), ({"loss_on": "some"}, "loss_on must be"), ({"prox": -1.0}, "prox must be")],
)
def test_client_options(options, message):
    with pytest.raises(ValueError, match=message):
        algorithm(**options)


@pytest.mark.parametrize("poisoned", ["loss", "gradient"])
def test_NaN_is_reported_never_a_silent_zero(poisoned):
    """One client's NaN shows in the round's loss or norm, and in the model."""
    A, c = batches()
    c = c.copy()
    c[1, 0 if poisoned == "loss" else 1] = np.nan
    instance = algorithm(server=optax.sgd)
    state, info = instance.round(instance.init(x(), 0.1, 0.1), (A, c))
    assert np.isnan(info.update_norm)
    assert np.isnan(np.asarray(state.params)).any()
    assert np.isnan(info.loss) == (poisoned == "loss")
    assert np.isnan(np.asarray(info.client_norms)).tolist() == [False, True]
