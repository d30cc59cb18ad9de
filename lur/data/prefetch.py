"""Reading ahead: a thread computes the next items while the current one is used."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

I = TypeVar("I")
O = TypeVar("O")


def prefetched(make: Callable[[I], O], inputs: Iterable[I], depth: int = 2) -> Iterator[O]:
    """Yield ``make(input)`` for each input, in order, computed in a thread.

    Args:
      make: computes one item; if it raises, the error is raised where the item would be yielded.
      inputs: the inputs, one per item.
      depth: the largest number of items computed ahead of the one in use.
    """
    if depth < 1:
        raise ValueError(f"depth must be >= 1, got {depth}")
    with ThreadPoolExecutor(1) as pool:
        pending: deque[Future[O]] = deque()
        try:
            for item in inputs:
                pending.append(pool.submit(make, item))
                if len(pending) > depth:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
