"""Clip, noise, quantisation and top-k with error feedback: numpy loops, moments, every layout, bad input."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
from lur.data.sampling import round_key, sample_clients
from lur.engine.fast.choice import choose_form
from lur.engine.grid import run_grid
from lur.methods import aggregation, clipped, quantized, scaffold, top_k, with_noise
from lur.methods.method import Batches, ClientOutput, Method
from lur.methods.quantization import quantize
from lur.methods.server import InitServer, ServerUpdate
from lur.methods.sparsification import largest_entries
from tests.lur import numpy_loop
from tests.lur.methods import aggregation_runs
from tests.lur.methods.aggregation_runs import M, N, all_of_them, check, check_grid, numbers
from tests.lur.methods.oracles import clip as clip_oracle
from tests.lur.methods.oracles import top_k as top_k_oracle
from tests.lur.numpy_loop import gradient, loss, random_store

ROOT = Path(__file__).resolve().parents[3]
SIZES, D, B, K, ROUNDS, SEED, GAMMA, ETA = (1, 4, 2, 7, 3, 5), 5, 2, 4, 20, 5, 0.1, 0.7
START = np.linspace(-1, 2, D)
FEDAVG = lur.local_update(loss, lur.theta.fedavg(K), send="delta")
PRECISIONS = [pytest.param(np.float64, 1e-12, marks=pytest.mark.x64), (np.float32, 1e-6)]


def run_twenty_rounds(method, dtype, **options):
    """The final state of `lur.run`, and its rounds for an oracle."""
    store = random_store(0, SIZES, D, dtype)
    state, infos = lur.run(
        method, method.init(START.astype(dtype), GAMMA, ETA, clients=N), store, rounds=ROUNDS, clients_per_round=M,
        batch_size=B, seed=SEED, **options,
    )  # fmt: skip
    rounds = []
    for t in range(ROUNDS):
        key = round_key(SEED, t)
        cohort = [int(i) for i in sample_clients(key, N, M)]
        own = {i: numpy_loop.own_batches(store, key, i, K, B, None) for i in cohort}
        rounds.append({i: [tuple(v.astype(np.float64) for v in batch) for batch in own[i]] for i in cohort})
    return state, infos, rounds


def largest_difference(found, expected):
    found, expected = np.asarray(found, np.float64), np.asarray(expected)
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_twenty_rounds_with_a_clip_are_those_of_the_paper(dtype, tolerance):
    clip = 0.35
    state, infos, rounds = run_twenty_rounds(clipped(FEDAVG, clip), dtype, layout="chunked:2")
    x, norms = clip_oracle.run(START, gradient, rounds, local_rate=GAMMA, global_rate=ETA, clip=clip)
    assert 0.2 < np.mean(norms > clip) < 0.8  # some are clipped, some are not
    assert largest_difference(state.params, x) <= tolerance
    np.testing.assert_allclose(infos.client_norms.reshape(-1), np.minimum(norms, clip), rtol=100 * tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_twenty_rounds_with_error_feedback_are_those_of_the_paper(dtype, tolerance):
    state, _, rounds = run_twenty_rounds(top_k(FEDAVG, 0.4), dtype, layout="sequential")
    x, memories = top_k_oracle.run(START, gradient, rounds, N=N, local_rate=GAMMA, global_rate=ETA, k=2)
    assert largest_difference(state.params, x) <= tolerance
    assert largest_difference(state.clients.error, memories) <= tolerance


def test_a_large_clip_and_a_whole_fraction_change_nothing():
    rng = np.random.default_rng(0)
    batches = {"x": rng.normal(size=(M, K, B, D)).astype(np.float32), "y": np.ones((M, K, B), np.float32)}
    models = [
        method.round(method.init(START.astype(np.float32), GAMMA, ETA, clients=N), batches)[0].params
        for method in (FEDAVG, clipped(FEDAVG, 1e6), top_k(FEDAVG, 1))
    ]
    np.testing.assert_array_equal(models, [models[0]] * 3)


def test_the_largest_entries_are_chosen_among_all_arrays():
    tree = {"a": jnp.array([[1.0, -5.0], [0.0, 3.0]]), "b": jnp.bfloat16(-4.0), "c": jnp.array([3.0, 2.0])}
    sent = largest_entries(tree, 3 / 7)
    expected = {"a": [[0.0, -5.0], [0.0, 3.0]], "b": -4.0, "c": [0.0, 0.0]}  # of the two 3.0 the first
    for name, leaf in expected.items():
        np.testing.assert_array_equal(np.asarray(sent[name], np.float32), leaf)


@pytest.mark.parametrize(("fraction", "n", "k"), [(0.07, 100, 7), (0.01, 5, 1), (0.5, 5, 3), (1, 5, 5)])
def test_the_number_of_entries_is_that_of_the_decimal_fraction(fraction, n, k):
    assert np.count_nonzero(largest_entries(jnp.ones(n), fraction)) == k


# the client of a large model, which sends the same update in every round


def sends(update):
    def client_update(broadcast, client_state, batches):
        return ClientOutput(update, client_state, jnp.zeros(()))

    return Method(InitServer(optax.sgd, None, K), client_update, ServerUpdate(optax.sgd, None), K)


def mean_updates(method, params, rounds=1, cohort=4):
    """The mean updates of some rounds: the negative steps of SGD with rate 1."""
    state, found = method.init(params, 0.1, 1.0), []
    for _ in range(rounds):
        before = state.params
        state, _ = method.round(state, {"x": np.zeros((cohort, K, B))})
        found.append(jax.tree.map(lambda old, new: np.asarray(old - new, np.float64), before, state.params))
    return found


@pytest.mark.x64
def test_a_clip_is_of_the_whole_update():
    update = {"w": jnp.array([3.0, 0.0]), "c": jnp.array([[4.0]])}
    (found,) = mean_updates(clipped(sends(update), 0.5), jax.tree.map(jnp.zeros_like, update))
    np.testing.assert_allclose([*found["w"], found["c"][0, 0]], [0.3, 0.0, 0.4], rtol=1e-15)
    (found,) = mean_updates(clipped(sends(jax.tree.map(jnp.zeros_like, update)), 0.5), update)
    assert not np.any(found["w"])  # a zero update stays zero, and is not nan


@pytest.mark.parametrize("cohort", [1, 4])
def test_the_noise_has_the_planned_variance(cohort):
    """Its variance, mean and correlations are within 3 standard errors, over arrays and rounds of 40,000 numbers."""
    n, clip, z = 20_000, 0.7, 1.3
    zeros = {"a": jnp.zeros(n), "b": jnp.zeros((n // 2, 2))}
    method = with_noise(clipped(sends(zeros), clip), z, seed=1)
    rounds = mean_updates(method, zeros, rounds=2, cohort=cohort)
    draws = [leaf.reshape(-1) / (z * clip / cohort) for tree in rounds for leaf in (tree["a"], tree["b"])]
    everything = np.concatenate(draws)
    assert abs(everything.var() - 1) < 3 * np.sqrt(2 / everything.size)
    assert abs(everything.mean()) < 3 / np.sqrt(everything.size)
    correlations = [np.mean(one * other) for i, one in enumerate(draws) for other in draws[:i]]
    assert len(correlations) == 6
    assert np.abs(correlations).max() < 3 / np.sqrt(n)


@pytest.mark.x64
def test_noise_is_added_to_the_clipped_mean_and_its_seed_matters():
    clip, z, update = 0.5, 2.0, jnp.array([3.0, 4.0])
    bases = mean_updates(with_noise(clipped(sends(0 * update), clip), z, seed=7), 0 * update, rounds=2)
    sums = mean_updates(with_noise(clipped(sends(update), clip), z, seed=7), 0 * update, rounds=2)
    np.testing.assert_allclose(np.subtract(sums, bases), [[0.3, 0.4]] * 2, rtol=1e-13)
    (other,) = mean_updates(with_noise(clipped(sends(0 * update), clip), z, seed=8), 0 * update)
    assert np.abs(other - bases[0]).min() > 1e-3


# quantisation: moments over 40,000 draws of one vector


@pytest.mark.x64
@pytest.mark.parametrize("bits", [1, 2, 4])
def test_quantisation_is_unbiased_and_as_noisy_as_qsgd(bits):
    """The mean, and the variance of every entry from its two neighbouring levels, within 5 standard errors of both."""
    s, draws = 2**bits - 1, 40_000
    v = np.array([[0.5, -1.7, 0.0], [2.0, 0.01, -0.3]])
    Q = np.asarray(jax.vmap(lambda key: quantize(key, jnp.asarray(v), s))(jax.random.split(jax.random.key(0), draws)))
    norm = np.linalg.norm(v)
    levels = np.abs(Q) * s / norm
    np.testing.assert_allclose(levels, np.round(levels), atol=1e-12)
    assert levels.max() <= s
    r = np.abs(v) * s / norm
    p = r - np.floor(r)
    variance = (norm / s) ** 2 * p * (1 - p)
    assert (np.abs(Q.mean(0) - v) <= 5 * np.sqrt(variance / draws) + 1e-15).all()
    fourth = (norm / s) ** 4 * p * (1 - p) * (1 - 3 * p * (1 - p))  # of a Bernoulli number about its mean
    error = np.sqrt(np.maximum(fourth - variance**2, 0) / draws)
    assert (np.abs(((Q - v) ** 2).mean(0) - variance) <= 5 * error + 1e-12).all()
    bound = min(v.size / s**2, np.sqrt(v.size) / s) * norm**2
    assert variance.sum() < ((Q - v) ** 2).sum((1, 2)).mean() + 5 * np.sqrt((error**2).sum()) < 1.2 * bound


def test_zeros_are_quantised_to_zeros():
    assert not np.any(quantize(jax.random.key(0), jnp.zeros(3), 7))


@pytest.mark.x64
def test_clients_and_rounds_quantise_independently():
    """With equal updates the mean over M clients has 1/M of the variance, and rounds differ."""
    v, cohort = jnp.linspace(-1, 1, 4000), 4
    rounds = mean_updates(quantized(sends({"w": v, "v": v}), 1), {"w": 0 * v, "v": 0 * v}, rounds=2, cohort=cohort)
    norm = float(jnp.linalg.norm(v))
    p = np.abs(np.asarray(v)) / norm
    variance = (norm**2 * p * (1 - p)).sum() / cohort
    errors = [np.asarray(tree[name] - v) for tree in rounds for name in ("w", "v")]
    squares = [(error**2).sum() for error in errors]
    # the fourth moment of the mean of M Bernoulli errors is below 3 variance^2 + norm^2 variance / M^2 for each entry
    each = norm**2 * p * (1 - p) / cohort
    deviation = np.sqrt((2 * each**2 + norm**2 * each / cohort**2).sum())
    assert np.abs(np.array(squares) - variance).max() < 4 * deviation
    overlaps = [abs((one * other).sum()) for i, one in enumerate(errors) for other in errors[:i]]
    assert max(overlaps) < 4 * np.sqrt((each**2).sum())


def test_a_client_that_draws_has_another_key_than_its_quantisation():
    seen = []

    def client_update(broadcast, client_state, batches):
        seen.append(batches.key)
        return ClientOutput(broadcast.params, client_state, jnp.zeros(()))

    method = quantized(sends(jnp.ones(2))._replace(client_update=client_update), 2)
    key = jax.random.key(3)
    method.client_update(lur.Broadcast(jnp.ones(2), jnp.float32(0.1)), (), Batches({"x": jnp.ones(1)}, key=key))
    assert not np.array_equal(jax.random.key_data(seen[0]), jax.random.key_data(key))
    with pytest.raises(ValueError, match="batches must have the key"):
        method.client(np.ones(2, np.float32), {"x": np.ones((K, B), np.float32)}, 0.1)


# every layout


@pytest.mark.x64
@pytest.mark.parametrize(
    "layout",
    ["chunked:2", pytest.param("vmap", marks=pytest.mark.full), pytest.param("sequential", marks=pytest.mark.full)],
)
def test_layouts_host_stores_and_cut_runs_have_the_same_numbers(layout):
    expected = numbers(aggregation_runs.run())
    check(aggregation_runs.run(layout=layout, data="host"), expected)
    method = all_of_them()
    cut = aggregation_runs.start(method)
    for rounds in (1, aggregation_runs.ROUNDS - 1):
        options = aggregation_runs.RUN | {"rounds": rounds, "capacity": aggregation_runs.ROUNDS}
        cut, _ = lur.run(method, cut, aggregation_runs.store(), seed=aggregation_runs.SEED, layout=layout, **options)
    check(cut, expected)
    check_grid(expected, layout=layout)


@pytest.mark.full
@pytest.mark.x64
def test_two_devices_and_two_processes_have_the_same_numbers(tmp_path):
    path = tmp_path / "one device.npz"
    np.savez(path, **numbers(aggregation_runs.run()))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    calls = [("process", path, port, 0), ("process", path, port, 1), ("devices", path)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.lur.methods.aggregation_runs", *map(str, call)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env={**os.environ, "JAX_NUM_CPU_DEVICES": "2" if call[0] == "devices" else "1", "JAX_PLATFORMS": "cpu"},
        )
        for call in calls
    ]
    outputs = [process.communicate()[0] for process in processes]
    assert all(output.endswith("agreed\n") for output in outputs), "\n".join(outputs)[-3000:]


@pytest.mark.x64
def test_the_pair_of_scaffold_is_clipped_and_sparsified_as_one():
    inner = scaffold(loss, K)
    store, options = random_store(0, SIZES, D), {"rounds": 3, "clients_per_round": M, "batch_size": B}
    small = clipped(inner, 1e-3)
    _, infos = lur.run(small, small.init(START, GAMMA, ETA, clients=N), store, **options)
    np.testing.assert_allclose(infos.client_norms, 1e-3, rtol=1e-12)
    sparse = top_k(inner, 0.3, update_like=lambda params: (params, params))
    state, _ = lur.run(sparse, sparse.init(START, GAMMA, ETA, clients=N), store, **options)
    assert [leaf.shape for leaf in state.clients.error] == [(N, D)] * 2
    wrong = top_k(inner, 0.3)
    with pytest.raises(ValueError, match="update_like must be shaped like what the clients send"):
        lur.run(wrong, wrong.init(START, GAMMA, ETA, clients=N), store, **options)


# bad input


def test_noise_needs_a_clip_that_is_last():
    for method in (FEDAVG, quantized(clipped(FEDAVG, 1.0), 4), top_k(clipped(FEDAVG, 1.0), 0.1)):
        with pytest.raises(ValueError, match=r"method must be clipped\(method, clip\)"):
            with_noise(method, 1.0)
    noisy = with_noise(clipped(FEDAVG, 1.0), 1.0)
    for wrap in (lambda m: clipped(m, 1.0), lambda m: quantized(m, 4), lambda m: top_k(m, 0.1)):
        with pytest.raises(ValueError, match="method must be without noise"):
            wrap(noisy)
    with pytest.raises(ValueError, match="method must be without noise"):
        with_noise(noisy, 1.0)
    with pytest.raises(ValueError, match="one exchange per round"):
        with_noise(clipped(FEDAVG._replace(prepare=lambda *_: ()), 1.0), 1.0)


@pytest.mark.parametrize(
    ("wrap", "says"),
    [
        (lambda m: clipped(m, 0), "clip must be a number > 0, got 0"),
        (lambda m: clipped(m, -0.5), "clip must be a number > 0, got -0.5"),
        (lambda m: clipped(m, float("nan")), "clip must be a number > 0, got nan"),
        (lambda m: clipped(m, "1"), "clip must be a number > 0, got '1'"),
        (lambda m: with_noise(clipped(m, 1.0), 0), "noise_multiplier must be a number > 0, got 0"),
        (lambda m: with_noise(clipped(m, 1.0), -1.0), "noise_multiplier must be a number > 0, got -1.0"),
        (lambda m: with_noise(clipped(m, 1.0), 1.0, seed=-1), "seed must be an integer from 0 to"),
        (lambda m: quantized(m, 0), "bits must be an integer >= 1, got 0"),
        (lambda m: quantized(m, 2.5), "bits must be an integer >= 1, got 2.5"),
        (lambda m: quantized(m, 17), "bits must be at most 16, .* got 17"),
        (lambda m: top_k(m, 0), r"fraction must be a number in \(0, 1\], got 0"),
        (lambda m: top_k(m, 1.01), r"fraction must be a number in \(0, 1\], got 1.01"),
        (lambda m: top_k(m, float("nan")), r"fraction must be a number in \(0, 1\], got nan"),
        (lambda m: top_k(m, True), r"fraction must be a number in \(0, 1\], got True"),
    ],
)
def test_settings_out_of_range_are_refused(wrap, says):
    with pytest.raises(ValueError, match=says):
        wrap(FEDAVG)


def test_weights_are_refused_with_noise():
    method = with_noise(clipped(FEDAVG, 1.0), 1.0)
    store, options = random_store(0, SIZES, D, np.float32), {"rounds": 1, "clients_per_round": M, "batch_size": B}
    start = START.astype(np.float32)
    with pytest.raises(ValueError, match="weighting must be 'uniform' with this method"):
        lur.run(method, method.init(start, GAMMA, ETA), store, weighting="examples", **options)
    with pytest.raises(ValueError, match="weighting must be 'uniform' with this method"):
        run_grid(method, start, store, client_lr=[GAMMA], server_lr=[ETA], weighting="examples", **options)
    batches = {"x": np.zeros((2, K, B, D), np.float32), "y": np.zeros((2, K, B), np.float32)}
    with pytest.raises(ValueError, match="weights must be None with this method"):
        method.round(method.init(start, GAMMA, ETA), batches, weights=np.ones(2))


def test_a_rewrite_is_refused_and_equal_methods_share_a_program():
    rewrite = FEDAVG._replace(cohort_update=lambda *_: None)
    for wrap in (lambda m: clipped(m, 1.0), lambda m: quantized(m, 4), lambda m: top_k(m, 0.1)):
        with pytest.raises(ValueError, match="reference form"):
            wrap(rewrite)
        assert wrap(FEDAVG) == wrap(FEDAVG)
        assert hash(wrap(FEDAVG)) == hash(wrap(FEDAVG))
        assert choose_form(wrap(FEDAVG), START, 0.1).name == "reference"
    assert clipped(FEDAVG, 1.0) != clipped(FEDAVG, 2.0)
    assert aggregation.clipped is clipped
