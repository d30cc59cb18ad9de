"""Many rounds in one program: the numbers of a plain loop over clients, steps and examples, however it is laid out."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
from lur.data.gather import resident
from lur.data.sampling import client_key, round_key, sample_clients, shuffled_epochs, with_replacement
from lur.data.writer import in_memory, write_store
from lur.engine import rounds as engine_rounds
from lur.parallel import layouts

M, K, B, R = 3, 4, 2, 5
GAMMA, ETA = 0.1, 0.3


def clients(N=7, d=3, dtype=np.float64):
    rng = np.random.default_rng(0)
    for i in range(N):
        n = 1 + i
        yield f"{i}", {"x": rng.normal(size=(n, d)).astype(dtype), "y": rng.normal(size=n).astype(dtype)}


def loss(w, batch):
    """Least squares, heeding a mask where there is one."""
    each = (batch["x"] @ w - batch["y"]) ** 2 / 2
    if "mask" not in batch:
        return each.mean()
    mask = batch["mask"].astype(each.dtype)
    return (each * mask).sum() / jnp.maximum(mask.sum(), 1)


def plain_loop(store, rounds=R, seed=5, weighting="uniform", epochs=None):
    """Algorithms 1 and 2 in numpy, with the gradient by hand."""
    w, rounds_losses = np.ones(3), []
    for t in range(rounds):
        key = round_key(seed, t)
        chosen = np.asarray(sample_clients(key, store.clients, M))
        messages, weights, losses = [], [], []
        for i in chosen:
            own = store.client(int(i))
            n = len(own["y"])
            if epochs is None:
                draw = with_replacement(client_key(key, int(i)), n, K, B)
                batches = [(row, np.ones(B, bool)) for row in np.asarray(draw.positions)]
            else:
                draw = shuffled_epochs(client_key(key, int(i)), n, epochs, B, int(store.sizes.max()))
                batches = [*zip(np.asarray(draw.positions), np.asarray(draw.mask), strict=True)]
            y, total, first = w.copy(), np.zeros(3), None
            for rows, mask in batches:
                if not mask.any():
                    continue
                x, target = own["x"][rows[mask]], own["y"][rows[mask]]
                residual = x @ y - target
                first = (residual**2 / 2).mean() if first is None else first
                g = x.T @ residual / len(rows[mask])
                total, y = total + g, y - GAMMA * g
            messages.append(total)
            losses.append(first)
            weights.append(n if weighting == "examples" else 1)
        w = w - ETA * np.average(messages, axis=0, weights=weights)
        rounds_losses.append(np.average(losses, weights=weights))
    return w, rounds_losses


def go(store, rounds=R, state=None, algo=None, **options):
    algo = algo or lur.local_update(loss, lur.theta.fedavg(K), optax.sgd)
    state = algo.init(jnp.ones(3), GAMMA, ETA) if state is None else state
    return lur.run(algo, state, store, rounds=rounds, clients_per_round=M, batch_size=B, seed=5, **options)


@pytest.mark.x64
@pytest.mark.parametrize("weighting", ["uniform", "examples"])
@pytest.mark.parametrize("layout", ["vmap", "sequential", "chunked:2", "chunked:8"])
@pytest.mark.parametrize("where", ["device", "host"])
def test_the_numbers_of_a_plain_loop(layout, weighting, where):
    store = in_memory(clients())
    state, infos = go(store, layout=layout, weighting=weighting, data="host" if where == "host" else None)
    w, losses = plain_loop(store, weighting=weighting)
    np.testing.assert_allclose(state.params, w, rtol=1e-12)
    np.testing.assert_allclose(infos.loss, losses, rtol=1e-12)
    assert int(state.round) == R


@pytest.mark.x64
@pytest.mark.parametrize("layout", ["vmap", "sequential", "chunked:2", "chunked:8"])
@pytest.mark.parametrize("where", ["device", "host"])
def test_epochs_are_those_of_a_plain_loop(layout, where):
    store = in_memory(clients())
    algo = lur.local_update(loss, lur.theta.fedavg(7), optax.sgd)  # ceil(2 * 7 / 2)
    state, _ = go(store, algo=algo, layout=layout, epochs=2, data="host" if where == "host" else None)
    np.testing.assert_allclose(state.params, plain_loop(store, epochs=2)[0], rtol=1e-12)


def test_a_donated_state_is_gone_and_the_numbers_the_same():
    store, algo = in_memory(clients()), lur.local_update(loss, lur.theta.fedavg(K), optax.sgd)
    state = algo.init(jnp.ones(3), GAMMA, ETA)
    kept, _ = go(store, state=state, algo=algo)
    given, _ = go(store, state=state, algo=algo, donate=True)
    assert (kept.params == given.params).all()
    assert state.params.is_deleted()


@pytest.mark.x64
def test_disk_and_memory_and_any_cut_are_the_same_run(tmp_path):
    store = in_memory(clients())
    disk = write_store(tmp_path / "s", clients(), {})
    whole, infos = go(store)
    state, parts = None, []
    for rounds in (1, 3, 1):
        state, info = go(disk, rounds, state, data=resident(disk), capacity=4)
        parts.append(info)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), whole, state))
    together = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((np.asarray(a) == b).all()), infos, together))


def test_calls_of_fewer_rounds_share_one_program():
    store = in_memory(clients(dtype=np.float32))
    algo = lur.local_update(lambda w, batch: loss(w, batch), lur.theta.fedavg(K))  # a program of its own
    before = engine_rounds.compiled_rounds._cache_size()
    for rounds in (8, 5, 1):
        go(store, rounds, algo=algo, capacity=8)
    assert engine_rounds.compiled_rounds._cache_size() == before + 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"clients_per_round": 8}, "at most the number of clients in the store, 7, got 8"),
        ({"clients_per_round": 0}, "clients_per_round must be an integer >= 1, got 0"),
        ({"batch_size": 0}, "batch_size must be an integer >= 1, got 0"),
        ({"batch_size": 1.5}, "batch_size must be an integer >= 1, got 1.5"),
        ({"rounds": 0}, "rounds must be an integer >= 1, got 0"),
        ({"seed": -1}, "seed must be an integer from 0"),
        ({"seed": 2**32}, "seed must be an integer from 0"),
        ({"layout": "spiral"}, "layout must be one of vmap, sequential, chunked:n, .*, got 'spiral'"),
        ({"layout": "chunked:0"}, "with n >= 1, got 'chunked:0'"),
        ({"layout": "chunked"}, "got 'chunked'"),
        ({"layout": "sharded:sharded"}, "got 'sharded:sharded'"),
        ({"weighting": "size"}, "weighting must be 'uniform' or 'examples', got 'size'"),
        ({"epochs": 0}, "epochs must be an integer >= 1"),
        ({"epochs": 1}, r"take K = 4 steps, got a method with 5; use theta = lur.theta.fedavg\(4\)"),
    ],
)
def test_bad_numbers(options, says):
    algo = lur.local_update(loss, lur.theta.fedavg(5), optax.sgd)
    given = {"rounds": 2, "clients_per_round": 2, "batch_size": 2, **options}
    with pytest.raises(ValueError, match=says):
        lur.run(algo, algo.init(jnp.ones(3), GAMMA, ETA), in_memory(clients(dtype=np.float32)), **given)


@pytest.mark.x64
@pytest.mark.parametrize(("small", "chosen"), [(100, "layout vmap: a small model"), (1, "layout sequential: a CPU")])
def test_auto_suits_the_model_and_says_why(small, chosen, monkeypatch, caplog):
    monkeypatch.setattr(layouts, "SMALL_MODEL", small)
    store = in_memory(clients())
    expected, losses = plain_loop(store)
    with caplog.at_level("INFO", "lur.engine.run"):
        state, infos = go(store)
    np.testing.assert_allclose(state.params, expected, rtol=1e-12)
    np.testing.assert_allclose(infos.loss, losses, rtol=1e-12)
    assert chosen in caplog.text
