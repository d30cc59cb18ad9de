"""Client optimisers other than plain SGD, in one client and in a round, against numpy loops."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
from tests.lur.numpy_loop import FACTORIES, Optimizer, client, loss

pytestmark = [pytest.mark.x64, pytest.mark.promote]  # optax's Adam promotes its step count

M, K, B, D = 3, 4, 2, 3
GAMMA, ETA = 0.2, 0.7
RATES = {"scalar": GAMMA, "per step": np.array([0.3, 0.1, 0.0, 0.2])}
TRANSFORMS = {
    "sgd": optax.sgd(1.0),
    "momentum": optax.sgd(1.0, momentum=0.9),
    "nesterov": optax.sgd(1.0, momentum=0.9, nesterov=True),
    "adam": optax.adam(1.0, b1=0.8, b2=0.95, eps=1e-3),
    "adamw": optax.adamw(1.0, b1=0.8, b2=0.95, eps=1e-3, weight_decay=0.3),
}
"""The optimisers of `FACTORIES`, built with rate 1."""


def random_batches(seed, *axes):
    rng = np.random.default_rng(seed)
    return rng.normal(size=D), {"x": rng.normal(size=(*axes, D)), "y": rng.normal(size=axes)}


def as_list(batches, *index):
    return [(batches["x"][(*index, k)], batches["y"][(*index, k)]) for k in range(K)]


@pytest.mark.parametrize("send", ["gradients", "delta"])
@pytest.mark.parametrize("rates", RATES)
@pytest.mark.parametrize("form", ["factory", "transform"])
@pytest.mark.parametrize("name", FACTORIES)
def test_client_takes_the_steps_of_its_optimizer(name, form, rates, send):
    w, batches = random_batches(0, K, B)
    optimizer = (FACTORIES if form == "factory" else TRANSFORMS)[name]
    theta = lur.theta.fedavg(K)
    update, before = lur.inner_loop(loss, w, batches, RATES[rates], theta, client=optimizer, send=send)
    expected, expected_loss = client(w, as_list(batches), RATES[rates], theta, optimizer=name, send=send)
    np.testing.assert_allclose(update, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(before, expected_loss, rtol=1e-13)


@pytest.mark.parametrize("name", ["momentum", "adam"])
@pytest.mark.parametrize("theta", [(0.0, 0.0, 0.0, 1.0), (0.5, 0.0, 2.0, 1.0)])
def test_weighted_gradients_at_the_points_of_another_optimizer(name, theta):
    w, batches = random_batches(1, K, B)
    update, _ = lur.inner_loop(loss, w, batches, GAMMA, theta, client=FACTORIES[name], send="gradients")
    expected, _ = client(w, as_list(batches), GAMMA, theta, optimizer=name)
    np.testing.assert_allclose(update, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("send", ["gradients", "loss_gradients", "delta"])
@pytest.mark.parametrize("name", FACTORIES)
def test_proximal_term_goes_through_the_optimizer(name, send):
    w, batches = random_batches(2, K, B)
    theta = lur.theta.fedavg(K)
    update, _ = lur.inner_loop(loss, w, batches, GAMMA, theta, client=FACTORIES[name], send=send, prox=0.8)
    expected, _ = client(w, as_list(batches), GAMMA, theta, optimizer=name, send=send, prox=0.8)
    np.testing.assert_allclose(update, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("layout", ["vmap", "sequential"])
@pytest.mark.parametrize("send", ["gradients", "delta"])
@pytest.mark.parametrize("form", ["factory", "transform"])
@pytest.mark.parametrize("name", FACTORIES)
def test_round_restarts_the_clients_and_keeps_the_servers_state(name, form, send, layout):
    """Three rounds with a server that has momentum: clients start afresh in each round, the server does not."""
    w, batches = random_batches(3, M, K, B)
    weights, theta = np.array([1.0, 4.0, 2.0]), lur.theta.fedavg(K)
    optimizer = (FACTORIES if form == "factory" else TRANSFORMS)[name]
    method = lur.local_update(loss, theta, FACTORIES["momentum"], client=optimizer, send=send)
    state, server = method.init(w, GAMMA, ETA), Optimizer("momentum")
    for _ in range(3):
        state, info = method.round(state, batches, weights, layout=layout)
        updates = [client(w, as_list(batches, i), GAMMA, theta, optimizer=name, send=send)[0] for i in range(M)]
        np.testing.assert_allclose(info.client_norms, [np.linalg.norm(update) for update in updates], rtol=1e-12)
        w = server.step(w, np.average(updates, axis=0, weights=weights), ETA)
        np.testing.assert_allclose(state.params, w, rtol=1e-12, atol=1e-14)


def is_delta(optimizer, **options):
    """Whether a client with this optimiser sends its model delta by default."""
    w, batches = random_batches(4, K, B)
    found, delta, gradients = (
        np.asarray(lur.inner_loop(loss, w, batches, GAMMA, lur.theta.fedavg(K), client=optimizer, **sent, **options)[0])
        for sent in ({}, {"send": "delta"}, {"send": "gradients"})
    )
    assert not np.allclose(delta, gradients)
    return (found == delta).all()


def test_only_plain_sgd_sends_gradients_by_default():
    assert not is_delta(optax.sgd)
    assert not is_delta(optax.sgd, prox=0.3)
    others = [*FACTORIES.values(), *TRANSFORMS.values(), optax.adam, partial(optax.sgd, nesterov=False)]
    assert all(is_delta(optimizer) for optimizer in others if optimizer is not optax.sgd)


def test_send_is_part_of_the_method():
    assert lur.local_update(loss, [1, 1]) == lur.local_update(loss, [1, 1], send="gradients")
    assert lur.local_update(loss, [1, 1], client=optax.adam) == lur.local_update(
        loss, [1, 1], client=optax.adam, send="delta"
    )
    assert lur.local_update(loss, [1, 1]) != lur.local_update(loss, [1, 1], send="delta")


@pytest.mark.parametrize("layout", ["vmap", "sequential"])
def test_adam_client_sends_where_it_went_not_what_it_felt(layout):
    """A 2-D quadratic with Theta_{1:4}: gradients of very different size, Adam steps of nearly equal size."""
    A, w, gamma = np.diag([1.0, 3.0]), np.array([2.0, -2.0]), 0.05

    def quadratic(w, batch):
        return w @ jnp.asarray(A) @ w / 2 + 0 * batch.sum()

    y, m, v, gradients = w, 0.0, 0.0, 0.0
    for t in range(1, 5):
        g = A @ y
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        y = y - gamma * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        gradients = gradients + g
    batches = np.zeros((1, 4, 1))
    for send, expected in ((None, w - y), ("delta", w - y), ("gradients", gradients)):
        method = lur.local_update(quadratic, lur.theta.fedavg(4), client=optax.adam, send=send)
        state, _ = method.round(method.init(w, gamma, 1.0), batches, layout=layout)
        np.testing.assert_allclose(w - state.params, expected, rtol=1e-10)
        update, _ = lur.inner_loop(quadratic, w, batches[0], gamma, [1] * 4, client=optax.adam, send=send)
        np.testing.assert_allclose(update, expected, rtol=1e-10)
    assert abs(gradients[1] / gradients[0]) > 2.9
    assert abs((w - y)[1] / (w - y)[0]) < 1.01


@pytest.mark.parametrize("theta", [(0.0, 1.0), (1.0, 2.0), (0.5, 0.5), (2.0,)])
@pytest.mark.parametrize("options", [{"send": "delta"}, {"client": optax.adam}])
def test_a_model_delta_has_no_weights(theta, options):
    with pytest.raises(ValueError, match=r"theta must be Theta_\{1:K\} with send='delta'.*use send='gradients'"):
        lur.local_update(loss, theta, **options)
    w, batches = random_batches(0, K, B)
    with pytest.raises(ValueError, match=r"theta must be Theta_\{1:K\} with send='delta'"):
        lur.inner_loop(loss, w, batches, GAMMA, theta, **options)


def test_an_unknown_send_is_refused():
    with pytest.raises(ValueError, match="send must be one of gradients, loss_gradients, delta, got 'model'"):
        lur.local_update(loss, [1.0], send="model")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("prox", [np.array(0.8), np.float32(0.5), jnp.asarray(0.8), 1])
def test_prox_may_be_any_number(prox):
    w, batches = random_batches(5, M, K, B)
    theta = lur.theta.fedavg(K)
    method = lur.local_update(loss, theta, prox=prox)
    state, _ = method.round(method.init(w, GAMMA, ETA), batches)
    updates = [client(w, as_list(batches, i), GAMMA, theta, prox=float(prox))[0] for i in range(M)]
    np.testing.assert_allclose(state.params, w - ETA * np.mean(updates, axis=0), rtol=1e-12)
