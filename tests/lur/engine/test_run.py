"""`lur.run` compared with a numpy loop over rounds, clients and steps, in every layout."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
from lur.data.gather import resident
from lur.data.sampling import client_key, round_key, sample_clients, shuffled_epochs, with_replacement
from lur.data.writer import in_memory, write_store
from lur.parallel import layouts

M, K, B, R = 3, 4, 2, 5
GAMMA, ETA = 0.1, 0.3


def clients(N=7, d=3, dtype=np.float64):
    """Names and random least squares examples of N clients; client i has i + 1 examples."""
    rng = np.random.default_rng(0)
    for i in range(N):
        n = 1 + i
        yield f"{i}", {"x": rng.normal(size=(n, d)).astype(dtype), "y": rng.normal(size=n).astype(dtype)}


def loss(w, batch):
    """Least squares, averaged over the unmasked examples if the batch has a mask."""
    losses = (batch["x"] @ w - batch["y"]) ** 2 / 2
    if "mask" not in batch:
        return losses.mean()
    mask = batch["mask"].astype(losses.dtype)
    return (losses * mask).sum() / jnp.maximum(mask.sum(), 1)


def numpy_run(store, rounds=R, seed=5, weighting="uniform", epochs=None):
    """Final parameters and loss of each round of Algorithms 1 and 2 in numpy, with the gradient written out."""
    w, round_losses = np.ones(3), []
    for t in range(rounds):
        key = round_key(seed, t)
        cohort = np.asarray(sample_clients(key, store.clients, M))
        updates, weights, losses = [], [], []
        for i in cohort:
            examples = store.client(int(i))
            n = len(examples["y"])
            if epochs is None:
                draw = with_replacement(client_key(key, int(i)), n, K, B)
                batches = [(row, np.ones(B, bool)) for row in np.asarray(draw.positions)]
            else:
                draw = shuffled_epochs(client_key(key, int(i)), n, epochs, B, int(store.sizes.max()))
                batches = [*zip(np.asarray(draw.positions), np.asarray(draw.mask), strict=True)]
            y, update, loss_before = w.copy(), np.zeros(3), None
            for rows, mask in batches:
                if not mask.any():
                    continue
                x, target = examples["x"][rows[mask]], examples["y"][rows[mask]]
                residual = x @ y - target
                loss_before = (residual**2 / 2).mean() if loss_before is None else loss_before
                g = x.T @ residual / len(rows[mask])
                update, y = update + g, y - GAMMA * g
            updates.append(update)
            losses.append(loss_before)
            weights.append(n if weighting == "examples" else 1)
        w = w - ETA * np.average(updates, axis=0, weights=weights)
        round_losses.append(np.average(losses, weights=weights))
    return w, round_losses


def run_rounds(store, rounds=R, state=None, method=None, **options):
    """`lur.run` with the sizes, rates and seed of `numpy_run`."""
    method = method or lur.local_update(loss, lur.theta.fedavg(K), optax.sgd)
    state = method.init(jnp.ones(3), GAMMA, ETA) if state is None else state
    return lur.run(method, state, store, rounds=rounds, clients_per_round=M, batch_size=B, seed=5, **options)


@pytest.mark.x64
@pytest.mark.parametrize("weighting", ["uniform", "examples"])
@pytest.mark.parametrize("layout", ["vmap", "sequential", "chunked:2", "chunked:8"])
@pytest.mark.parametrize("storage", ["device", "host"])
def test_run_equals_the_numpy_loop(layout, weighting, storage):
    store = in_memory(clients())
    state, infos = run_rounds(store, layout=layout, weighting=weighting, data="host" if storage == "host" else None)
    w, losses = numpy_run(store, weighting=weighting)
    np.testing.assert_allclose(state.params, w, rtol=1e-12)
    np.testing.assert_allclose(infos.loss, losses, rtol=1e-12)
    assert int(state.round) == R


@pytest.mark.x64
@pytest.mark.parametrize("layout", ["vmap", "sequential", "chunked:2", "chunked:8"])
@pytest.mark.parametrize("storage", ["device", "host"])
def test_epochs_equal_the_numpy_loop(layout, storage):
    store = in_memory(clients())
    method = lur.local_update(loss, lur.theta.fedavg(7), optax.sgd)  # ceil(2 * 7 / 2)
    state, _ = run_rounds(store, method=method, layout=layout, epochs=2, data="host" if storage == "host" else None)
    np.testing.assert_allclose(state.params, numpy_run(store, epochs=2)[0], rtol=1e-12)


def test_donating_the_state_deletes_it_and_changes_no_number():
    store, method = in_memory(clients()), lur.local_update(loss, lur.theta.fedavg(K), optax.sgd)
    state = method.init(jnp.ones(3), GAMMA, ETA)
    expected, _ = run_rounds(store, state=state, method=method)
    donated, _ = run_rounds(store, state=state, method=method, donate=True)
    assert (expected.params == donated.params).all()
    assert state.params.is_deleted()


@pytest.mark.x64
def test_a_run_in_parts_from_disk_equals_a_run_from_memory(tmp_path):
    store = in_memory(clients())
    store_on_disk = write_store(tmp_path / "s", clients(), {})
    expected, expected_infos = run_rounds(store)
    state, parts = None, []
    for rounds in (1, 3, 1):
        state, info = run_rounds(store_on_disk, rounds, state, data=resident(store_on_disk), capacity=4)
        parts.append(info)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), expected, state))
    infos = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((np.asarray(a) == b).all()), expected_infos, infos))


def test_fewer_rounds_than_the_capacity_do_not_recompile():
    store = in_memory(clients(dtype=np.float32))
    traces, counts = [], []

    def counted(w, batch):
        traces.append(1)
        return loss(w, batch)

    method = lur.local_update(counted, lur.theta.fedavg(K))
    for rounds in (8, 5, 1):
        run_rounds(store, rounds, method=method, capacity=8)
        counts.append(len(traces))
    assert counts == [counts[0]] * 3


@pytest.mark.parametrize(
    ("options", "message"),
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
def test_invalid_arguments_are_rejected(options, message):
    method = lur.local_update(loss, lur.theta.fedavg(5), optax.sgd)
    arguments = {"rounds": 2, "clients_per_round": 2, "batch_size": 2, **options}
    with pytest.raises(ValueError, match=message):
        lur.run(method, method.init(jnp.ones(3), GAMMA, ETA), in_memory(clients(dtype=np.float32)), **arguments)


@pytest.mark.x64
@pytest.mark.parametrize(
    ("small_model", "reason"), [(100, "layout vmap: a small model"), (1, "layout sequential: a CPU")]
)
def test_the_chosen_layout_suits_the_model_and_is_logged(small_model, reason, monkeypatch, caplog):
    monkeypatch.setattr(layouts, "SMALL_MODEL", small_model)
    store = in_memory(clients())
    expected, losses = numpy_run(store)
    with caplog.at_level("INFO", "lur.engine.run"):
        state, infos = run_rounds(store)
    np.testing.assert_allclose(state.params, expected, rtol=1e-12)
    np.testing.assert_allclose(infos.loss, losses, rtol=1e-12)
    assert reason in caplog.text
