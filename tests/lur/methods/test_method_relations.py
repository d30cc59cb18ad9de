"""Methods that coincide with others for some options, and what each of them keeps, sends and returns."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
from lur import methods
from lur.methods.method import Batches, Broadcast
from tests.lur.problems import logistic_batches, logistic_loss, logistic_params, take

pytestmark = [pytest.mark.x64, pytest.mark.promote]

M, K, B, GAMMA, ETA = 3, 4, 2, 0.3, 0.7
BATCHES, START = logistic_batches(0, M, K, B), logistic_params(1)


def rounds(method, count=2, weights=(1.0, 2.0, 3.0), layout="vmap"):
    """The state after rounds on the same mini-batches, and the last round's info."""
    state, info = method.init(START, GAMMA, ETA, clients=M), None
    for _ in range(count):
        state, info = method.round(state, BATCHES, np.array(weights), layout=layout)
    return state, info


def test_fedprox_and_reptile_are_local_update():
    theta = lur.theta.fedavg(K)
    assert methods.fedprox(logistic_loss, K, 0.5) == lur.local_update(logistic_loss, theta, prox=0.5)
    adam = partial(optax.adam, b1=0.0)
    assert methods.reptile(logistic_loss, K) == lur.local_update(logistic_loss, theta, client=adam)
    sgd = methods.reptile(logistic_loss, K, client=optax.sgd)
    assert sgd == lur.local_update(logistic_loss, theta, send="delta")


def test_the_first_step_of_reptile_has_the_length_of_its_rate():
    """Adam without momentum and with new moments: gamma in every coordinate, whatever the gradient."""
    method = methods.reptile(logistic_loss, 1)
    update, _ = method.client(START, take(BATCHES, 0, slice(0, 1)), GAMMA)
    for leaf in jax.tree.leaves(update):
        np.testing.assert_allclose(np.abs(leaf), GAMMA, rtol=1e-6)  # eps = 1e-8 over gradients above 1e-2


def test_fednova_with_equal_steps_is_fedavg():
    found, info = rounds(methods.fednova(logistic_loss, K))
    expected, expected_info = rounds(lur.local_update(logistic_loss, lur.theta.fedavg(K)))
    chex.assert_trees_all_close(found.params, expected.params, rtol=1e-13)
    np.testing.assert_allclose(info.loss, expected_info.loss, rtol=1e-14)
    np.testing.assert_allclose(info.update_norm, expected_info.update_norm, rtol=1e-13)


def test_fednova_has_gradients_where_the_client_rate_is_zero():
    """The limit of (x - y) / gamma."""
    method = methods.fednova(logistic_loss, K, prox=0.5)
    (d, norm), loss = method.client(START, take(BATCHES, 0), 0.0)
    expected, expected_loss = lur.inner_loop(logistic_loss, START, take(BATCHES, 0), 0.0, lur.theta.fedavg(K))
    chex.assert_trees_all_close(jax.tree.map(lambda leaf: K * leaf, d), expected, rtol=1e-14)
    assert (float(norm), float(loss)) == (K, float(expected_loss))


@pytest.mark.full
def test_mimelite_with_sgd_is_fedavg():
    found, _ = rounds(methods.mimelite(logistic_loss, K, optax.sgd))
    expected, _ = rounds(lur.local_update(logistic_loss, lur.theta.fedavg(K), send="delta"))
    chex.assert_trees_all_close(found.params, expected.params, rtol=1e-14)


def test_mime_of_one_step_is_the_centralised_optimiser():
    """With K = 1 the corrected gradient is the mean gradient: every client takes the server's step of Adam."""
    adam = partial(optax.adam, b1=0.8, b2=0.95, eps=1e-3)
    method = methods.mime(logistic_loss, 1, adam)
    batches, weights = take(BATCHES, slice(None), slice(0, 1)), np.array([0.2, 0.3, 0.5])
    state, x = method.init(START, GAMMA, 1.0), START
    opt_state = adam(GAMMA).init(jax.tree.map(jnp.asarray, x))
    for _ in range(3):
        state, _ = method.round(state, batches, weights)
        gradients = [jax.grad(logistic_loss)(x, take(batches, i, 0)) for i in range(M)]
        mean = jax.tree.map(lambda *leaves: sum(w * leaf for w, leaf in zip(weights, leaves, strict=True)), *gradients)
        updates, opt_state = adam(GAMMA).update(mean, opt_state, x)
        x = optax.apply_updates(x, updates)
        chex.assert_trees_all_close(state.params, x, rtol=1e-12)
        chex.assert_trees_all_close(state.method_state, opt_state, rtol=1e-12)


@pytest.mark.full
def test_fedlin_is_mime_with_sgd_at_the_rate_over_the_steps():
    found, _ = rounds(methods.fedlin(logistic_loss, K))
    method = methods.mime(logistic_loss, K, optax.sgd)
    state = method.init(START, GAMMA / K, ETA)
    for _ in range(2):
        state, _ = method.round(state, BATCHES, np.array([1.0, 2.0, 3.0]))
    chex.assert_trees_all_close(found.params, state.params, rtol=1e-13)


@pytest.mark.full
def test_diloco_that_resets_is_local_update():
    found, _ = rounds(methods.diloco(logistic_loss, K, inner_state="reset"))
    adamw, nesterov = partial(optax.adamw, weight_decay=0.1), partial(optax.sgd, momentum=0.9, nesterov=True)
    expected, _ = rounds(lur.local_update(logistic_loss, lur.theta.fedavg(K), nesterov, client=adamw))
    chex.assert_trees_all_close(found, expected, rtol=1e-14)


def test_diloco_keeps_the_inner_state_of_its_clients_only():
    """Two rounds of two clients: counts of 2 K and K steps, and none for the client that did not take part."""
    method = methods.diloco(logistic_loss, K)
    state = method.init(START, GAMMA, ETA, clients=4)
    pairs = take(BATCHES, slice(0, 2))
    for cohort in ([0, 2], [2, 3]):
        state, _ = method.round(state, pairs, clients=np.array(cohort))
    assert np.asarray(state.clients[0].count).tolist() == [K, 0, 2 * K, K]
    assert methods.diloco(logistic_loss, K, client=optax.sgd).init(START, GAMMA, ETA).clients == ()
    assert methods.diloco(logistic_loss, K, inner_state="reset").init(START, GAMMA, ETA).clients == ()
    with pytest.raises(ValueError, match="clients must be the number of clients N"):
        method.init(START, GAMMA, ETA)


def test_fedexp_steps_further_where_clients_disagree():
    """Equal clients: the step is FedAvg's. Opposite ones: half the ratio of the norms, and epsilon bounds it."""

    def loss(x, batch):
        return ((x - batch) ** 2).mean() / 2

    def after(targets, epsilon):
        method = methods.fedexp(loss, 1, epsilon)
        state, info = method.round(method.init(jnp.zeros(1), 0.5, 1.0), jnp.array(targets)[:, None, None])
        return float(state.params[0]), float(method.model(state)[0]), float(info.update_norm)

    assert after([1.0, 1.0], 0.0) == (0.5, 0.25, 0.5)
    step = 0.25 * (0.5 * (1.0 + 0.25)) / (2 * 0.25**2)  # updates -1 and 1/2, with mean -1/4
    np.testing.assert_allclose(after([2.0, -1.0], 0.0), (step, step / 2, step), rtol=1e-14)
    assert after([2.0, -1.0], 1e6)[0] == 0.25


def test_first_order_maml_with_a_query_is_fomaml():
    found, info = rounds(methods.maml(logistic_loss, K - 1, query="separate", order=1))
    expected, expected_info = rounds(lur.local_update(logistic_loss, lur.theta.fomaml(K)))
    chex.assert_trees_all_close(found.params, expected.params, rtol=1e-13)
    np.testing.assert_allclose(info.loss, expected_info.loss, rtol=1e-14)


def test_maml_reuses_its_support_or_takes_the_next_mini_batch():
    reuse, separate = methods.maml(logistic_loss, K), methods.maml(logistic_loss, K - 1, query="separate")
    assert (reuse.local_steps, separate.local_steps) == (K, K)
    next_batch = methods.maml(logistic_loss, K - 1)
    chex.assert_trees_all_equal(rounds(separate)[0].params, rounds(next_batch)[0].params)
    assert separate == methods.maml(logistic_loss, K - 1, query="separate")
    assert separate != next_batch


@pytest.mark.parametrize("taken", [1, 3])
def test_the_query_is_the_last_mini_batch_that_a_client_has(taken):
    """A client with one mini-batch has a query only: the gradient at x."""
    method = methods.maml(logistic_loss, K - 1, query="separate")
    own = jax.tree.map(lambda leaf: np.array(leaf), take(BATCHES, 0))
    own["x"][taken:] = np.nan
    batches = Batches(own, is_step=jnp.arange(K) < taken)
    output = method.client_update(Broadcast(START, jnp.asarray(GAMMA)), (), batches)
    short = take(BATCHES, 0, slice(0, taken))
    expected = lur.maml.maml_gradient(logistic_loss, START, short, GAMMA, taken - 1)
    chex.assert_trees_all_close(output.update, expected, rtol=1e-13)


@pytest.mark.full
@pytest.mark.parametrize("name", ["fednova", "mime", "fedlin", "diloco"])
def test_padding_is_no_step(name):
    """Mini-batches that a client does not have may hold anything."""
    make = {
        "fednova": lambda K: methods.fednova(logistic_loss, K, momentum=0.5, prox=0.1),
        "mime": lambda K: methods.mimelite(logistic_loss, K, partial(optax.sgd, momentum=0.9)),
        "fedlin": partial(methods.fedlin, logistic_loss),
        "diloco": partial(methods.diloco, logistic_loss),
    }[name]
    own = jax.tree.map(lambda leaf: np.array(leaf), take(BATCHES, 0))
    own["x"][2:] = np.nan
    outputs = []
    for steps, batches in ((K, Batches(own, is_step=jnp.arange(K) < 2)), (2, Batches(take(BATCHES, 0, slice(0, 2))))):
        method = make(steps)
        state = method.init(START, GAMMA, ETA, clients=1)
        broadcast = method.broadcast(state)
        if method.prepare is not None:
            broadcast = broadcast._replace(prepared=method.prepare(broadcast, (), batches))
        outputs.append(method.client_update(broadcast, method.init_client(state.params), batches))
    chex.assert_trees_all_close(*outputs, rtol=1e-14)


def test_mime_sends_the_servers_state_and_does_not_change_it_on_the_way():
    method = methods.mime(logistic_loss, K, partial(optax.sgd, momentum=0.9))
    state, _ = rounds(method, 1)
    gradients = [jax.grad(logistic_loss)(START, take(BATCHES, m, k)) for m in range(M) for k in range(K)]
    mean, weighted = (
        jax.tree.map(lambda *leaves, weights=weights: np.average(leaves, axis=0, weights=weights), *gradients)
        for weights in (None, np.repeat([1.0, 2.0, 3.0], K))
    )
    assert abs(weighted["b"] - mean["b"]) > 1e-3
    chex.assert_trees_all_close(state.method_state[0].trace, weighted, rtol=1e-13)
    chex.assert_trees_all_equal(method.broadcast(state).extra, state.method_state)


def test_rates_may_vary_over_the_local_steps():
    """A second step with rate 0 is no step."""
    two, one = (methods.mimelite(logistic_loss, K, optax.sgd) for K in (2, 1))
    batches = take(BATCHES, slice(None), slice(0, 1))
    both = jax.tree.map(lambda leaf: np.repeat(leaf, 2, axis=1), batches)
    found, _ = two.round(two.init(START, np.array([GAMMA, 0.0]), ETA), both)
    expected, _ = one.round(one.init(START, GAMMA, ETA), batches)
    chex.assert_trees_all_close(found.params, expected.params, rtol=1e-13)
