"""The seven tasks by name. Loading a task imports its module; importing `lur.tasks` imports no model and no reader."""

import difflib
from importlib import import_module
from typing import Any

from lur.tasks.task import Outcomes as Outcomes
from lur.tasks.task import Settings as Settings
from lur.tasks.task import Task as Task

NAMES = ("femnist", "cifar100", "shakespeare", "stackoverflow_nwp", "stackoverflow_tp", "quadratic", "digits")


def load(name: str, **options: Any) -> Task:
    """Return the task of this name, for example ``load("femnist", clients=20, heterogeneity=2.0)``.

    Args:
      name: one of `NAMES`.
      **options: the arguments of ``lur.tasks.<name>.task``. Every task takes `clients`, `heterogeneity` and `seed`,
        which describe the built-in data, and `dtype`; every task except quadratic takes a `store`, which replaces the
        built-in data.
    """
    if name not in NAMES:
        nearest = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.3)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        raise ValueError(f"task must be one of {', '.join(NAMES)}, got {name!r}{hint}")
    return import_module(f"lur.tasks.{name}").task(**options)
