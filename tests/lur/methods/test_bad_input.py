"""Invalid input to a method raises a clear error before anything is compiled."""

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


def build_method(**options):
    return lur.local_update(options.pop("loss_fn", quadratic_loss), options.pop("theta", (1, 1, 1)), **options)


def zeros(dtype=np.float32):
    return np.zeros(d, dtype)


@pytest.fixture(autouse=True)
def compiled_programs(monkeypatch):
    """Records every program that jax lowers, which is the first stage of a compilation."""
    programs = []
    lower = jax._src.interpreters.mlir.lower_jaxpr_to_module

    def record_and_lower(*args, **kwargs):
        programs.append(kwargs.get("name") or args[0])
        return lower(*args, **kwargs)

    monkeypatch.setattr(jax._src.interpreters.mlir, "lower_jaxpr_to_module", record_and_lower)
    return programs


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf"), np.array([0.1, -0.1, 0.1])])
def test_invalid_client_rates_are_rejected(bad):
    with pytest.raises(ValueError, match="client_lr must be finite and >= 0"):
        build_method().init(zeros(), bad, 0.1)
    with pytest.raises(ValueError, match="gamma must be finite and >= 0"):
        lur.inner_loop(quadratic_loss, zeros(), jax.tree.map(lambda v: v[0], batches()), bad, (1, 1, 1))


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf")])
def test_invalid_server_rates_are_rejected(bad):
    with pytest.raises(ValueError, match=r"server_lr must be finite and >= 0, got"):
        build_method().init(zeros(), 0.1, bad)


@pytest.mark.parametrize("bad", [np.ones(2), np.ones((1, 3))])
def test_client_rates_of_the_wrong_shape_are_rejected(bad):
    with pytest.raises(ValueError, match=r"client_lr must have shape \(\) or \(3,\)"):
        build_method().init(zeros(), bad, 0.1)


def test_a_rate_that_is_not_a_number_is_rejected():
    with pytest.raises(ValueError, match="server_lr must be a number"):
        build_method().init(zeros(), 0.1, "fast")


@pytest.mark.parametrize(
    ("theta", "message"), [([], "non-empty"), ([1, -1], "theta_2 = -1"), ([0.0, 0.0], "positive weight")]
)
def test_invalid_theta_is_rejected(theta, message):
    with pytest.raises(ValueError, match=message):
        build_method(theta=theta)


def test_theta_with_more_steps_than_batches_is_rejected(compiled_programs):
    state = build_method().init(zeros(), 0.1, 0.1)
    compiled_programs.clear()
    with pytest.raises(ValueError, match=r"theta needs K\(theta\) = 3 mini-batches, got batches with 2"):
        build_method().round(state, batches(k=2))
    assert not compiled_programs


@pytest.mark.parametrize(("second", "axis"), [((3, 3, 1, 2), "M"), ((2, 4, 1, 2), "K"), ((2, 3, 5, 2), "B")])
def test_batches_with_different_leading_axes_are_rejected(second, axis, compiled_programs):
    state = build_method().init(zeros(), 0.1, 0.1)
    compiled_programs.clear()
    with pytest.raises(ValueError, match=rf"batches must agree on the {axis} axis"):
        build_method().round(state, (batches()[0], np.ones(second, np.float32)))
    assert not compiled_programs


def test_a_round_without_clients_is_rejected():
    with pytest.raises(ValueError, match="at least 1 along the M axis"):
        build_method().round(build_method().init(zeros(), 0.1, 0.1), batches(m=0))


def test_empty_mini_batches_are_rejected():
    with pytest.raises(ValueError, match="at least 1 along the B axis"):
        build_method().round(build_method().init(zeros(), 0.1, 0.1), batches(b=0))


def test_batches_without_axes_are_rejected():
    with pytest.raises(ValueError, match="leading axes"):
        build_method().round(build_method().init(zeros(), 0.1, 0.1), np.float32(1.0))


def test_a_round_without_batches_is_rejected():
    with pytest.raises(ValueError, match="batches must have at least one array"):
        build_method().round(build_method().init(zeros(), 0.1, 0.1), ())


@pytest.mark.x64
def test_dtypes_other_than_that_of_params_are_rejected(compiled_programs):
    state = build_method().init(zeros(), 0.1, 0.1)
    compiled_programs.clear()
    with pytest.raises(ValueError, match="batches must have the dtype of params, float32, got float64"):
        build_method().round(state, batches(dtype=np.float64))
    assert not compiled_programs
    with pytest.raises(ValueError, match="loss_fn must return the dtype of params, float32, got float64"):
        build_method(loss_fn=lambda x, b: quadratic_loss(x, b).astype(jnp.float64)).round(state, batches())


def test_integer_params_are_rejected():
    with pytest.raises(ValueError, match="params must be floating point, got int32"):
        build_method().init(np.zeros(2, np.int32), 0.1, 0.1)


def test_params_without_arrays_are_rejected():
    with pytest.raises(ValueError, match="params must have at least one array"):
        build_method().init({}, 0.1, 0.1)


def test_a_loss_that_is_not_a_scalar_is_rejected(compiled_programs):
    state = build_method().init(zeros(), 0.1, 0.1)
    compiled_programs.clear()
    with pytest.raises(ValueError, match=r"loss_fn must return a scalar, got \(2,\)"):
        build_method(loss_fn=lambda x, batch: x * 1.0).round(state, batches())
    with pytest.raises(ValueError, match="loss_fn must return a scalar, got tuple"):
        build_method(loss_fn=lambda x, batch: (x.sum(), x.sum())).round(state, batches())
    assert not compiled_programs


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), "one entry per client"),
        (np.zeros(2), "not all zero"),
        (np.array([1.0, -1.0]), ">= 0"),
        (np.array([1.0, np.nan]), "finite"),
    ],
)
def test_invalid_client_weights_are_rejected(weights, message):
    with pytest.raises(ValueError, match=message):
        build_method().round(build_method().init(zeros(), 0.1, 0.1), batches(), weights)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"send": "both"}, "send must be"), ({"loss_on": "some"}, "loss_on must be"), ({"prox": -1.0}, "prox must be")],
)
def test_invalid_client_options_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        build_method(**options)


@pytest.mark.parametrize("poisoned", ["loss", "gradient"])
def test_nan_of_one_client_is_not_hidden(poisoned):
    """A NaN in one client's loss or gradient shows in the round's metrics and in the model."""
    A, c = batches()
    c = c.copy()
    c[1, 0 if poisoned == "loss" else 1] = np.nan
    method = build_method(server=optax.sgd)
    state, info = method.round(method.init(zeros(), 0.1, 0.1), (A, c))
    assert np.isnan(info.update_norm)
    assert np.isnan(np.asarray(state.params)).any()
    assert np.isnan(info.loss) == (poisoned == "loss")
    assert np.isnan(np.asarray(info.client_norms)).tolist() == [False, True]
