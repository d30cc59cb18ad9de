"""The states that clients keep: those of a numpy loop in every layout, untouched if a client does not take part."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lur
from lur.engine import host_store
from lur.engine.grid import advance_grid, init_grid
from lur.parallel import client_states
from lur.parallel.disk_rows import DiskRows
from tests.lur.engine.client_state_runs import (
    ETA,
    GAMMA,
    METHOD,
    ROUNDS,
    RUN,
    START,
    D,
    K,
    M,
    N,
    bits,
    check,
    check_grids,
    different_states,
    init_client,
    numpy_client,
    numpy_loop,
    start,
    store,
)

pytestmark = pytest.mark.x64
ROOT = Path(__file__).resolve().parents[3]
LAYOUTS = ["vmap", "sequential", "chunked:2"]


def run(state, rounds=ROUNDS, **options):
    return lur.run(METHOD, state, store(), rounds=rounds, **{"layout": "vmap", **RUN, **options})[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("data", [None, "host"])
def test_states_are_those_of_a_numpy_loop(layout, data):
    state = run(start(), layout=layout, data=data)
    check(state.params, state.clients, numpy_loop())


def test_states_do_not_depend_on_the_clients_weights():
    state = run(start(), weighting="examples")
    check(state.params, state.clients, numpy_loop(weighting="examples"))


@pytest.mark.parametrize("data", [None, "host"])
def test_a_run_cut_into_calls_has_the_same_states(data):
    whole, cut = run(start(), data=data), start()
    for rounds in (1, ROUNDS - 2, 1):
        cut = run(cut, rounds, data=data)
    assert bits(cut) == bits(whole)


def test_donated_states_are_the_same():
    state = start()
    assert bits(run(state)) == bits(run(state, donate=True))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state.clients))


@pytest.mark.parametrize("layout", LAYOUTS[:2])
@pytest.mark.parametrize("transfer", [1, 3, 64])
def test_states_on_the_host_are_those_on_the_device(layout, transfer, monkeypatch):
    """However many rounds' examples and states move to the device at once."""
    monkeypatch.setattr(host_store, "TRANSFER_ROUNDS", transfer)
    given = start(xp=np)
    before = bits(given.clients)
    found = run(given, layout=layout)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(found.clients))
    assert bits(given.clients) == before  # the caller's arrays are not written to
    assert bits(found) == bits(run(start(), layout=layout, data="host"))
    check(found.params, found.clients, numpy_loop())


def test_states_on_the_host_go_on_where_they_were():
    cut = start(xp=np)
    for rounds in (1, ROUNDS - 1):
        cut = run(cut, rounds, donate=True)
    assert bits(cut) == bits(run(start(xp=np)))


@pytest.mark.parametrize("dtypes", ["arrays", "numbers"])
def test_large_states_start_on_the_host(monkeypatch, dtypes):
    """On disk, with the bits and dtypes that they would have on the device."""
    method = METHOD
    if dtypes == "numbers":
        method = METHOD._replace(init_client=lambda params: {"a": -0.0, "b": 1, "c": True, "d": jnp.bfloat16(-0.0)})
    with jax.enable_x64(dtypes == "arrays"):
        start = START.astype(np.float64 if dtypes == "arrays" else np.float32)
        device = method.init(start, GAMMA, ETA, clients=5).clients
        monkeypatch.setattr(client_states, "DEVICE_BYTES", 0)
        host = method.init(start, GAMMA, ETA, clients=5).clients
    assert all(isinstance(leaf, DiskRows) for leaf in jax.tree.leaves(host))
    assert jax.tree.map(lambda leaf: (leaf.dtype, leaf.shape), host) == jax.tree.map(
        lambda leaf: (leaf.dtype, leaf.shape), device
    )
    assert bits(host) == bits(device)


def test_states_on_the_host_run_from_init(monkeypatch):
    device = run(METHOD.init(START, GAMMA, ETA, clients=N), data="host")
    monkeypatch.setattr(client_states, "DEVICE_BYTES", 0)
    state = METHOD.init(START, GAMMA, ETA, clients=N)
    before = bits(state)
    assert bits(run(state)) == bits(device)
    assert bits(state) == before  # a version of its own
    cut = state
    for rounds in (1, ROUNDS - 1):
        cut = run(cut, rounds, donate=True)
    assert bits(cut) == bits(device)
    monkeypatch.setattr(client_states, "DEVICE_ROWS_BYTES", 0)  # one round's rows at a time
    assert bits(run(state)) == bits(device)


@pytest.mark.parametrize("layout", ["vmap", "sequential"])
def test_a_grid_has_a_state_per_cell(layout):
    check_grids(store(), ({"layout": layout},))


def test_run_grid_returns_the_states_of_its_cells():
    rates = {"client_lr": (0.0, GAMMA), "server_lr": (ETA, 1.0)}
    options = {name: value for name, value in RUN.items() if name != "seed"}
    states, _ = lur.run_grid(METHOD, START, store(), **rates, seeds=(7, 8), rounds=ROUNDS, **options)
    assert states.clients["vector"].shape == (2, 2, 2, N, D)
    for i, gamma in enumerate(rates["client_lr"]):
        for j, eta in enumerate(rates["server_lr"]):
            single = run(METHOD.init(START, gamma, eta, clients=N), seed=8)
            for name, leaf in single.clients.items():
                found = np.asarray(states.clients[name][i, j, 1])
                if name == "vector":
                    np.testing.assert_allclose(found, leaf, rtol=1e-12, atol=1e-14)
                else:
                    assert found.tobytes() == np.asarray(leaf).tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_round_uses_the_states_of_the_given_clients(layout):
    rng = np.random.default_rng(3)
    state, expected = start(), {name: np.array(leaf) for name, leaf in different_states(np).items()}
    x, before = START, different_states(np)
    cohorts = [np.array([4, 0, 9]), np.array([10, 4, 2], np.int64), [1, 0, 4], None]
    for cohort in cohorts:
        batches = {"x": rng.normal(size=(M, K, 2, D))}
        state, info = METHOD.round(state, batches, clients=cohort, layout=layout)
        updates = []
        for m, i in enumerate(range(M) if cohort is None else cohort):
            own = {name: leaf[i] for name, leaf in expected.items()}
            updates.append(numpy_client(x, own, batches["x"][m].mean(axis=(0, 1)), GAMMA))
            for name, leaf in expected.items():
                leaf[i] = own[name]
        np.testing.assert_allclose(info.client_norms, np.linalg.norm(updates, axis=1), rtol=1e-12)
        x = x - ETA * np.mean(updates, axis=0)
    check(state.params, state.clients, (x, expected, {0, 1, 2, 4, 9, 10}))
    assert np.asarray(state.clients["vector"])[[3, 5, 6, 7, 8]].tobytes() == before["vector"][[3, 5, 6, 7, 8]].tobytes()


def test_indices_may_be_traced():
    batches = {"x": np.random.default_rng(4).normal(size=(M, K, 2, D))}
    indices = jnp.array([8, 1, 5])
    traced, _ = jax.jit(lambda state, clients: METHOD.round(state, batches, clients=clients))(start(), indices)
    given, _ = METHOD.round(start(), batches, clients=indices)
    assert bits(traced) == bits(given)


@pytest.mark.parametrize(
    ("clients", "says"),
    [
        ([0, 1, N], f"clients must be distinct indices from 0 to {N - 1}"),
        ([0, 1, -1], f"clients must be distinct indices from 0 to {N - 1}"),
        ([2, 5, 2], "clients must be distinct indices"),
        ([0, 1], "clients must be 3 integers, one index per client"),
        ([[0], [1], [2]], "clients must be 3 integers"),
        ([0.0, 1.0, 2.0], "clients must be 3 integers"),
        ([True, False, True], "clients must be 3 integers"),
        (1, "clients must be 3 integers"),
    ],
)
def test_bad_indices(clients, says):
    with pytest.raises(ValueError, match=says):
        METHOD.round(start(), {"x": np.zeros((M, K, 2, D))}, clients=clients)


def test_a_cohort_larger_than_the_population():
    state = METHOD.init(START, GAMMA, ETA, clients=2)
    with pytest.raises(ValueError, match="batches must have at most the 2 clients of the state, got 3"):
        METHOD.round(state, {"x": np.zeros((M, K, 2, D))})


@pytest.mark.parametrize(
    ("clients", "says"),
    [
        (None, "clients must be the number of clients N: the clients of this method keep a state"),
        (0, "clients must be an integer >= 1, got 0"),
        (2.5, "clients must be an integer >= 1, got 2.5"),
        (True, "clients must be an integer >= 1, got True"),
    ],
)
def test_bad_populations(clients, says):
    with pytest.raises(ValueError, match=says):
        METHOD.init(START, GAMMA, ETA, clients=clients)


@pytest.mark.parametrize("clients", [N - 1, N + 1])
def test_states_of_another_population_are_refused(clients):
    says = f"state must have one state for each of the store's {N} clients, got {clients}"
    with pytest.raises(ValueError, match=says):
        run(METHOD.init(START, GAMMA, ETA, clients=clients))
    with pytest.raises(ValueError, match=says):
        run(METHOD.init(START, GAMMA, ETA, clients=clients), data="host")
    cells = init_grid(METHOD, START, [GAMMA], [ETA], clients=clients)
    options = {name: value for name, value in RUN.items() if name != "seed"}
    with pytest.raises(ValueError, match=says):
        advance_grid(METHOD, cells, store(), rounds=1, **options)


def test_a_grid_whose_states_do_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr(client_states, "DEVICE_BYTES", 0)
    with pytest.raises(ValueError, match="client states must fit into device memory in a grid, got 11 states"):
        lur.run_grid(
            METHOD, START, store(), client_lr=(GAMMA,), server_lr=(ETA,), rounds=1, clients_per_round=M, batch_size=1
        )


def test_methods_without_client_states_have_none():
    method = METHOD._replace(init_client=lambda params: (), client_update=lur.local_update(sum, [1]).client_update)
    assert method.init(START, GAMMA, ETA).clients == ()
    assert method.init(START, GAMMA, ETA, clients=N).clients == ()
    assert set(init_client(START)) == set(start().clients)


def spawn(*arguments, devices=1):
    return subprocess.Popen(
        [sys.executable, "-m", "tests.lur.engine.client_state_runs", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**os.environ, "JAX_NUM_CPU_DEVICES": str(devices), "JAX_PLATFORMS": "cpu"},
    )


def finish(*processes):
    for process in processes:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output[-3000:]
        assert output.endswith("agreed\n")


def test_two_devices_two_processes_and_eight_devices(tmp_path):
    """Two processes have the states of one process with two devices bit for bit; eight devices check themselves."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    finish(*(spawn("process", tmp_path / f"process {index}.npz", port, index) for index in (0, 1)))
    finish(spawn("devices", tmp_path / "two.npz", devices=2))
    finish(spawn("devices", tmp_path / "eight.npz", devices=8))
    expected = dict(np.load(tmp_path / "two.npz"))
    for name in ("process 0.npz", "process 1.npz"):
        assert bits(dict(np.load(tmp_path / name))) == bits(expected)
