"""A sweep: each cell is the run it stands for, whatever the groups; those that diverge are dropped, and no other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lur.training.sweeps
from lur import tasks
from lur.parallel.layouts import Layout
from lur.training.configuration import RunConfig
from lur.training.experiment import resolve
from lur.training.loop import train
from lur.training.sweep_plan import SweepConfig, choose_group_size, plan_sweep
from lur.training.sweeps import next_compaction, padded_size, run_sweep

TASK = tasks.load("quadratic", clients=8)
RUN = RunConfig("quadratic", rounds=20, clients=8, clients_per_round=3, theta="1:2", evaluate_every=10, seed=3)
SWEEP = SweepConfig(RUN, (0.0, 0.1, 0.5), (0.1, 0.5))


def swept(sweep, memory=2**30, chunk=7, task=TASK):
    """Losses and f by cell, until each diverged, and where."""
    losses, f, diverged = {}, {}, {}
    for progress in run_sweep(plan_sweep(sweep, task, memory), chunk=chunk):
        for k, cell in enumerate(progress.cells):
            if cell in diverged:
                continue
            last = progress.diverged.get(int(cell), (progress.position.round,))[0]
            losses.setdefault(int(cell), []).extend(progress.infos.loss[: last - progress.rounds_before, k])
        diverged |= progress.diverged
        for cell, evaluation in (progress.evaluations or {}).items():
            f.setdefault(cell, []).append(evaluation.loss)
    return losses, f, diverged


@pytest.mark.parametrize(("memory", "group_size"), [(2**30, 6), (4 * 3000, 3), (0, 1)])
def test_every_cell_is_its_own_run(memory, group_size):
    """In one program, in two groups, and one after another."""
    if group_size == 3:
        sizes = {"cells": 6, "concurrent_clients": 3, "state_bytes": 0, "memory": 10**9}
        need = choose_group_size(jnp.zeros(20), **sizes)[1]
        memory = int(4 * float(need.split()[1]) * 2**20)
    assert plan_sweep(SWEEP, TASK, memory).cells_per_group == group_size
    losses, f, ended = swept(SWEEP, memory)
    assert not ended
    for k, (gamma, eta) in enumerate(SWEEP.cells):
        from dataclasses import replace

        found = [*train(resolve(replace(RUN, client_lr=gamma, server_lr=eta), TASK), chunk=20)]
        np.testing.assert_allclose(losses[k], np.concatenate([at.infos.loss for at in found]), rtol=2e-5)
        np.testing.assert_allclose(f[k], [at.evaluation.loss for at in found if at.evaluation], rtol=2e-5)


def test_the_cut_changes_no_bit():
    assert swept(SWEEP, chunk=1) == swept(SWEEP, chunk=20)


DIVERGING = SweepConfig(RUN, (0.1, 0.5), (0.1, 30.0, 1e25, 0.5))


@pytest.mark.parametrize("memory", [2**30, 0])
def test_cells_that_diverge(memory, monkeypatch):
    sizes = []
    advance = lur.training.sweeps.advance_grid

    def watched(algo, states, *args, **options):
        sizes.append(states.server_lr.shape[1])
        return advance(algo, states, *args, **options)

    monkeypatch.setattr(lur.training.sweeps, "advance_grid", watched)
    losses, f, ended = swept(DIVERGING, memory)
    clean, clean_f, _ = swept(SweepConfig(RUN, (0.1, 0.5), (0.1, 0.5)), memory)
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
    losses, f, ended = swept(SweepConfig(RUN, (0.1,), (1e25, 1e26)))
    assert sorted(ended) == [0, 1]
    assert not f
    assert all(len(losses[k]) == ended[k][0] for k in ended)


def test_divergence_seen_by_an_evaluation():
    from dataclasses import replace

    run = replace(RUN, rounds=2, evaluate_every=1)
    _, f, ended = swept(SweepConfig(run, (0.1,), (0.1, 1e5)))
    assert ended[1][0] == 1
    assert ended[1][1].startswith("f(x) is ")
    assert len(f[0]) == 2


def test_tied():
    assert SweepConfig(RUN, (0.1, 1.0), tied=True).cells == ((0.1, 0.1), (1.0, 1.0))


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
        SweepConfig(RUN, *rates)


def test_marks_and_buckets():
    marks = [0]
    while marks[-1] < 200:
        marks.append(next_compaction(marks[-1]))
    assert marks == [0, 1, 2, 4, 8, 16, 32, 64, 128, 192, 256]
    assert [padded_size(n, 54) for n in (54, 42, 41, 40, 27, 21, 20, 2, 1)] == [54, 54, 41, 41, 27, 21, 21, 2, 1]
    for size in range(1, 70):
        sizes = {padded_size(n, size) for n in range(1, size + 1)}
        assert len(sizes) <= 2 * size.bit_length()
        assert all(n <= padded_size(n, size) <= max(n, 1.5 * n + 1) for n in range(1, size + 1))
    plan = plan_sweep(SweepConfig(RUN, (0.1, 0.2, 0.3, 0.4, 0.5), tied=True), TASK)._replace(cells_per_group=2)
    assert [[*group] for group in plan.groups] == [[0, 1], [2, 3], [4]]


def test_the_group_size_depends_on_model_and_memory():
    small, large = jax.ShapeDtypeStruct((100,), jnp.float32), jax.ShapeDtypeStruct((1000, 1000), jnp.float32)

    def size(params, memory, state_bytes=400, **options):
        return choose_group_size(
            params, cells=54, concurrent_clients=10, state_bytes=state_bytes, memory=memory, **options
        )

    assert size(small, 2**30)[0] == 54
    few, reason = size(small, 17000 * 20)
    assert few == 18  # 2 * 400 + 4 * 10 * 400 = 16,800 bytes a cell: 20 fit, three groups
    assert "3 groups of 18 cells" in reason
    assert size(small, 100)[0] == 1
    single, reason = size(large, 2**40, state_bytes=8_000_000)
    assert single == 1
    assert "one cell after another" in reason
    assert size(small, 2**30, linear=True)[0] == 1


def test_the_layout_of_a_group_and_of_a_single_cell():
    plan = plan_sweep(SWEEP, TASK, 2**30)
    assert plan.layout == plan.grid_layout == Layout(None)
    single = plan._replace(cells_per_group=1)
    assert single.layout == plan.experiment.layout
