"""How the clients of a round are drawn: the cohorts of a run, its exact moments, and what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest

import lur
import theory
from lur.data.gather import resident
from lur.data.sampling import round_key, sample_by_bounds, sample_independent
from lur.data.writer import in_memory
from tests.lur.engine import client_state_runs
from theory.moments import moments

pytestmark = pytest.mark.x64

N, M, ROUNDS, GAMMA, ETA, K = 5, 3, 4, 0.3, 0.5, 2
P = np.array([0.4, 0.1, 0.0, 0.2, 0.3])
BOUNDS = np.rint(np.cumsum(P)[:-1] * 2**32).astype(np.uint32)


def loss(x, batch):
    difference = x - batch["c"]
    return jnp.mean(jnp.einsum("bi,bij,bj->b", difference, batch["A"], difference)) / 2


def quadratic(p, seed=0, n=N, d=2):
    """Clients of one example (A_i, c_i), of which every mini-batch consists, as a problem and as a store."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, d, d))
    A, c = np.eye(d) / 2 + root @ root.swapaxes(1, 2) / 3, rng.normal(size=(n, d))
    store = in_memory((f"{i}", {"A": A[i : i + 1], "c": c[i : i + 1]}) for i in range(n))
    return theory.Problem(A, c, p), store


METHOD = lur.local_update(loss, lur.theta.fedavg(K))
START = np.array([2.0, -1.0])
COHORTS = {
    "iid": lambda t: np.asarray(sample_independent(round_key(7, t), N, M)),
    "iid with p": lambda t: np.asarray(sample_by_bounds(round_key(7, t), BOUNDS, M)),
    "full": lambda t: np.arange(N),
    "cyclic": lambda t: (t * M + np.arange(M)) % N,
}


THIN = [
    ("iid", "vmap", None),
    ("iid with p", "chunked:2", "host"),
    ("full", "vmap", None),
    ("cyclic", "chunked:2", "host"),
]


def options_of(name):
    sizes = {} if name == "full" else {"clients_per_round": M}
    return {"sampling": name.split()[0], "probabilities": P if "p" in name.split() else None, **sizes}


def run(store, seed=7, rounds=ROUNDS, **options):
    state = METHOD.init(START, GAMMA, ETA)
    return lur.run(METHOD, state, store, rounds=rounds, batch_size=1, seed=seed, **options)


@pytest.mark.parametrize(
    ("name", "layout", "data"),
    [
        case if case in THIN else pytest.param(*case, marks=pytest.mark.full)
        for name in COHORTS
        for case in ((name, "vmap", None), (name, "chunked:2", "host"))
    ],
)
def test_the_cohorts_of_a_run(name, layout, data):
    """A client that is drawn twice counts twice."""
    problem, store = quadratic(np.full(N, 1 / N))
    x, losses = START, []
    for t in range(ROUNDS):
        updates, before = [], []
        for i in COHORTS[name](t):
            A, c = np.asarray(problem.A[i]), np.asarray(problem.c[i])
            y, update = x, np.zeros(2)
            for _ in range(K):
                update, y = update + A @ (y - c), y - GAMMA * A @ (y - c)
            updates.append(update)
            before.append((x - c) @ A @ (x - c) / 2)
        x = x - ETA * np.mean(updates, axis=0)
        losses.append(before)
    state, infos = run(store, layout=layout, data=data, **options_of(name))
    np.testing.assert_allclose(state.params, x, rtol=1e-12)
    np.testing.assert_allclose(infos.client_losses, losses, rtol=1e-12)


@pytest.mark.parametrize(
    "name", ["iid with p", *(pytest.param(k, marks=pytest.mark.full) for k in COHORTS if k[-1] != "p")]
)
def test_a_grid_and_a_cut_run_have_the_same_cohorts(name):
    _, store = quadratic(np.full(N, 1 / N))
    whole, _ = run(store, layout="vmap", capacity=ROUNDS, **options_of(name))
    state = METHOD.init(START, GAMMA, ETA)
    for rounds in (1, ROUNDS - 1):
        arguments = {"rounds": rounds, "batch_size": 1, "seed": 7, "layout": "vmap", "capacity": ROUNDS}
        state, _ = lur.run(METHOD, state, store, **arguments, **options_of(name))
    assert np.asarray(state.params).tobytes() == np.asarray(whole.params).tobytes()
    states, _ = lur.run_grid(
        METHOD, START, store, client_lr=(GAMMA, 0.1), server_lr=(ETA,), seeds=(1, 7), rounds=ROUNDS, batch_size=1,
        **options_of(name),
    )  # fmt: skip
    np.testing.assert_allclose(states.params[0, 0, 1], whole.params, rtol=1e-13)


RUNS = 600
"""Runs with the seeds 0, 1, ...: the standard error of a variance is its 17th part."""
UNIFORM = np.full(N, 1 / N)
SAMPLINGS = {
    "iid": (UNIFORM, "iid", {"sampling": "iid"}),
    "iid with p": (P, "iid", {"sampling": "iid", "probabilities": P}),
    "uniform": (UNIFORM, "without replacement", {}),
}


@pytest.mark.parametrize("name", ["iid with p", "uniform", pytest.param("iid", marks=pytest.mark.full)])
def test_the_moments_of_many_runs_are_the_exact_ones(name):
    """Mean and second moments of x - x* after some rounds, within three standard errors of the sample."""
    p, sampling, options = SAMPLINGS[name]
    problem, store = quadratic(p)
    data, rates = resident(store), (GAMMA, lur.theta.fedavg(K), ETA, ROUNDS)
    found = [run(store, seed, layout="vmap", data=data, clients_per_round=M, **options)[0] for seed in range(RUNS)]
    e = np.array([state.params for state in found]) - np.asarray(theory.minimizer(problem))
    sample = np.stack([e[:, 0], e[:, 1], e[:, 0] ** 2, e[:, 0] * e[:, 1], e[:, 1] ** 2], axis=1)
    error = sample.std(axis=0, ddof=1) / np.sqrt(RUNS)

    def distances(sampling):
        exact = moments(problem, START, *rates, M=M, sampling=sampling)
        expected = [*exact.mean[-1], *np.asarray(exact.second[-1])[np.triu_indices(2)]]
        return np.abs(sample.mean(axis=0) - expected) / error

    assert distances(sampling).max() < 3
    if p is UNIFORM:  # the interval tells the samplings apart
        assert distances({"iid": "without replacement"}.get(sampling, "iid")).max() > 4


def test_full_participation_has_no_variance():
    problem, store = quadratic(UNIFORM)
    state, _ = run(store, sampling="full")
    exact = moments(problem, START, GAMMA, lur.theta.fedavg(K), ETA, ROUNDS, sampling="full")
    e = np.asarray(state.params) - np.asarray(theory.minimizer(problem))
    np.testing.assert_allclose(e, exact.mean[-1], rtol=1e-12)
    np.testing.assert_allclose(np.outer(e, e), exact.second[-1], rtol=1e-11)


def test_more_clients_than_the_store_has_may_be_drawn_with_replacement():
    _, store = quadratic(UNIFORM)
    _, infos = run(store, clients_per_round=2 * N, sampling="iid")
    assert infos.client_losses.shape == (ROUNDS, 2 * N)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampling": "random"}, "sampling must be one of uniform, iid, full, cyclic, got 'random'"),
        ({"clients_per_round": None}, "clients_per_round must be an integer >= 1, got None"),
        ({"clients_per_round": 6}, "clients_per_round must be at most the number of clients in the store, 5, got 6"),
        ({"clients_per_round": 6, "sampling": "cyclic"}, "at most the number of clients in the store, 5, got 6"),
        ({"sampling": "full"}, "clients_per_round must be None or the store's 5 clients with sampling='full', got 3"),
        ({"probabilities": P}, "probabilities must be None unless sampling='iid', got sampling='uniform'"),
        ({"sampling": "iid", "probabilities": P[:4]}, r"probabilities must be 5 numbers, .* got shape \(4,\)"),
        ({"sampling": "iid", "probabilities": P * 0.999}, "probabilities must sum to 1, got a sum of 0.999"),
        ({"sampling": "iid", "probabilities": P - 0.1 * np.eye(5)[2]}, r"finite and >= 0, got -0.1 at index 2"),
        ({"sampling": "iid", "probabilities": np.full(5, np.nan)}, "finite and >= 0, got nan at index 0"),
        ({"sampling": "iid", "probabilities": P > 0}, "probabilities must be 5 numbers, .* of dtype bool"),
    ],
)
def test_what_cannot_be_sampled_is_refused(options, message):
    _, store = quadratic(UNIFORM)
    arguments = {"clients_per_round": M, **options}
    with pytest.raises(ValueError, match=message):
        run(store, **arguments)
    with pytest.raises(ValueError, match=message):
        lur.run_grid(METHOD, START, store, client_lr=[0.1], server_lr=[0.1], rounds=1, batch_size=1, **arguments)


def test_clients_that_keep_a_state_are_not_drawn_twice():
    """Their next state would be that of one of the two draws."""
    message = "sampling must be without replacement where clients keep a state, got 'iid'"
    options = {name: value for name, value in client_state_runs.RUN.items() if name != "seed"}
    method, store = client_state_runs.METHOD, client_state_runs.store()
    with pytest.raises(ValueError, match=message):
        lur.run(method, client_state_runs.start(), store, rounds=1, sampling="iid", **options)
    with pytest.raises(ValueError, match=message):
        lur.run_grid(
            method,
            client_state_runs.START,
            store,
            client_lr=[0.1],
            server_lr=[0.1],
            rounds=1,
            sampling="iid",
            **options,
        )


def test_probabilities_in_single_precision_may_be_rounded():
    _, store = quadratic(UNIFORM)
    p = np.float32([0.1, 0.2, 0.3, 0.15, 0.25])
    assert p.astype(np.float64).sum() != 1
    run(store, clients_per_round=M, sampling="iid", probabilities=p)
