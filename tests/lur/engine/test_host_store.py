"""Rounds read on the host: the parts of several processes are the whole, and how far ahead they are read is nothing."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import lur
from lur.data.writer import in_memory
from lur.engine import host_store
from lur.engine.batches import as_stored, plan_sampling
from lur.engine.host_store import HostRounds
from lur.engine.rounds import Rounds, _compiled_host_rounds, run_on_host
from lur.parallel.layouts import parse_layout
from lur.parallel.mesh import CLIENTS_AXIS, mesh_of
from tests.lur.engine.test_run import B, K, M, R, clients, loss


@pytest.fixture
def made():
    algo = lur.local_update(loss, lur.theta.fedavg(K), optax.sgd)
    store = in_memory(clients())
    return algo, store, plan_sampling(store, algo, M, B)


@pytest.mark.x64
@pytest.mark.parametrize("count", [2, 4])
def test_the_parts_of_processes_are_the_whole(made, monkeypatch, count):
    """Who takes part and what each draws is exactly that of one process; nobody reads another's examples."""
    _, store, drawn = made
    whole = host_store.read_rounds(drawn, store, np.uint32(3), np.arange(R))
    filled = M + -M % count
    monkeypatch.setattr(host_store, "_join_processes", lambda share, *parts: HostRounds(parts[0], *parts))
    parts = [
        host_store.read_rounds(drawn, store, np.uint32(3), np.arange(R), host_store.ProcessShare(filled, places, None))
        for places in np.split(np.arange(filled), count)
    ]
    for name, value in whole.examples.items():
        assert all(part.examples[name].shape[1] == filled // count for part in parts)
        joined = np.concatenate([part.examples[name] for part in parts], axis=1)
        np.testing.assert_array_equal(joined[:, :M], value)
    for part in parts:
        np.testing.assert_array_equal(part.indices[:, :M], whole.indices)
        np.testing.assert_array_equal(part.indices[:, M:], whole.indices[:, [M - 1] * (filled - M)])


@pytest.mark.x64
@pytest.mark.parametrize("weighting", ["examples", pytest.param("uniform", marks=pytest.mark.full)])
def test_clients_that_fill_up_weigh_nothing(made, weighting):
    algo, store, _ = made
    drawn = plan_sampling(store, algo, M, B, None, weighting)
    layout = parse_layout("sequential")
    filled = M + 2
    mesh = mesh_of(layout)
    share = host_store.ProcessShare(filled, np.arange(filled), mesh)
    rows = host_store.read_rounds(drawn, store, np.uint32(3), np.arange(R), share)
    assert rows.examples["x"].sharding.spec == P(None, CLIENTS_AXIS)
    start = algo.init(jnp.ones(3), 0.1, 0.3)
    program = Rounds(algo, drawn, as_stored, layout, R)
    state, infos = _compiled_host_rounds(layout)(program, start, rows, np.uint32(3), np.int32(R))
    options = {"rounds": R, "clients_per_round": M, "batch_size": B, "seed": 3, "weighting": weighting}
    expected, seen = lur.run(algo, start, store, **options)
    np.testing.assert_allclose(state.params, expected.params, rtol=1e-12)
    np.testing.assert_allclose(infos.client_losses, seen.client_losses, rtol=1e-12)
    np.testing.assert_allclose(infos.loss, seen.loss, rtol=1e-12)


@pytest.mark.x64
@pytest.mark.parametrize("most", [3, *(pytest.param(most, marks=pytest.mark.full) for most in (1, 64))])
def test_neither_depth_nor_cuts_change_a_bit(made, monkeypatch, most):
    algo, store, drawn = made
    monkeypatch.setattr(host_store, "TRANSFER_ROUNDS", most)
    start, seed = algo.init(jnp.ones(3), 0.1, 0.3), np.uint32(3)
    layout = parse_layout("vmap")

    def go(state, rounds, depth):
        program = Rounds(algo, drawn, as_stored, layout, 8)
        return run_on_host(program, state, store, seed, rounds, depth=depth)

    once, infos = go(start, 7, 1)
    deep, _ = go(start, 7, 5)
    cut, first = go(start, 4, 2)
    cut, last = go(cut, 3, 2)
    for other in (deep, cut):
        assert np.asarray(other.params).tobytes() == np.asarray(once.params).tobytes()
    assert np.concatenate([first.client_losses, last.client_losses]).tobytes() == infos.client_losses.tobytes()
