"""Reading ahead: the next items are made in a thread while the current one is used."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

I = TypeVar("I")
O = TypeVar("O")


def prefetched(make: Callable[[I], O], inputs: Iterable[I], depth: int = 2) -> Iterator[O]:
    """``make(input)`` for each input, in order, up to `depth` of them ahead. An error arrives with its item."""
    if depth < 1:
        raise ValueError(f"depth must be >= 1, got {depth}")
    with ThreadPoolExecutor(1) as pool:
        ahead: deque[Future[O]] = deque()
        try:
            for item in inputs:
                ahead.append(pool.submit(make, item))
                if len(ahead) > depth:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
