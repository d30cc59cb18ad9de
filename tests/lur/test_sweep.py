"""A sweep: each cell is the run it stands for, whatever the groups; those that diverge are dropped, and no other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lur.training.sweeps
from lur import tasks
from lur.parallel.layouts import Layout
from lur.training.configuration import Run
from lur.training.loop import train
from lur.training.sweeps import Sweep, bucket, choose, groups_of, next_mark, parts, way_of

TASK = tasks.load("quadratic", clients=8)
RUN = Run("quadratic", rounds=20, clients=8, clients_per_round=3, theta="1:2", evaluate_every=10, seed=3)
SWEEP = Sweep(RUN, (0.0, 0.1, 0.5), (0.1, 0.5))


def swept(sweep, memory=2**30, chunk=7, task=TASK):
    """Losses and f by cell, until each diverged, and where."""
    way = way_of(task, sweep, memory)
    losses, f, ended = {}, {}, {}
    for part in parts(task, sweep, way, chunk=chunk):
        for k, cell in enumerate(part.cells):
            if cell in ended:
                continue
            until = part.ended.get(int(cell), (part.cursor.round,))[0]
            losses.setdefault(int(cell), []).extend(part.infos.loss[: until - part.first, k])
        ended |= part.ended
        for cell, one in (part.evaluations or {}).items():
            f.setdefault(cell, []).append(one.loss)
    return losses, f, ended


@pytest.mark.parametrize(("memory", "at_once"), [(2**30, 6), (4 * 3000, 3), (0, 1)])
def test_every_cell_is_its_own_run(memory, at_once):
    """In one program, in two groups, and one after the other."""
    if at_once == 3:
        need = lur.training.sweeps.choose(jnp.zeros(20), 6, 3, 0, 10**9).why
        memory = int(4 * float(need.split()[1]) * 2**20)
    assert way_of(TASK, SWEEP, memory).at_once == at_once
    losses, f, ended = swept(SWEEP, memory)
    assert not ended
    for k, (gamma, eta) in enumerate(SWEEP.cells):
        from dataclasses import replace

        found = [*train(TASK, replace(RUN, client_lr=gamma, server_lr=eta), chunk=20)]
        np.testing.assert_allclose(losses[k], np.concatenate([at.infos.loss for at in found]), rtol=2e-5)
        np.testing.assert_allclose(f[k], [at.evaluation.loss for at in found if at.evaluation], rtol=2e-5)


def test_the_cut_changes_no_bit():
    assert swept(SWEEP, chunk=1) == swept(SWEEP, chunk=20)


DIVERGING = Sweep(RUN, (0.1, 0.5), (0.1, 30.0, 1e25, 0.5))


@pytest.mark.parametrize("memory", [2**30, 0])
def test_cells_that_diverge(memory, monkeypatch):
    sizes = []
    advance = lur.training.sweeps.advance

    def watched(algo, states, *args, **options):
        sizes.append(states.server_lr.shape[1])
        return advance(algo, states, *args, **options)

    monkeypatch.setattr(lur.training.sweeps, "advance", watched)
    losses, f, ended = swept(DIVERGING, memory)
    clean, clean_f, _ = swept(Sweep(RUN, (0.1, 0.5), (0.1, 0.5)), memory)
    assert sorted(ended) == [1, 2, 5, 6]
    assert ended[2][0] == 2
    assert "loss is" in ended[2][1]
    assert 2 < ended[1][0] < 20
    assert "above the limit 1e+06" in ended[1][1]
    for k, other in ((0, 0), (3, 1), (4, 2), (7, 3)):
        np.testing.assert_allclose(losses[k], clean[other], rtol=2e-6)
        np.testing.assert_allclose(f[k], clean_f[other], rtol=2e-6)
    assert [len(losses[k]) for k in range(8)] == [ended[k][0] if k in ended else 20 for k in range(8)]
    if memory:
        assert sizes[0] == 8
        assert sorted(set(sizes), reverse=True) == [*dict.fromkeys(sizes)] == [8, 6, 4]


def test_all_diverge():
    losses, f, ended = swept(Sweep(RUN, (0.1,), (1e25, 1e26)))
    assert sorted(ended) == [0, 1]
    assert not f
    assert all(len(losses[k]) == ended[k][0] for k in ended)


def test_divergence_seen_by_an_evaluation():
    from dataclasses import replace

    run = replace(RUN, rounds=2, evaluate_every=1)
    _, f, ended = swept(Sweep(run, (0.1,), (0.1, 1e5)))
    assert ended[1][0] == 1
    assert ended[1][1].startswith("f(x) is ")
    assert len(f[0]) == 2


def test_tied():
    assert Sweep(RUN, (0.1, 1.0), tied=True).cells == ((0.1, 0.1), (1.0, 1.0))


@pytest.mark.parametrize(
    ("rates", "says"),
    [
        (((), (0.1,)), "client_lr must be at least one number"),
        (((0.1,), ()), "server_lr must be at least one number"),
        (((0.1, 0.1), (0.1,)), "client_lr must be distinct, got 0.1, 0.1"),
        (((0.1,), (-1.0,)), "server_lr must be finite and >= 0, got -1.0"),
        (((0.1,), (float("nan"),)), "server_lr must be finite"),
    ],
)
def test_bad_rates(rates, says):
    with pytest.raises(ValueError, match=says):
        Sweep(RUN, *rates)


def test_marks_and_buckets():
    marks = [0]
    while marks[-1] < 200:
        marks.append(next_mark(marks[-1]))
    assert marks == [0, 1, 2, 4, 8, 16, 32, 64, 128, 192, 256]
    assert [bucket(n, 54) for n in (54, 42, 41, 40, 27, 21, 20, 2, 1)] == [54, 54, 41, 41, 27, 21, 21, 2, 1]
    for size in range(1, 70):
        sizes = {bucket(n, size) for n in range(1, size + 1)}
        assert len(sizes) <= 2 * size.bit_length()
        assert all(n <= bucket(n, size) <= max(n, 1.5 * n + 1) for n in range(1, size + 1))
    assert [[*group] for group in groups_of(5, 2)] == [[0, 1], [2, 3], [4]]


def test_the_way_is_chosen_by_model_and_memory():
    small, large = jax.ShapeDtypeStruct((100,), jnp.float32), jax.ShapeDtypeStruct((1000, 1000), jnp.float32)
    assert choose(small, 54, 10, 400, 2**30).at_once == 54
    few = choose(small, 54, 10, 400, 17000 * 20)
    assert few.at_once == 18  # 2 * 400 + 4 * 10 * 400 = 16,800 bytes a cell: 20 fit, three groups
    assert few.layout == Layout(None)
    assert "3 groups of 18 cells" in few.why
    assert choose(small, 54, 10, 400, 100).at_once == 1
    one = choose(large, 54, 10, 8_000_000, 2**40)
    assert one.at_once == 1
    assert "one cell after the other" in one.why
    assert choose(small, 54, 10, 400, 2**30, linear=True).at_once == 1
