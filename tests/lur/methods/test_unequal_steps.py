"""Epochs over clients of unequal size: a client without further examples takes no further steps."""

import jax.numpy as jnp
import numpy as np
import pytest

import lur
from lur.data.writer import in_memory
from lur.engine.fast.single_gradient import single_gradient_form
from lur.methods.method import Batches, Broadcast
from tests.lur import numpy_loop
from tests.lur.numpy_loop import FACTORIES, random_store

pytestmark = [pytest.mark.x64, pytest.mark.promote]

SIZES, B, EPOCHS, M, ROUNDS = (1, 4, 2, 7, 3), 2, 2, 3, 4
K = 7  # ceil(2 * 7 / 2)
GAMMA, ETA = 0.3, 0.6
PLACES = [
    ("vmap", None),
    ("sequential", "host"),
    *(
        pytest.param(*place, marks=pytest.mark.full)
        for place in (("sequential", None), ("chunked:2", None), ("vmap", "host"), ("chunked:2", "host"))
    ),
]
SETTINGS = {
    "sgd": {},
    "prox": {"prox": 0.5},
    "prox outside of the sum": {"prox": 0.5, "send": "loss_gradients"},
    "delta with prox": {"prox": 0.5, "send": "delta"},
    "loss on all": {"loss_on": "all"},
    "equal weights": {"theta": (0.5,) * K},
    "rate per step": {"gamma": np.linspace(0.0, 0.5, K)},
    "momentum": {"optimizer": "momentum"},
    "momentum, gradients": {"optimizer": "momentum", "send": "gradients", "loss_on": "all"},
    "adam": {"optimizer": "adam"},
    "adamw with prox": {"optimizer": "adamw", "prox": 0.5},
}


def distance_loss(w, batch):
    """f = (w - x)^2 / 2, nan for a mini-batch without examples."""
    mask = batch["mask"].astype(w.dtype)
    return (mask * (w - batch["x"]) ** 2).sum() / (2 * mask.sum())


def one_and_four():
    """Clients with 1 and 4 examples, all of them 0."""
    return in_memory((f"{n}", {"x": np.zeros(n)}) for n in (1, 4))


def one_epoch(method, layout="vmap", data=None, eta=1.0, rounds=1, **options):
    return lur.run(
        method, method.init(np.ones(()), 0.5, eta), one_and_four(), rounds=rounds, clients_per_round=2, batch_size=1,
        epochs=1, layout=layout, data=data, **options,
    )  # fmt: skip


def by_size(infos):
    """Losses and norms of the clients with 1 and with 4 examples, of the first round."""
    order = np.argsort(np.asarray(infos.client_norms[0]))
    return np.asarray(infos.client_losses[0])[order], np.asarray(infos.client_norms[0])[order]


@pytest.mark.parametrize(("layout", "data"), PLACES)
def test_one_example_is_one_step_with_a_proximal_term(layout, data):
    """From w = 1 the gradient is 1, and no pull follows in the three steps that the client does not take."""
    _, infos = one_epoch(lur.local_update(distance_loss, lur.theta.fedavg(4), prox=0.5), layout, data)
    y, total = 1.0, 0.0
    for _ in range(4):
        g = y + 0.5 * (y - 1.0)
        y, total = y - 0.5 * g, total + g
    np.testing.assert_allclose(by_size(infos)[1], [1.0, total], rtol=1e-14)


@pytest.mark.parametrize(("layout", "data"), PLACES)
def test_the_mean_loss_is_over_the_steps_taken(layout, data):
    _, infos = one_epoch(lur.local_update(distance_loss, lur.theta.fedavg(4), loss_on="all"), layout, data)
    np.testing.assert_allclose(by_size(infos)[0], [0.5, 0.5], rtol=1e-14)


@pytest.mark.parametrize(("layout", "data"), PLACES)
def test_maml_differentiates_the_steps_taken(layout, data):
    """f(w - gamma w) has the gradient (1 - gamma)^2 w after one step, (1 - gamma)^8 w after four."""
    _, infos = one_epoch(lur.maml.maml(distance_loss, 4), layout, data)
    np.testing.assert_allclose(np.sort(np.asarray(infos.client_norms[0])), [0.5**8, 0.5**2], rtol=1e-13)


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_fedprox_with_weights_by_size(mu):
    """FedProx (T. Li et al., 2020) over five rounds: the model delta, weighted by the numbers of examples."""
    method = lur.local_update(distance_loss, lur.theta.fedavg(4), prox=mu, send="delta")
    state, _ = one_epoch(method, eta=0.5, rounds=5, weighting="examples")
    w = 1.0
    for _ in range(5):
        small, large = w - 0.5 * w, w
        for _ in range(4):
            large -= 0.5 * (large + mu * (large - w))
        w -= 0.5 * (0.2 * (w - small) + 0.8 * (w - large))
    np.testing.assert_allclose(state.params, w, rtol=1e-13)


@pytest.mark.parametrize(("layout", "data"), PLACES)
@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_a_loop_over_the_clients_own_steps(name, layout, data):
    setting = {"theta": (1.0,) * K, "gamma": GAMMA, "optimizer": "sgd", **SETTINGS[name]}
    store, w = random_store(1, SIZES), np.array([1.0, -2.0, 0.5])
    gamma, optimizer = setting.pop("gamma"), setting.pop("optimizer")
    method = lur.local_update(numpy_loop.loss, client=FACTORIES[optimizer], **setting)
    weighting = "examples" if "prox" in setting else "uniform"
    state, infos = lur.run(
        method, method.init(w, gamma, ETA), store, rounds=ROUNDS, clients_per_round=M, batch_size=B, epochs=EPOCHS,
        layout=layout, data=data, seed=4, weighting=weighting,
    )  # fmt: skip
    theta = setting.pop("theta")
    setting.setdefault("send", "gradients" if optimizer == "sgd" else "delta")

    def client(w, batches):
        return numpy_loop.client(w, batches, gamma, theta, optimizer=optimizer, **setting)

    sampled = {"rounds": ROUNDS, "M": M, "K": K, "B": B, "seed": 4, "epochs": EPOCHS, "weighting": weighting}
    expected, expected_infos = numpy_loop.run(store, w, client, eta=ETA, **sampled)
    np.testing.assert_allclose(state.params, expected, rtol=1e-12, atol=1e-13)
    found = (infos.loss, infos.client_losses, infos.client_norms, infos.update_norm)
    for field, column in zip(found, expected_infos, strict=True):
        np.testing.assert_allclose(field, column, rtol=1e-12)


@pytest.mark.parametrize(("layout", "data"), PLACES)
def test_maml_of_unequal_clients_is_the_chain_rule_over_their_own_steps(layout, data):
    store, w = random_store(2, SIZES), np.array([1.0, -2.0, 0.5])
    method = lur.maml.maml(numpy_loop.loss, K)
    state, infos = lur.run(
        method, method.init(w, GAMMA, ETA), store, rounds=ROUNDS, clients_per_round=M, batch_size=B, epochs=EPOCHS,
        layout=layout, data=data, seed=4,
    )  # fmt: skip
    sampled = {"rounds": ROUNDS, "M": M, "K": K, "B": B, "seed": 4, "epochs": EPOCHS}
    expected, (losses, *_) = numpy_loop.run(
        store, w, lambda w, batches: numpy_loop.maml_client(w, batches, GAMMA), eta=ETA, **sampled
    )
    np.testing.assert_allclose(state.params, expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(infos.loss, losses, rtol=1e-12)


def test_a_grid_takes_the_clients_own_steps():
    store, w = random_store(3, SIZES), np.array([1.0, -2.0, 0.5])
    method = lur.local_update(numpy_loop.loss, (1.0,) * K, prox=0.5, loss_on="all", client=FACTORIES["adam"])
    states, infos = lur.run_grid(
        method, w, store, client_lr=(0.1, 0.3), server_lr=(0.5, 1.0), rounds=ROUNDS, clients_per_round=M, batch_size=B,
        epochs=EPOCHS, seeds=(4, 9),
    )  # fmt: skip
    for i, gamma in enumerate((0.1, 0.3)):
        for j, eta in enumerate((0.5, 1.0)):
            for k, seed in enumerate((4, 9)):
                expected, (losses, *_) = numpy_loop.run(
                    store, w,
                    lambda w, batches, gamma=gamma: numpy_loop.client(
                        w, batches, gamma, (1.0,) * K, optimizer="adam", send="delta", prox=0.5, loss_on="all"
                    ),
                    rounds=ROUNDS, M=M, K=K, B=B, seed=seed, epochs=EPOCHS, eta=eta,
                )  # fmt: skip
                np.testing.assert_allclose(states.params[i, j, k], expected, rtol=1e-12, atol=1e-13)
                np.testing.assert_allclose(infos.loss[i, j, k], losses, rtol=1e-12)


@pytest.mark.parametrize("layout", ["vmap", "sequential", "chunked:2"])
def test_one_gradient_of_all_examples_leaves_padding_out(layout):
    store, w = random_store(6, SIZES), np.array([1.0, -2.0, 0.5])
    method = lur.local_update(numpy_loop.loss, (1.0,) * K)
    options = {"rounds": 2, "clients_per_round": M, "batch_size": B, "epochs": EPOCHS, "seed": 4, "layout": layout}
    found, infos = lur.run(single_gradient_form(method), method.init(w, 0.0, ETA), store, **options)
    expected, (losses, *_) = numpy_loop.run(
        store, w, lambda w, batches: numpy_loop.client(w, batches, 0.0, (1.0,) * K),
        rounds=2, M=M, K=K, B=B, seed=4, epochs=EPOCHS, eta=ETA,
    )  # fmt: skip
    np.testing.assert_allclose(found.params, expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(infos.loss, losses, rtol=1e-12)


@pytest.mark.parametrize("theta", [(0.0, 0.0, 0.0, 1.0), (1.0, 0.5, 1.0, 1.0)])
def test_unequal_weights_are_refused(theta):
    """Theta_4 would count nothing of a client that takes one step."""
    with pytest.raises(ValueError, match="theta must have equal weights where clients take different numbers of steps"):
        one_epoch(lur.local_update(distance_loss, theta))
    with pytest.raises(ValueError, match="theta must have equal weights"):
        one_epoch(lur.local_update(distance_loss, theta, prox=0.1), data="host")


@pytest.mark.parametrize("theta", [(0.0, 0.0, 0.0, 1.0), (1.0, 0.5, 1.0, 2.0)])
def test_unequal_weights_are_fine_where_all_clients_take_all_steps(theta):
    """Equal sizes that B does not divide: the last mini-batch is short, and no step is empty."""
    store, w = random_store(5, (7, 7, 7)), np.array([1.0, -2.0, 0.5])
    method = lur.local_update(numpy_loop.loss, theta)
    state, _ = lur.run(method, method.init(w, GAMMA, ETA), store, rounds=3, clients_per_round=2, batch_size=2, epochs=1)
    expected, _ = numpy_loop.run(
        store, w, lambda w, batches: numpy_loop.client(w, batches, GAMMA, theta),
        rounds=3, M=2, K=4, B=2, epochs=1, eta=ETA,
    )  # fmt: skip
    np.testing.assert_allclose(state.params, expected, rtol=1e-12, atol=1e-13)


def test_padding_steps_leave_any_carry_alone():
    """Also where the padding's own values are nan: bits, counts, flags and keys stay as they are."""
    steps = jnp.array([1.0, 2.0, jnp.nan, jnp.nan])
    batches = Batches(steps, is_step=jnp.array([True, True, False, False]))
    start = {"sum": jnp.float64(-0.0), "count": jnp.int32(0), "odd": jnp.bool_(False), "key": jnp.uint32(7)}

    def step(carry, batch, scale):
        total = carry["sum"] + scale * batch
        return {"sum": total, "count": carry["count"] + 1, "odd": ~carry["odd"], "key": carry["key"] * 3}, total

    end, outputs = batches.scan(step, start, jnp.array([1.0, 10.0, 100.0, 1000.0]))
    assert (float(end["sum"]), int(end["count"]), bool(end["odd"]), int(end["key"])) == (21.0, 2, False, 63)
    np.testing.assert_array_equal(outputs, [1.0, 21.0, 0.0, 0.0])


def test_a_client_of_one_step_is_the_client_without_padding():
    """The same client function with and without padding, bit for bit."""
    rng = np.random.default_rng(0)
    w, x, y = rng.normal(size=3), rng.normal(size=(4, 2, 3)), rng.normal(size=(4, 2))
    mask = np.array([[1, 1], [1, 1], [0, 0], [0, 0]], bool)
    broadcast = Broadcast(jnp.asarray(w), jnp.asarray(0.3))
    long = lur.local_update(numpy_loop.loss, [1] * 4, client=FACTORIES["adam"], prox=0.2).client_update
    short = lur.local_update(numpy_loop.loss, [1] * 2, client=FACTORIES["adam"], prox=0.2).client_update
    padded = long(broadcast, (), Batches({"x": x, "y": y, "mask": mask}, is_step=jnp.asarray(mask.any(-1))))
    alone = short(broadcast, (), Batches({"x": x[:2], "y": y[:2], "mask": mask[:2]}))
    np.testing.assert_array_equal(padded.update, alone.update)
    np.testing.assert_array_equal(padded.loss, alone.loss)


def test_a_client_function_without_padding_is_refused():
    store = lur.data.in_memory([("a", {"x": np.ones((1, 1))}), ("b", {"x": np.ones((4, 1))})])
    method = lur.from_client(lambda params, batches, gamma: (params, params.sum()), local_steps=4)
    state = method.init(np.ones(1, np.float32), 0.1, 0.1)
    with pytest.raises(ValueError, match=r"clients must take equal numbers of steps with lur\.from_client"):
        lur.run(method, state, store, rounds=1, clients_per_round=2, batch_size=1, epochs=1)


@pytest.mark.parametrize(("layout", "data"), PLACES)
@pytest.mark.parametrize(("prox", "expected"), [(0.0, 2.7644958), (0.5, 2.6648743)])
def test_fedprox_of_unequal_clients_is_fedjax(prox, expected, layout, data):
    """The examples are 1 and 3, 3, 3, 3, from w = 0; a server rate of 0.5 on sums of gradients is 1 on differences.

    FedJAX 0.0.17 (jax 0.4.35) in float32: fed_prox.fed_prox(loss, sgd(0.5), sgd(1.0), ShuffleRepeatBatchHParams(
    batch_size=1, num_epochs=1), prox), five times applied to both clients.
    """
    store = in_memory([("a", {"x": np.ones(1)}), ("b", {"x": np.full(4, 3.0)})])
    method = lur.local_update(distance_loss, lur.theta.fedavg(4), prox=prox)
    state, _ = lur.run(
        method, method.init(np.zeros(()), 0.5, 0.5), store, rounds=5, clients_per_round=2, batch_size=1, epochs=1,
        weighting="examples", layout=layout, data=data,
    )  # fmt: skip
    np.testing.assert_allclose(state.params, expected, rtol=2**-23)  # one unit in the last place of float32
