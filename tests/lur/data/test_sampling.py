"""Clients and mini-batches are uniform, distinct within a round, and functions of (seed, round) alone."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lur.data.sampling import (
    client_key,
    round_key,
    sample_clients,
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
