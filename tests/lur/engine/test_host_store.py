"""Rounds read on the host: shares of several processes, padded clients, and prefetching change no number."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import lur
from lur.data.writer import in_memory
from lur.engine import host_store
from lur.engine.batches import as_stored
from lur.engine.host_store import HostRounds
from lur.engine.rounds import Rounds, compiled_host_rounds, run_on_host
from lur.engine.sampling_plan import plan_sampling
from lur.parallel.layouts import parse_layout
from lur.parallel.mesh import CLIENTS_AXIS, mesh_of
from tests.lur.engine.test_run import B, K, M, R, clients, loss


@pytest.fixture
def problem():
    """A method, a store and the sampling plan of its rounds."""
    method = lur.local_update(loss, lur.theta.fedavg(K), optax.sgd)
    store = in_memory(clients())
    return method, store, plan_sampling(store, method, M, B)


@pytest.mark.x64
@pytest.mark.parametrize("count", [2, 4])
def test_shares_of_all_processes_equal_a_single_process(problem, monkeypatch, count):
    """All processes draw the clients that a single process draws, and each reads only its share of the examples."""
    _, store, plan = problem
    expected = host_store.read_rounds(plan, store, np.uint32(3), np.arange(R))
    padded_size = M + -M % count
    monkeypatch.setattr(host_store, "_join_processes", lambda share, *arrays: HostRounds(arrays[0], *arrays))
    shares = [
        host_store.read_rounds(
            plan, store, np.uint32(3), np.arange(R), host_store.ProcessShare(padded_size, positions, None)
        )
        for positions in np.split(np.arange(padded_size), count)
    ]
    for name, value in expected.examples.items():
        assert all(share.examples[name].shape[1] == padded_size // count for share in shares)
        joined = np.concatenate([share.examples[name] for share in shares], axis=1)
        np.testing.assert_array_equal(joined[:, :M], value)
    for share in shares:
        np.testing.assert_array_equal(share.indices[:, :M], expected.indices)
        np.testing.assert_array_equal(share.indices[:, M:], expected.indices[:, [M - 1] * (padded_size - M)])


@pytest.mark.x64
@pytest.mark.parametrize("weighting", ["examples", pytest.param("uniform", marks=pytest.mark.full)])
def test_padded_clients_have_no_weight(problem, weighting):
    method, store, _ = problem
    plan = plan_sampling(store, method, M, B, None, weighting)
    layout = parse_layout("sequential")
    padded_size = M + 2
    mesh = mesh_of(layout)
    share = host_store.ProcessShare(padded_size, np.arange(padded_size), mesh)
    rows = host_store.read_rounds(plan, store, np.uint32(3), np.arange(R), share)
    assert rows.examples["x"].sharding.spec == P(None, CLIENTS_AXIS)
    start = method.init(jnp.ones(3), 0.1, 0.3)
    program = Rounds(method, plan, as_stored, layout, R)
    state, infos = compiled_host_rounds(program, start, rows, np.uint32(3), np.int32(R))
    options = {"rounds": R, "clients_per_round": M, "batch_size": B, "seed": 3, "weighting": weighting}
    expected, expected_infos = lur.run(method, start, store, **options)
    np.testing.assert_allclose(state.params, expected.params, rtol=1e-12)
    np.testing.assert_allclose(infos.client_losses, expected_infos.client_losses, rtol=1e-12)
    np.testing.assert_allclose(infos.loss, expected_infos.loss, rtol=1e-12)


@pytest.mark.x64
@pytest.mark.parametrize(
    "transfer_rounds", [3, pytest.param(1, marks=pytest.mark.full), pytest.param(64, marks=pytest.mark.full)]
)
def test_prefetch_depth_and_splitting_a_run_change_no_bit(problem, monkeypatch, transfer_rounds):
    method, store, plan = problem
    monkeypatch.setattr(host_store, "TRANSFER_ROUNDS", transfer_rounds)
    start, seed = method.init(jnp.ones(3), 0.1, 0.3), np.uint32(3)
    layout = parse_layout("vmap")

    def run_prefetched(state, rounds, depth):
        program = Rounds(method, plan, as_stored, layout, 8)
        return run_on_host(program, state, store, seed, rounds, depth=depth)

    expected, infos = run_prefetched(start, 7, 1)
    prefetched, _ = run_prefetched(start, 7, 5)
    split, first = run_prefetched(start, 4, 2)
    split, last = run_prefetched(split, 3, 2)
    for state in (prefetched, split):
        assert np.asarray(state.params).tobytes() == np.asarray(expected.params).tobytes()
    assert np.concatenate([first.client_losses, last.client_losses]).tobytes() == infos.client_losses.tobytes()
