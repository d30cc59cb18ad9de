"""Functions compiled per settings, of which the programs used last are kept and all others are freed.

`jax.jit` keeps a program for every value of a static argument, in practice for good: 300 methods that are tried one
after the other would occupy gigabytes. Here each value of the settings has a `jax.jit` of its own, and what is dropped
is freed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial, wraps
from typing import Any

import jax

from lur.methods.by_value import by_value

KEPT_PROGRAMS = 16
"""How many values of its settings a function keeps its programs for."""


@dataclass(frozen=True)
class Settings:
    """Hashable values that compare by value and type.

    Attributes:
      key: what they are compared by (`lur.methods.by_value`).
      values: the settings.
    """

    key: Any
    values: tuple[Any, ...] = field(compare=False)


def jit_per_settings(
    number: int, options_of: Callable[..., dict[str, Any]] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator: ``function(*settings, *arrays)`` is compiled for each value of its `number` settings.

    Args:
      number: how many of the first arguments are settings; they are hashable, and those that compare equal, by value
        and type, share their programs.
      options_of: ``options_of(*settings)`` returns the options of `jax.jit`; None for no options.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @lru_cache(maxsize=KEPT_PROGRAMS)
        def compiled(settings: Settings) -> Any:
            options = {} if options_of is None else options_of(*settings.values)
            return jax.jit(partial(function, *settings.values), **options)

        @wraps(function)
        def call(*arguments: Any) -> Any:
            settings = arguments[:number]
            return compiled(Settings(by_value(settings), settings))(*arguments[number:])

        return call

    return decorate
