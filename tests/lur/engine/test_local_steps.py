"""Unequal local work: client i takes K_i of the K steps, in every layout, on the host and in grids."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lur
from lur.data.sampling import client_key, round_key, sample_clients, sample_steps
from lur.engine.fast.linear import LinearModel, linear_form
from lur.methods.method import Batches, Broadcast
from tests.lur import numpy_loop
from tests.lur.numpy_loop import FACTORIES, own_batches, random_store

pytestmark = [pytest.mark.x64, pytest.mark.promote]

SIZES, K, B, M, ROUNDS, SEED = (3, 4, 2, 7, 3), 4, 2, 3, 4, 6
N = len(SIZES)
GAMMA, ETA = 0.3, 0.6
START = np.array([1.0, -2.0, 0.5])
OWN = np.array([1, 4, 2, 3, 1])
"""K_i of every client."""
DRAWN = (2, 4)
"""The range that K_i is drawn from."""
RUN = {"rounds": ROUNDS, "clients_per_round": M, "batch_size": B, "seed": SEED}
PLACES = [("vmap", None), ("sequential", "host"), ("chunked:2", None)]


def steps_of(steps, key, i):
    """K_i of client i in the round of this key."""
    return int(steps[i]) if isinstance(steps, np.ndarray) else int(sample_steps(client_key(key, i), *steps))


def numpy_run(client, steps, seed=SEED):
    """The model and each round's loss and client norms, with each client's first K_i mini-batches only."""
    store, w, infos = random_store(1, SIZES), START, []
    for t in range(ROUNDS):
        key = round_key(seed, t)
        cohort = [int(i) for i in sample_clients(key, N, M)]
        outputs = [client(w, own_batches(store, key, i, K, B, None)[: steps_of(steps, key, i)]) for i in cohort]
        w = w - ETA * np.mean([update for update, _ in outputs], axis=0)
        infos.append((np.mean([loss for _, loss in outputs]), [np.linalg.norm(update) for update, _ in outputs]))
    return w, *map(np.array, zip(*infos, strict=True))


def run(method, **options):
    return lur.run(method, method.init(START, GAMMA, ETA), random_store(1, SIZES), **RUN, **options)


def check(found, expected):
    (state, infos), (w, losses, norms) = found, expected
    np.testing.assert_allclose(state.params, w, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(infos.loss, losses, rtol=1e-12)
    np.testing.assert_allclose(infos.client_norms, norms, rtol=1e-12)


ADAM = "adam with prox, loss on all"
SETTINGS = {
    "sgd": {},
    ADAM: {"optimizer": "adam", "send": "delta", "prox": 0.5, "loss_on": "all"},
}


CASES = [(name, kind, *place) for name in SETTINGS for kind in ("own", "drawn") for place in PLACES]
THIN = [("sgd", "own", "vmap", None), ("sgd", "drawn", "sequential", "host"), (ADAM, "own", "sequential", "host")]


@pytest.mark.parametrize(
    ("name", "kind", "layout", "data"),
    [case if case in THIN else pytest.param(*case, marks=pytest.mark.full) for case in CASES],
)
def test_clients_take_the_first_of_their_mini_batches(name, kind, layout, data):
    steps = OWN if kind == "own" else DRAWN
    setting = dict(SETTINGS[name])
    optimizer = setting.pop("optimizer", "sgd")
    method = lur.local_update(numpy_loop.loss, lur.theta.fedavg(K), client=FACTORIES[optimizer], **setting)

    def client(w, batches):
        return numpy_loop.client(w, batches, GAMMA, (1.0,) * K, optimizer=optimizer, **setting)

    check(run(method, steps=steps, layout=layout, data=data), numpy_run(client, steps))


def test_maml_differentiates_through_the_steps_taken():
    expected = numpy_run(lambda w, batches: numpy_loop.maml_client(w, batches, GAMMA), OWN)
    check(run(lur.maml.maml(numpy_loop.loss, K), steps=OWN), expected)


def test_a_linear_model_without_a_mask_takes_the_clients_own_steps():
    """The rewrite for linear models reads padding from `Batches.is_step`, not only from the mask."""
    model = LinearModel((), lambda batch: batch["x"], lambda batch: batch["y"], lambda z, y: (z - y) ** 2 / 2)

    def loss(params, batch):
        return jnp.mean((batch["x"] @ params["kernel"] - batch["y"]) ** 2) / 2

    method = lur.local_update(loss, lur.theta.fedavg(K))
    params, store = {"kernel": START}, random_store(1, SIZES)
    expected, found = (
        lur.run(one, one.init(params, GAMMA, ETA), store, steps=OWN, layout="sequential", **RUN)
        for one in (method, linear_form(method, model))
    )
    np.testing.assert_allclose(found[0].params["kernel"], expected[0].params["kernel"], rtol=1e-12)
    np.testing.assert_allclose(found[1].client_norms, expected[1].client_norms, rtol=1e-11)
    np.testing.assert_allclose(found[1].client_losses, expected[1].client_losses, rtol=1e-12)


@pytest.mark.parametrize(
    "steps", [pytest.param(OWN, id="own", marks=pytest.mark.full), pytest.param(DRAWN, id="drawn")]
)
def test_a_grid_takes_the_clients_own_steps(steps):
    method = lur.local_update(numpy_loop.loss, lur.theta.fedavg(K))
    options = {name: value for name, value in RUN.items() if name != "seed"}
    states, infos = lur.run_grid(
        method, START, random_store(1, SIZES), client_lr=(0.1, GAMMA), server_lr=(ETA,), seeds=(SEED, 9), steps=steps,
        **options,
    )  # fmt: skip
    for c, gamma in enumerate((0.1, GAMMA)):
        for s, seed in enumerate((SEED, 9)):

            def client(w, batches, gamma=gamma):
                return numpy_loop.client(w, batches, gamma, (1.0,) * K)

            cell = jax.tree.map(lambda leaf, c=c, s=s: leaf[c, 0, s], (states, infos))
            check(cell, numpy_run(client, steps, seed))


def test_all_steps_are_the_run_without_steps():
    """Also in the bits of single precision, for the client that carries model and update."""
    method = lur.local_update(numpy_loop.loss, lur.theta.fedavg(K), client=FACTORIES["momentum"])
    store = random_store(1, SIZES, dtype=np.float32)
    expected, found = (
        lur.run(method, method.init(START.astype(np.float32), GAMMA, ETA), store, steps=steps, layout="vmap", **RUN)[0]
        for steps in (None, (K, K))
    )
    assert np.asarray(found.params).tobytes() == np.asarray(expected.params).tobytes()


def test_drawn_numbers_of_steps_are_uniform_and_independent_over_clients_and_rounds():
    keys = jax.vmap(lambda t: jax.vmap(lambda i: client_key(round_key(3, t), i))(jnp.arange(60)))(jnp.arange(60))
    drawn = np.asarray(jax.vmap(jax.vmap(lambda key: sample_steps(key, 3, 7)))(keys))
    assert stats.chisquare(np.bincount(drawn.ravel(), minlength=8)[3:]).pvalue > 1e-4
    for pairs in (drawn[:-1] * 8 + drawn[1:], drawn[:, :-1] * 8 + drawn[:, 1:]):
        _, counts = np.unique(pairs, return_counts=True)
        assert len(counts) == 25
        assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("layout", ["vmap", "chunked:2"])
def test_round_takes_the_given_numbers_of_steps(layout):
    batches = {"x": np.random.default_rng(2).normal(size=(M, K, B, 3)), "y": np.ones((M, K, B))}
    method = lur.local_update(numpy_loop.loss, lur.theta.fedavg(K))
    state, info = method.round(method.init(START, GAMMA, ETA), batches, layout=layout, steps=[1, 4, 2])
    updates = []
    for m, K_i in enumerate((1, 4, 2)):
        own = [(batches["x"][m, k], batches["y"][m, k]) for k in range(K_i)]
        updates.append(numpy_loop.client(START, own, GAMMA, (1.0,) * K)[0])
    np.testing.assert_allclose(info.client_norms, np.linalg.norm(updates, axis=1), rtol=1e-12)
    np.testing.assert_allclose(state.params, START - ETA * np.mean(updates, axis=0), rtol=1e-12)


def test_numbers_of_steps_may_be_traced():
    batches = {"x": np.random.default_rng(2).normal(size=(M, K, B, 3)), "y": np.ones((M, K, B))}
    method = lur.local_update(numpy_loop.loss, lur.theta.fedavg(K))
    state = method.init(START, GAMMA, ETA)
    traced = jax.jit(lambda steps: method.round(state, batches, steps=steps)[0].params)
    given, _ = method.round(state, batches, steps=np.array([1, 4, 2]))
    np.testing.assert_allclose(traced(jnp.array([1, 4, 2])), given.params, rtol=1e-14)


def test_the_query_of_maml_is_no_local_step():
    """With K + 1 mini-batches the last one is the outer loss, also of a client that takes one step."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(1, K + 1, B, 3)), rng.normal(size=(1, K + 1, B))
    method = lur.maml.maml(numpy_loop.loss, K)
    _, info = method.round(method.init(START, GAMMA, ETA), {"x": x, "y": y}, steps=[1])
    adapted = START - GAMMA * numpy_loop.gradient(START, x[0, 0], y[0, 0])
    expected = (np.eye(3) - GAMMA * numpy_loop.hessian(x[0, 0])).T @ numpy_loop.gradient(adapted, x[0, K], y[0, K])
    np.testing.assert_allclose(info.update_norm, np.linalg.norm(expected), rtol=1e-12)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (np.array([1, 0, 1, 1, 1]), r"steps must be from 1 to K = 4, .*got 0 at index 1"),
        (np.array([1, 1, 1, 1, 5]), r"steps must be from 1 to K = 4, .*got 5 at index 4"),
        (np.array([1, 1]), r"steps must be 5 integers, one per client, got shape \(2,\)"),
        (np.ones(5), r"steps must be 5 integers, one per client, got shape \(5,\) of dtype float64"),
        (np.ones(5, bool), r"steps must be 5 integers, one per client, .* of dtype bool"),
        (3, r"steps must be 5 integers, one per client, got shape \(\)"),
        ((1, 5), r"1 <= low <= high <= K = 4, got \(1, 5\)"),
        ((0, 2), r"1 <= low <= high <= K = 4, got \(0, 2\)"),
        ((3, 2), r"1 <= low <= high <= K = 4, got \(3, 2\)"),
        ((1.0, 2), r"steps must be a tuple \(low, high\) of integers, or an array of 5 integers, got \(1.0, 2\)"),
        ((1, 2, 3), r"steps must be a tuple \(low, high\) of integers, or an array of 5 integers, got \(1, 2, 3\)"),
    ],
)
def test_impossible_numbers_of_steps_are_refused(steps, message):
    method = lur.local_update(numpy_loop.loss, lur.theta.fedavg(K))
    with pytest.raises(ValueError, match=message):
        run(method, steps=steps)
    if isinstance(steps, np.ndarray) and steps.shape == (N,):
        batches = {"x": np.zeros((N, K, B, 3)), "y": np.zeros((N, K, B))}
        with pytest.raises(ValueError, match=message):
            method.round(method.init(START, GAMMA, ETA), batches, steps=steps)


def test_numbers_of_steps_with_epochs_are_refused():
    method = lur.local_update(numpy_loop.loss, lur.theta.fedavg(4))
    with pytest.raises(ValueError, match="steps must be None with epochs, which decide each client's number of steps"):
        run(method, steps=OWN, epochs=1)


def test_methods_that_cannot_tell_padding_are_refused():
    late = lur.local_update(numpy_loop.loss, lur.theta.fomaml(K))
    with pytest.raises(ValueError, match="theta must have equal weights where clients take different numbers of steps"):
        run(late, steps=OWN)
    own = lur.from_client(lambda params, batches, gamma: (params, params.sum()), local_steps=K)
    with pytest.raises(ValueError, match=r"clients must take equal numbers of steps with lur\.from_client"):
        run(own, steps=OWN)


def test_a_padding_step_may_be_nan():
    """Mini-batches from K_i on are read, and change nothing."""
    batches = {"x": np.ones((4, 1, 3)), "y": np.ones((4, 1))}
    bad = {name: np.where(np.arange(4).reshape(4, *[1] * (v.ndim - 1)) < 2, v, np.nan) for name, v in batches.items()}
    client = lur.local_update(numpy_loop.loss, lur.theta.fedavg(4), prox=0.5).client_update
    broadcast, is_step = Broadcast(jnp.asarray(START), jnp.asarray(GAMMA)), jnp.arange(4) < 2
    expected, found = (client(broadcast, (), Batches(one, is_step=is_step)).update for one in (batches, bad))
    np.testing.assert_array_equal(found, expected)
