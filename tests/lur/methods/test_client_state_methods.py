"""SCAFFOLD, FedDyn, ProxSkip and FedSplit, run by `lur.run`, compared with numpy loops from their papers.

Compared are the model, what the server keeps, and the states of all clients.
"""

from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import lur
from lur.data.sampling import round_key, sample_clients
from lur.methods import feddyn, fedsplit, proxskip, scaffold
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
    state, infos = lur.run(
        method, method.init(x, GAMMA, case.eta, clients=N), store, rounds=ROUNDS, clients_per_round=case.M,
        batch_size=B, seed=SEED, epochs=epochs, layout=layout, data=data,
    )  # fmt: skip
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
    np.testing.assert_allclose(infos.client_losses[0], first, rtol=10 * np.finfo(dtype).eps)
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
@pytest.mark.parametrize("name", [name for name in NAMES if name != "proxskip"])
def test_epochs_over_unequal_clients_count_the_clients_own_steps(name):
    check(name, np.float64, 1e-12, epochs=1, layout="sequential", data="host")
