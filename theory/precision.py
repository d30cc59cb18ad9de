"""Theory computes in float64, independently of the precision of the program that calls it."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")


def float64(function: Callable[P, R]) -> Callable[P, R]:
    """Runs a function in double precision: float64 in, float64 out, without changing jax's global setting."""

    @functools.wraps(function)
    def in_float64(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return in_float64
