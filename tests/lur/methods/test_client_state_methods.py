"""SCAFFOLD, FedDyn, ProxSkip and FedSplit, run by `lur.run`, compared with numpy loops from their papers.

Compared are the model, what the server keeps, and the states of all clients.
"""

from functools import cache
from typing import Any, NamedTuple

import chex
import jax
import numpy as np
import pytest

import lur
from lur.data.sampling import round_key, sample_clients
from lur.engine import host_store
from lur.methods import feddyn, fedsplit, proxskip, scaffold
from lur.parallel import client_states
from tests.lur import numpy_loop
from tests.lur.methods.oracles import feddyn as feddyn_oracle
from tests.lur.methods.oracles import fedsplit as fedsplit_oracle
from tests.lur.methods.oracles import proxskip as proxskip_oracle
from tests.lur.methods.oracles import scaffold as scaffold_oracle
from tests.lur.numpy_loop import gradient, loss, random_store

pytestmark = pytest.mark.promote

SIZES, D, B, M, ROUNDS, SEED = (1, 4, 2, 7, 3, 5), 3, 2, 3, 20, 5
N = len(SIZES)
START = np.array([1.0, -2.0, 0.5])
GAMMA, ETA, ALPHA, P, S, COINS = 0.1, 0.7, 0.8, 0.3, 0.5, 2


class Case(NamedTuple):
    """A method, how it is run, and its oracle.

    Attributes:
      make: ``make(K)``, the method.
      oracle: ``oracle(x, rounds) -> (model, what the server keeps, states of the clients)``.
      M: clients per round.
      K: local steps, if the mini-batches are drawn with replacement.
      eta: the server rate.
      kept: ``kept(state) -> (model, what the server keeps, states of the clients)``.
    """

    make: Any
    oracle: Any
    M: int = M
    K: int = 4
    eta: float = 1.0
    kept: Any = lambda state: (state.params, state.method_state, state.clients)


def scaffold_case(option):
    def oracle(x, rounds):
        return scaffold_oracle.run(
            x, gradient, rounds, N=N, local_rate=GAMMA, global_rate=ETA, option=option
        )  # fmt: skip

    return Case(lambda K: scaffold(loss, K, option), oracle, eta=ETA)


def coins_of_proxskip():
    """What the coins of all rounds say: drawn from the key of the seed, folded with the round."""
    keys = [jax.random.fold_in(jax.random.key(COINS, impl="threefry2x32"), t) for t in range(ROUNDS)]
    return [float(jax.random.uniform(key, dtype=np.float32)) < P for key in keys]


def models_and_controls(state):
    """The last mean, and the clients' models and control variates after what the last coin said."""
    own, coin = state.clients, bool(state.method_state.communicated)
    model = np.asarray(own.model)
    after = np.broadcast_to(state.params, model.shape) if coin else model
    return state.params, (), (after, own.control + P / GAMMA * (after - model))


def proxskip_numbers(x, rounds):
    coins = coins_of_proxskip()
    assert 2 <= sum(coins) < ROUNDS - 2
    means, *own = proxskip_oracle.run(x, gradient, rounds, n=N, rate=GAMMA, probability=P, coins=coins)
    return means[-1], (), own


def fedsplit_numbers(x, rounds):
    x, models = fedsplit_oracle.run(x, gradient, rounds, m=N, s=S, rate=GAMMA)
    return x, (), models


CASES = {
    "scaffold I": scaffold_case("I"),
    "scaffold II": scaffold_case("II"),
    "feddyn": Case(
        lambda K: feddyn(loss, K, ALPHA),
        lambda x, rounds: feddyn_oracle.run(x, gradient, rounds, m=N, alpha=ALPHA, rate=GAMMA),
    ),
    "proxskip": Case(lambda K: proxskip(loss, P, seed=COINS), proxskip_numbers, M=N, K=1, kept=models_and_controls),
    "fedsplit": Case(lambda K: fedsplit(loss, K, S), fedsplit_numbers, M=N),
}


def largest_difference(found, expected):
    """The largest difference of two pytrees, relative to the largest entry of each of their parts."""
    parts = [
        (np.asarray(one, np.float64), np.asarray(other, np.float64))
        for one, other in zip(found, expected, strict=True)
        if not isinstance(other, tuple) or other
    ]
    assert len(parts) >= 2
    assert all(one.shape == other.shape for one, other in parts)
    return max(np.abs(one - other).max() / np.abs(other).max() for one, other in parts)


def options(case, **further):
    """Those of `lur.run` and `lur.run_grid`."""
    return {"clients_per_round": case.M, "batch_size": B, "capacity": ROUNDS, **further}


@cache
def drawn_batches(M, K, epochs):
    """For each round, the mini-batches of each client that takes part."""
    store, keys = random_store(0, SIZES, D), [round_key(SEED, t) for t in range(ROUNDS)]
    cohorts = [map(int, sample_clients(key, N, M)) for key in keys]
    return [
        {i: numpy_loop.own_batches(store, key, i, K, B, epochs) for i in cohort}
        for key, cohort in zip(keys, cohorts, strict=True)
    ]


def check(name, dtype, tolerance, *, epochs=None, layout="vmap", data=None):
    case = CASES[name]
    store, x = random_store(0, SIZES, D, dtype), START.astype(dtype)
    K = case.K if epochs is None else -(-epochs * max(SIZES) // B)
    method = case.make(K)
    state, infos = method.init(x, GAMMA, case.eta, clients=N), []
    for count in (7, ROUNDS - 7):  # where a run is cut does not matter
        state, info = lur.run(
            method, state, store, rounds=count, seed=SEED, epochs=epochs, layout=layout, data=data, donate=True,
            **options(case),
        )  # fmt: skip
        infos.append(info)
    rounds = [
        {
            i: [tuple(np.asarray(part, dtype).astype(np.float64) for part in batch) for batch in batches]
            for i, batches in own.items()
        }
        for own in drawn_batches(case.M, K, epochs)
    ]
    expected = case.oracle(START, rounds)
    assert largest_difference(case.kept(state), expected) <= tolerance
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves((state.params, state.clients)))
    first = [numpy_loop.value(START, *batches[0]) for batches in rounds[0].values()]
    np.testing.assert_allclose(infos[0].client_losses[0], first, rtol=10 * np.finfo(dtype).eps)
    return state


NAMES = [pytest.param("scaffold I", marks=pytest.mark.full), *list(CASES)[1:]]
"""Option I is compared once in the ordinary tests."""


@pytest.mark.x64
@pytest.mark.parametrize("name", CASES)
def test_twenty_rounds_are_those_of_the_paper(name):
    check(name, np.float64, 1e-12, layout="chunked:2")


@pytest.mark.parametrize("name", NAMES)
def test_twenty_rounds_in_single_precision(name):
    check(name, np.float32, 1e-6)


@pytest.mark.x64
@pytest.mark.parametrize("name", [*NAMES[:3], pytest.param("fedsplit", marks=pytest.mark.full)])
def test_epochs_over_unequal_clients_count_the_clients_own_steps(name):
    check(name, np.float64, 1e-12, epochs=1, layout="sequential", data="host")


@pytest.mark.full
@pytest.mark.x64
@pytest.mark.parametrize("data", [None, "host"])
@pytest.mark.parametrize("layout", ["vmap", "sequential", "chunked:2", "sharded:vmap"])
@pytest.mark.parametrize("name", CASES)
def test_every_layout_has_the_numbers_of_the_paper(name, layout, data):
    check(name, np.float64, 1e-12, layout=layout, data=data)


@pytest.mark.x64
@pytest.mark.parametrize(
    "name", ["scaffold II", *(pytest.param(name, marks=pytest.mark.full) for name in ("feddyn", "fedsplit"))]
)
def test_states_on_the_host_are_those_on_the_device(name, monkeypatch):
    """Also where only some clients' states are on the device at a time: N is that of the store."""
    monkeypatch.setattr(client_states, "DEVICE_BYTES", 0)
    monkeypatch.setattr(host_store, "TRANSFER_ROUNDS", 1)
    state = check(name, np.float64, 1e-12)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(state.clients))


@pytest.mark.x64
@pytest.mark.parametrize(
    "name",
    [
        "feddyn",
        "proxskip",
        *(pytest.param(name, marks=pytest.mark.full) for name in ("scaffold I", "scaffold II", "fedsplit")),
    ],
)
def test_a_grid_is_its_single_runs(name):
    case, store = CASES[name], random_store(0, SIZES, D)
    method, etas = case.make(case.K), (1.0,) if name == "proxskip" else (0.5, 1.0)
    grid, _ = lur.run_grid(
        method, START, store, client_lr=(0.05, 0.1), server_lr=etas, seeds=(SEED,), rounds=6, **options(case)
    )
    for i, gamma in enumerate((0.05, 0.1)):
        for j, eta in enumerate(etas):
            state = method.init(START, gamma, eta, clients=N)
            single, _ = lur.run(method, state, store, rounds=6, seed=SEED, layout="vmap", **options(case))
            cell = jax.tree.map(lambda leaf, i=i, j=j: leaf[i, j, 0], (grid.params, grid.method_state, grid.clients))
            chex.assert_trees_all_close(
                cell, (single.params, single.method_state, single.clients), rtol=1e-12, atol=1e-13
            )


@pytest.mark.parametrize("name", CASES)
def test_equal_methods_are_equal(name):
    first, second = CASES[name].make(4), CASES[name].make(4)
    assert first == second
    assert hash(first) == hash(second)


REFUSED = {
    "no local steps": (lambda: scaffold(loss, 0), "local_steps must be an integer >= 1, got 0"),
    "half a local step": (lambda: feddyn(loss, 1.5, 0.1), "local_steps must be an integer >= 1, got 1.5"),
    "local steps in words": (lambda: fedsplit(loss, "2", 0.1), "local_steps must be an integer >= 1, got '2'"),  # pyright: ignore
    "unknown option": (lambda: scaffold(loss, 2, "III"), "option must be 'I' or 'II', got 'III'"),  # pyright: ignore
    "option as a number": (lambda: scaffold(loss, 2, 2), "option must be 'I' or 'II', got 2"),  # pyright: ignore
    "alpha 0": (lambda: feddyn(loss, 2, 0.0), "alpha must be a number > 0, got 0.0"),
    "negative alpha": (lambda: feddyn(loss, 2, -1), "alpha must be a number > 0, got -1"),
    "alpha nan": (lambda: feddyn(loss, 2, float("nan")), "alpha must be a number > 0, got nan"),
    "alpha that is no float32": (lambda: feddyn(loss, 2, 1e-60), "alpha must be 0 or in the range of float32"),
    "prox_step infinite": (lambda: fedsplit(loss, 2, float("inf")), "prox_step must be a number > 0, got inf"),
    "probability 0": (lambda: proxskip(loss, 0), r"probability must be a number in \(0, 1\], got 0"),
    "probability above 1": (lambda: proxskip(loss, 1.01), r"probability must be a number in \(0, 1\], got 1.01"),
    "probability True": (lambda: proxskip(loss, True), r"probability must be a number in \(0, 1\], got True"),
    "negative seed": (lambda: proxskip(loss, 0.5, seed=-1), "seed must be an integer from 0 to 2\\^32 - 1, got -1"),
    "server": (lambda: scaffold(loss, 2, server="sgd"), "server must be an optax optimiser"),  # pyright: ignore
    "client": (lambda: feddyn(loss, 2, 1, client="sgd"), "client must be an optax optimiser"),  # pyright: ignore
    "gamma 0": (lambda: scaffold(loss, 2).init(START, 0.0, 1.0, clients=N), "client_lr must be > 0 with this method"),
    "gamma 0, proxskip": (lambda: proxskip(loss, 0.5).init(START, 0, 1.0, clients=N), "client_lr must be > 0"),
    "eta of proxskip": (
        lambda: proxskip(loss, 0.5).init(START, 0.1, 0.5, clients=N),
        "server_lr must be 1 with ProxSkip, whose server takes the mean, got 0.5",
    ),
    "rates per step of proxskip": (
        lambda: proxskip(loss, 0.5).init(START, [0.1], 1.0, clients=N), r"client_lr must have shape \(\), got \(1,\)"
    ),
    "no number of clients": (lambda: scaffold(loss, 2).init(START, 0.1, 1.0), "clients must be the number of clients"),
    "one client alone": (
        lambda: scaffold(loss, 2).client(START, {"x": np.ones((2, 1, D)), "y": np.ones((2, 1))}, 0.1),
        "method must have clients without state",
    ),
}  # fmt: skip


@pytest.mark.x64
@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.x64
def test_bad_runs_are_refused_before_anything_is_compiled(monkeypatch):
    store, case = random_store(0, SIZES, D), CASES["proxskip"]
    methods = [proxskip(loss, P), fedsplit(loss, 1, S)]
    states = [method.init(START, GAMMA, 1.0, clients=N) for method in methods]
    monkeypatch.setattr(
        jax._src.interpreters.mlir, "lower_jaxpr_to_module", lambda *_, **__: pytest.fail("a program was compiled")
    )
    few = {"x": np.ones((N - 1, 1, B, D)), "y": np.ones((N - 1, 1, B))}
    for method, state in zip(methods, states, strict=True):
        with pytest.raises(ValueError, match=r"clients_per_round must be all 6 clients of the store, .* got 3"):
            lur.run(method, state, store, rounds=1, clients_per_round=3, batch_size=B)
        with pytest.raises(ValueError, match=r"batches must be of all 6 clients, .* got 5"):
            method.round(state, few)
    for method, rates, message in (
        (methods[0], {"client_lr": (0.1,), "server_lr": (1.0, 0.5)}, "server_lr must be 1 with ProxSkip"),
        (methods[0], {"client_lr": (0.1, 0.0), "server_lr": (1.0,)}, "client_lr must be > 0"),
        (scaffold(loss, 1), {"client_lr": (0.1, 0.0), "server_lr": (1.0, 0.5)}, "client_lr must be > 0"),
    ):
        with pytest.raises(ValueError, match=message):
            lur.run_grid(method, START, store, rounds=1, **rates, **options(case))
