"""Timing on a noisy machine: contenders take turns, and the fastest turn of each counts."""

import time
from collections.abc import Callable


def best_seconds(contenders: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """The least wall-clock seconds of each contender over `turns` interleaved turns.

    The caller runs each contender once before, so that compilation is not timed.
    """
    if turns < 1:
        raise ValueError(f"turns must be >= 1, got {turns}")
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(turns):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best
