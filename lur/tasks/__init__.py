"""The tasks by name. Loading a task imports its module; importing `lur.tasks` imports no model and no reader."""

import difflib
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lur.tasks.task import Outcomes as Outcomes
from lur.tasks.task import Settings as Settings
from lur.tasks.task import Task as Task

if TYPE_CHECKING:
    from lur.data.store import Store

NAMES = (
    "femnist",
    "cifar100",
    "shakespeare",
    "stackoverflow_nwp",
    "stackoverflow_tp",
    "quadratic",
    "digits",
    "sinusoid",
)
GENERATED_SPLITS = ("quadratic", "sinusoid")
"""Tasks that are generated with their splits, and take no store."""


TEST_FRACTION = 0.2
"""The fraction of each client's examples that is for testing in built-in data."""
SPLIT_IN_ORDER = ("shakespeare", "stackoverflow_nwp", "stackoverflow_tp")
"""Tasks whose clients write one text after the other: the last ones are for testing."""
SPLIT_AT_RANDOM = ("femnist", "cifar100", "digits")
"""Tasks whose test examples are drawn at random."""


def load(
    name: str,
    *,
    store: "Store | None" = None,
    test: "Store | None" = None,
    test_fraction: float | None = None,
    held_out: float = 0.0,
    split_seed: int = 0,
    **options: Any,
) -> Task:
    """Return the task of this name, for example ``load("femnist", clients=20, heterogeneity=2.0)``.

    Args:
      name: one of `NAMES`.
      store: the clients' examples; by default the built-in data of the task.
      test: the test examples of these clients, in the form of `store`.
      test_fraction: without `test`, the fraction of each client's examples that is for testing: for text the last ones,
        otherwise random ones (`lur.data.split_examples`). By default 0.2 of built-in data, and none of a store.
      held_out: the fraction of clients that is held out: never trained on (`lur.data.split_clients`).
      split_seed: the seed of these splits.
      **options: the arguments of ``lur.tasks.<name>.task``. Every task takes `clients`, `heterogeneity` and `seed`,
        which describe the built-in data, and `dtype`.
    """
    if name not in NAMES:
        nearest = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.3)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        raise ValueError(f"task must be one of {', '.join(NAMES)}, got {name!r}{hint}")
    module = import_module(f"lur.tasks.{name}")
    if name in GENERATED_SPLITS:
        if store is not None or test is not None or test_fraction or held_out:
            raise ValueError(
                f"store, test, test_fraction and held_out are not for {name}, which is generated with its splits"
            )
        return module.task(**options)
    if test is not None and test_fraction is not None:
        raise ValueError(f"test_fraction must be left out with test, got {test_fraction}")
    if store is None:
        built_in = {key: options.pop(key) for key in ("clients", "heterogeneity", "seed") if key in options}
        raw: Store = module.built_in_store(**built_in)
        test_fraction = TEST_FRACTION if test is None and test_fraction is None else test_fraction
    else:
        raw = store
    return _with_splits(module, name, raw, test, test_fraction, held_out, split_seed, options)


def _with_splits(
    module: Any,
    name: str,
    store: "Store",
    test: "Store | None",
    test_fraction: float | None,
    held_out: float,
    seed: int,
    options: dict[str, Any],
) -> Task:
    """The task of a raw store, with its test examples and held-out clients, all prepared as the training examples."""
    from lur.data.splits import clients_in, split_clients, split_examples

    rule = "last" if name in SPLIT_IN_ORDER else "random"
    held_out_store: Store | None = None
    held_out_test: Store | None = None
    if test is not None:
        clients_in(test, store)
    if held_out:
        store, held_out_store = split_clients(store, held_out, seed=seed)
        if test is not None:
            test, held_out_test = _among(test, store), _among(test, held_out_store)
    if test_fraction:
        store, test = split_examples(store, test_fraction, seed=seed, rule=rule)
        if held_out_store is not None:
            held_out_store, held_out_test = split_examples(held_out_store, test_fraction, seed=seed, rule=rule)
    if hasattr(module, "vocabularies"):  # counted over the training examples only
        options = options | module.vocabularies(store, **options)
    task = module.task(store, **options)
    others = {"test": test, "held_out": held_out_store, "held_out_test": held_out_test}
    prepared = {part: module.task(raw, **options).store for part, raw in others.items() if raw is not None}
    return replace(task, **prepared)


def _among(test: "Store", store: "Store") -> "Store | None":
    """The test examples of the clients of a store; None if there are none."""
    import numpy as np

    from lur.data.splits import subset

    ids = {store.id(i) for i in range(store.clients)}
    kept = {j: np.arange(n) for j, n in enumerate(test.sizes.tolist()) if test.id(j) in ids}
    return subset(test, kept, {"part": "test"}) if kept else None
