"""Clients and mini-batches are uniform, distinct within a round, and functions of (seed, round) alone."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lur.data.sampling import (
    client_key,
    next_in_order,
    probability_bounds,
    round_key,
    sample_by_bounds,
    sample_clients,
    sample_independent,
    shuffled_epochs,
    steps_of_epochs,
    uniform_integers,
    with_replacement,
)


def rounds(seed, N, M, R):
    return np.asarray(
        jax.jit(jax.vmap(lambda t: sample_clients(round_key(seed, t), N, M)))(np.arange(R, dtype=np.int32))
    )


@pytest.mark.parametrize(("N", "M"), [(7, 3), (50, 10), (5, 5), (3, 1), (20, 19)])
def test_distinct_within_a_round_and_uniform_over_clients(N, M):
    R = 4000
    drawn = rounds(0, N, M, R)
    assert drawn.min() >= 0
    assert drawn.max() < N
    assert all(len(set(row)) == M for row in drawn.tolist())
    counts = np.bincount(drawn.ravel(), minlength=N)
    if M < N:
        # counts of sampling without replacement vary less than multinomial ones, by (1 - M/N) N/(N-1)
        statistic = ((counts - R * M / N) ** 2 / (R * M / N)).sum() / ((1 - M / N) * N / (N - 1))
        assert 1e-4 < stats.chi2.sf(statistic, N - 1) < 1 - 1e-4


def test_every_set_is_equally_likely():
    drawn = np.sort(rounds(3, 6, 3, 8000), axis=1)
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(counts) == 20
    assert stats.chisquare(counts).pvalue > 1e-4


def test_draws_are_deterministic_and_differ_between_seeds_and_rounds():
    a, b = rounds(0, 1000, 10, 50), rounds(1, 1000, 10, 50)
    assert (a == rounds(0, 1000, 10, 50)).all()
    assert not (a == b).all(axis=1).any()
    assert len(np.unique(a, axis=0)) == 50


def test_sampling_from_hundreds_of_thousands_of_clients():
    drawn = rounds(0, 342_477, 50, 20)
    assert drawn.max() > 300_000
    assert len(np.unique(drawn)) > 990


@pytest.mark.parametrize("M", [0, 6])
def test_an_invalid_number_of_clients_is_refused(M):
    with pytest.raises(ValueError, match=f"between 1 and the store's 5 clients, got {M}"):
        sample_clients(round_key(0, 0), 5, M)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.one_of(st.integers(1, 2**31 - 1), st.integers(1, 300)))
def test_uniform_integers_are_the_upper_half_of_the_exact_product(seed, n):
    key = jax.random.key(np.uint32(seed))
    bits = np.asarray(jax.random.bits(key, (4,), np.uint32)).tolist()
    assert np.asarray(uniform_integers(key, (4,), np.int32(n))).tolist() == [u * n >> 32 for u in bits]


def test_with_replacement_is_uniform_over_the_client():
    draw = with_replacement(client_key(round_key(0, 1), 4), 13, 50, 80)
    assert draw.mask is None
    assert draw.positions.shape == (50, 80)
    assert stats.chisquare(np.bincount(np.ravel(draw.positions), minlength=13)).pvalue > 1e-4


def test_clients_draw_independently():
    keys = [client_key(round_key(0, t), i) for t in range(2) for i in range(2)]
    drawn = {tuple(np.ravel(with_replacement(key, 1000, 2, 3).positions).tolist()) for key in keys}
    assert len(drawn) == 4


@pytest.mark.parametrize(
    ("n", "E", "B", "largest"), [(5, 1, 2, 5), (5, 3, 2, 8), (1, 2, 4, 9), (8, 2, 16, 8), (7, 4, 3, 11)]
)
def test_every_epoch_has_every_example_once(n, E, B, largest):
    draw = shuffled_epochs(client_key(round_key(0, 0), 0), n, E, B, largest)
    K = steps_of_epochs(E, largest, B)
    assert draw.positions.shape == draw.mask.shape == (K, B)
    seen = np.ravel(draw.positions)[np.ravel(draw.mask)]
    assert len(seen) == E * n
    for epoch in seen.reshape(E, n):
        assert sorted(epoch.tolist()) == [*range(n)]
    full = np.asarray(draw.mask).any(axis=1).sum()
    assert full == steps_of_epochs(E, n, B)


def test_epochs_are_shuffled_uniformly():
    keys = jax.random.split(jax.random.key(0), 6000)
    draws = np.asarray(jax.jit(jax.vmap(lambda key: shuffled_epochs(key, 3, 1, 3, 4).positions[0]))(keys))
    _, counts = np.unique(draws, axis=0, return_counts=True)
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-4


def cohorts(sample, R):
    """The clients of R rounds of seed 0."""
    return np.asarray(jax.jit(jax.vmap(lambda t: sample(round_key(0, t))))(np.arange(R, dtype=np.int32)))


P = np.array([0.0, 0.25, 0.0, 0.5, 0.05, 0.2, 0.0])


@pytest.mark.parametrize("p", [None, P, np.eye(7)[0], np.eye(7)[6]])
def test_independent_clients_have_their_probabilities(p):
    """In every place of the cohort, and in pairs of places; clients with probability 0 never occur."""
    if p is None:
        drawn, p = cohorts(lambda key: sample_independent(key, 7, 3), 4000), np.full(7, 1 / 7)
    else:
        drawn = cohorts(lambda key: sample_by_bounds(key, probability_bounds(p), 3), 4000)
    assert drawn.shape == (4000, 3)
    assert drawn.dtype == np.int32
    possible = np.flatnonzero(p)
    assert set(np.unique(drawn)) == set(possible)
    pairs = [(drawn[:, k], drawn[:, (k + 1) % 3]) for k in range(3)]
    for first, second in pairs if len(possible) > 1 else ():
        assert stats.chisquare(np.bincount(first, minlength=7)[possible], 4000 * p[possible]).pvalue > 1e-4
        counts = np.bincount(7 * first + second, minlength=49)
        expected = 4000 * np.outer(p, p).ravel()
        kept = expected > 0
        assert stats.chisquare(counts[kept], expected[kept]).pvalue > 1e-4


def test_bounds_are_exact_up_to_a_bit_of_32():
    """Of 32 random bits client i has p_i 2^32 values, for hundreds of thousands of clients."""
    p = np.random.default_rng(0).dirichlet(np.full(342_477, 0.5))
    bounds = np.concatenate([[0], probability_bounds(p).astype(np.int64), [2**32]])
    found = np.pad(np.diff(bounds), (0, len(p) - len(bounds) + 1))
    # each bound is rounded to an integer, and N rounding errors of a sum in float64 are below 2^-33
    assert np.abs(found - p * 2.0**32).max() <= 1.001


@pytest.mark.parametrize("N", [1, 2, 7, 3400, 342_477, 2**30 - 35])
@pytest.mark.parametrize("t", [0, 1, 5, 10**6 + 3, 2**31 - 1])
def test_the_cyclic_order_is_exact_for_any_round(t, N):
    """tM has up to 62 bits."""
    for M in {min(N, 1), min(N, 50), min(N, 100_003)}:
        expected = (int(t) * M + np.arange(M, dtype=np.int64)) % N
        assert (np.asarray(next_in_order(np.int32(t), N, M)) == expected).all()


def test_the_cyclic_order_visits_all_clients_equally_often():
    drawn = np.stack([next_in_order(t, 7, 3) for t in range(7)])
    assert drawn.ravel().tolist() == [*range(7)] * 3
