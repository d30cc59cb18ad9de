"""The seven tasks by name. A task's module is imported when it is asked for."""

import difflib
from importlib import import_module
from typing import Any

from lur.tasks.task import Outcomes as Outcomes
from lur.tasks.task import Settings as Settings
from lur.tasks.task import Task as Task

NAMES = ("femnist", "cifar100", "shakespeare", "stackoverflow_nwp", "stackoverflow_tp", "quadratic", "digits")


def load(name: str, **options: Any) -> Task:
    """The task of this name: ``load("femnist", clients=20, heterogeneity=2.0)``.

    All take `clients`, `heterogeneity`, `seed` (of the built-in data) and `dtype`; all but quadratic take `store`.
    """
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.3)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"task must be one of {', '.join(NAMES)}, got {name!r}{hint}")
    return import_module(f"lur.tasks.{name}").task(**options)
