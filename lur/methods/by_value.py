"""Equality of methods by their settings, so that equal methods share one compiled program."""

from functools import partial
from typing import Any


def by_value(setting: Any) -> Any:
    """Return a key that is equal for equal settings of equal type.

    Tuples compare equal regardless of their types, so two clients with equal fields would share a compiled program.
    Partials compare equal only if they are the same object, so equal ones would not.
    """
    if isinstance(setting, tuple):
        return (type(setting), *map(by_value, setting))
    if isinstance(setting, partial):
        key = (setting.func, setting.args, tuple(sorted(setting.keywords.items())))
        return by_value(key) if is_hashable(key) else setting
    return setting


def is_hashable(value: Any) -> bool:
    """Return whether the value and all of its parts have a hash."""
    try:
        hash(value)
    except TypeError:
        return False
    return True
