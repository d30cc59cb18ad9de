"""The benchmarks of time and memory: their arithmetic, and that they run."""

import numpy as np
import pytest

from benchmarks.speed import compile_time, grid, round_cost, scaling
from benchmarks.speed.workloads import WORKLOADS, Sizes


def test_exponents_of_power_laws():
    assert scaling.exponent([1, 2, 4], [3.0, 12.0, 48.0]) == pytest.approx(2)

    def power_law(task, sizes):
        return round_cost.RoundCost(*sizes, 1e-3 * sizes.M * sizes.K**0.5 * sizes.B**2, 1.0, 2**20)

    lines = []
    growths = scaling.measure("femnist", lines.append, power_law)
    assert [growth.along for growth in growths] == ["M", "K", "B"]
    assert [growth.exponent for growth in growths] == pytest.approx([1, 0.5, 2])
    assert lines[0] == "M = 4, K = 4, B = 20: 3.2 s per round, peak 1 MB"
    assert "time grows as K^0.50" in lines


def test_scaling_is_drawn_as_svg_and_png(tmp_path):
    def power_law(task, sizes):
        return round_cost.RoundCost(*sizes, float(sizes.examples), 1.0, 1)

    paths = scaling.draw("tiny", scaling.measure("tiny", measure_cost=power_law), tmp_path)
    assert [path.name for path in paths] == ["scaling-tiny.svg", "scaling-tiny.png"]
    assert all(path.stat().st_size > 1000 for path in paths)


def test_the_cost_of_a_round_is_measured_in_a_new_process():
    cost = round_cost.measure_in_new_process("tiny", Sizes(2, 3, 1), "sequential", turns=1)
    assert (cost.M, cost.K, cost.B) == (2, 3, 1)
    assert 0 < cost.seconds < cost.first  # the first turn compiles
    assert cost.memory > 2**20


def test_a_grid_as_one_program_equals_its_runs():
    times = grid.measure(rounds=3, turns=1)
    assert (times.cells, times.rounds) == (63, 3)
    # Both add the same numbers in another order. A parameter is reached through K local steps, a mean over M clients
    # and one server step per round, and each addition rounds by half an eps of a partial sum, in either program. The
    # logits' roundings are left out: they enter through the mean over clients and steps.
    additions = WORKLOADS["tiny"].sizes.K + WORKLOADS["tiny"].sizes.M + times.rounds
    assert times.difference < additions * np.finfo(np.float32).eps
    assert "63 cells, 3 rounds" in grid.report(times)


def test_failures_name_what_failed():
    with pytest.raises(RuntimeError, match=r"measuring nothing 1 1 1 sequential 3 failed: (.|\n)*KeyError"):
        round_cost.measure_in_new_process("nothing", Sizes(1, 1, 1))
    with pytest.raises(ValueError, match="--task of scaling must be one of femnist, shakespeare, tiny, got 'cifar100'"):
        scaling.measure("cifar100")
    with pytest.raises(RuntimeError, match="the first round of nothing failed"):
        compile_time.compile_seconds_in_new_process("nothing", "/nonexistent")
