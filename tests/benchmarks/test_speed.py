"""The benchmark runs, does the same work on both sides, and counts turns right."""

import pytest

from benchmarks.speed import quadratic
from benchmarks.speed.stopwatch import best_seconds


def test_lur_and_python_do_the_same_work():
    found = quadratic.measure(quadratic.Size(d=5, M=3, K=2, B=2), rounds=5, turns=1)
    assert found.difference < 1e-5
    assert min(found.lur, found.lur_scan, found.python) > 0


def test_turns_are_interleaved():
    order = []
    best_seconds({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, turns=3)
    assert order == ["a", "b"] * 3
    with pytest.raises(ValueError, match="turns must be >= 1"):
        best_seconds({}, turns=0)
