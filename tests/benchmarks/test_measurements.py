"""What measures time and memory: its arithmetic, and that it runs."""

import pytest

from benchmarks.speed import first_round, grid, point, scaling
from benchmarks.speed.work import Sizes


def test_exponents_of_known_laws():
    assert scaling.exponent([1, 2, 4], [3.0, 12.0, 48.0]) == pytest.approx(2)

    def law(task, sizes):
        return point.Point(*sizes, 1e-3 * sizes.M * sizes.K**0.5 * sizes.B**2, 1.0, 2**20)

    lines = []
    found = scaling.measure("femnist", lines.append, law)
    assert [growth.along for growth in found] == ["M", "K", "B"]
    assert [growth.exponent for growth in found] == pytest.approx([1, 0.5, 2])
    assert lines[0] == "M = 4, K = 4, B = 20: 3.2 s a round, peak 1 MB"
    assert "time grows as K^0.50" in lines


def test_the_figure(tmp_path):
    def law(task, sizes):
        return point.Point(*sizes, float(sizes.examples), 1.0, 1)

    paths = scaling.draw("tiny", scaling.measure("tiny", take=law), tmp_path)
    assert [path.name for path in paths] == ["scaling-tiny.svg", "scaling-tiny.png"]
    assert all(path.stat().st_size > 1000 for path in paths)


def test_a_point():
    found = point.apart("tiny", Sizes(2, 3, 1), "sequential", turns=1)
    assert (found.M, found.K, found.B) == (2, 3, 1)
    assert 0 < found.seconds < found.first  # the first turn compiles
    assert found.memory > 2**20


def test_a_grid_is_its_runs():
    found = grid.measure(rounds=3, turns=1)
    assert (found.cells, found.rounds) == (63, 3)
    assert found.difference < 1e-6
    assert "63 cells, 3 rounds" in grid.report(found)


def test_failures_are_told():
    with pytest.raises(RuntimeError, match=r"measuring nothing 1 1 1 sequential 3 failed: (.|\n)*KeyError"):
        point.apart("nothing", Sizes(1, 1, 1))
    with pytest.raises(ValueError, match="--task of scaling must be one of femnist, shakespeare, tiny, got 'cifar100'"):
        scaling.measure("cifar100")
    with pytest.raises(RuntimeError, match="the first round of nothing failed"):
        first_round.apart("nothing", "/nonexistent")
