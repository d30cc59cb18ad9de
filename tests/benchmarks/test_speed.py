"""The quadratic benchmark does the same work in lur and in Python, and turns are interleaved."""

import pytest

from benchmarks.speed import quadratic
from benchmarks.speed.stopwatch import best_seconds


def test_lur_and_python_loops_end_at_the_same_model():
    speed = quadratic.measure(quadratic.Size(d=5, M=3, K=2, B=2), rounds=5, turns=1)
    assert speed.difference < 1e-5
    assert min(speed.lur, speed.lur_scan, speed.python) > 0


def test_turns_are_interleaved():
    order = []
    best_seconds({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, turns=3)
    assert order == ["a", "b"] * 3
    with pytest.raises(ValueError, match="turns must be >= 1"):
        best_seconds({}, turns=0)
