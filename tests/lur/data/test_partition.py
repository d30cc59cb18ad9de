"""Partitions: every example occurs at most once, the distribution of Pachinko allocation, invalid arguments."""

import numpy as np
import pytest

from lur.data import partition

COARSE, FINE = np.repeat(np.arange(20), 50), np.repeat(np.arange(100), 10)


def rng(seed=0):
    return np.random.default_rng(seed)


def is_partition(parts, n):
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))


def test_by_column_groups_by_value_and_keeps_order():
    parts = partition.by_column(np.array(["b", "a", "b", "c", "a"]))
    assert [part.tolist() for part in parts] == [[1, 4], [0, 2], [3]]
    assert all(part.dtype == np.int64 for part in parts)


@pytest.mark.parametrize(("n", "clients"), [(10, 3), (7, 7), (100, 1)])
def test_iid_partitions_all_examples_evenly(n, clients):
    parts = partition.iid(rng(), n, clients)
    assert is_partition(parts, n)
    assert {len(part) for part in parts} <= {n // clients, n // clients + 1}


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 1.0, 1e6])
def test_dirichlet_partitions_all_examples(alpha):
    labels = np.repeat(np.arange(5), 200)
    parts = partition.dirichlet(rng(), labels, 8, alpha)
    assert len(parts) == 8
    assert all(part.dtype == np.int64 for part in parts)
    assert is_partition(parts, len(labels))


def test_dirichlet_interpolates_between_one_client_per_label_and_iid():
    labels = np.repeat(np.arange(5), 200)
    held = [
        np.mean([len(np.unique(labels[part])) for part in partition.dirichlet(rng(), labels, 5, alpha) if len(part)])
        for alpha in (1e-3, 0.3, 1e6)
    ]
    assert held[0] < held[1] < held[2] == 5
    iid = partition.dirichlet(rng(), labels, 5, 1e6)
    assert {len(part) for part in iid} <= set(range(195, 206))


def test_log_dirichlet_has_the_moments_of_the_dirichlet():
    for a in (0.1, 10.0):
        log_p = partition.log_dirichlet(rng(), a, (20_000, 5))
        p = np.exp(log_p - log_p.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        np.testing.assert_allclose(p.mean(0), 0.2, atol=0.01)
        np.testing.assert_allclose(p.var(0), 0.2 * 0.8 / (5 * a + 1), rtol=0.06)


def test_log_dirichlet_does_not_underflow():
    assert np.isfinite(partition.log_dirichlet(rng(), 1e-4, (1000,))).all()


def test_pachinko_with_the_paper_s_sizes_partitions_all_examples():
    coarse, fine = np.repeat(np.arange(20), 500), np.repeat(np.arange(100), 100)
    parts = partition.pachinko(rng(), coarse, fine, 100, 100)
    assert all(part.shape == (100,) and part.dtype == np.int64 for part in parts)
    assert is_partition(parts, 10_000)


def test_pachinko_draws_no_example_twice():
    parts = partition.pachinko(rng(), COARSE, FINE, 7, 50)
    taken = np.concatenate(parts)
    assert len(taken) == len(set(taken.tolist())) == 350


def test_pachinko_is_determined_by_its_generator():
    first, again, other = (partition.pachinko(rng(seed), COARSE, FINE, 5, 20) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_pachinko_removes_exhausted_labels():
    """A client whose weight is on one label exhausts it, then its siblings, then the next coarse label."""
    parts = partition.pachinko(rng(3), COARSE, FINE, 1, 1000, alpha=1e-6, beta=1e-6)
    coarse, fine = COARSE[parts[0]], FINE[parts[0]]
    assert is_partition(parts, 1000)
    assert (np.diff(coarse) != 0).sum() == 19  # each coarse label is exhausted before the next one
    assert (np.diff(fine) != 0).sum() == 99


def test_pachinko_accepts_unequal_pools_and_any_labels():
    fine = np.array(["oak", "elm", "oak", "cat", "cat", "dog", "oak"])
    coarse = np.where(np.isin(fine, ["oak", "elm"]), "tree", "pet")
    assert is_partition(partition.pachinko(rng(), coarse, fine, 7, 1), 7)


def test_pachinko_marginals_are_dirichlet_multinomial():
    """With large pools, E |p|^2 = (a + 1) / (C a + 1) over coarse labels, and likewise over fine labels."""
    coarse, fine = np.repeat(np.arange(4), 50_000), np.repeat(np.arange(8), 25_000)
    alpha, beta, n = 0.5, 2.0, 200
    parts = partition.pachinko(rng(), coarse, fine, 400, n, alpha, beta)
    counts = np.stack([np.bincount(coarse[part], minlength=4) for part in parts])
    np.testing.assert_allclose(counts.mean(0) / n, 0.25, atol=0.05)
    collisions = (counts * (counts - 1)).sum(1).mean() / (
        n * (n - 1)
    )  # the probability that two draws of a client agree
    np.testing.assert_allclose(collisions, (alpha + 1) / (4 * alpha + 1), rtol=0.06)
    fines = np.stack([np.bincount(fine[part], minlength=8) for part in parts]).reshape(400, 4, 2)
    total = fines.sum(2)
    within = (fines * (fines - 1)).sum(2)[total > 1] / (total * (total - 1))[total > 1]
    np.testing.assert_allclose(within.mean(), (beta + 1) / (2 * beta + 1), rtol=0.06)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: partition.by_column([]), "column must be one-dimensional and not empty"),
        (lambda: partition.by_column(np.zeros((2, 2))), r"column must .* got shape \(2, 2\)"),
        (lambda: partition.iid(rng(), 0, 1), "n must be an integer >= 1, got 0"),
        (lambda: partition.iid(rng(), 3, 4), "clients must be at most n = 3"),
        (lambda: partition.iid(rng(), 3, 1.5), "clients must be an integer >= 1, got 1.5"),
        (lambda: partition.dirichlet(rng(), FINE, 0, 1.0), "clients must be an integer >= 1, got 0"),
        (lambda: partition.dirichlet(rng(), FINE, 2, 0.0), "alpha must be finite and > 0, got 0.0"),
        (lambda: partition.dirichlet(rng(), FINE, 2, float("nan")), "alpha must be finite and > 0, got nan"),
        (lambda: partition.pachinko(rng(), COARSE, FINE[:-1], 1, 1), "same examples, got lengths 1000 and 999"),
        (lambda: partition.pachinko(rng(), COARSE, FINE, 11, 100), r"at most 1000 examples, got 11 \* 100"),
        (lambda: partition.pachinko(rng(), COARSE, FINE, 1, 0), "per_client must be an integer >= 1, got 0"),
        (lambda: partition.pachinko(rng(), COARSE, FINE, 1, 1, alpha=-1.0), "alpha must be finite and > 0"),
        (lambda: partition.pachinko(rng(), COARSE, FINE, 1, 1, beta=float("inf")), "beta must be finite and > 0"),
        (lambda: partition.pachinko(rng(), [0, 1], [5, 5], 1, 1), "two coarse labels for fine label 5"),
    ],
)
def test_invalid_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
