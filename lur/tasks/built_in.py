"""The stores of the tasks: generated stand-ins for the paper's datasets, and raw stores prepared for a model."""

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Literal

from lur.data.store import Store
from lur.data.store_cache import cached, digest, is_cached
from lur.data.writer import Examples

Dataset = Literal["emnist", "cifar100", "shakespeare", "stackoverflow"]
GENERATORS: dict[Dataset, str] = {
    "emnist": "handwriting",
    "cifar100": "images",
    "shakespeare": "dialect",
    "stackoverflow": "posts",
}
"""The module of `lur.data.generate` that generates a stand-in for each dataset."""
DATASETS: dict[str, Dataset] = {
    "femnist": "emnist",
    "cifar100": "cifar100",
    "shakespeare": "shakespeare",
    "stackoverflow_nwp": "stackoverflow",
    "stackoverflow_tp": "stackoverflow",
}
"""The dataset of each task that has a generated one."""


def generated_store(dataset: Dataset, clients: int, heterogeneity: float, seed: int) -> Store:
    """Return a generated stand-in for a dataset, generated once and cached. Its `about` says that it is generated.

    Args:
      dataset: the dataset to stand in for.
      clients: the number of clients.
      heterogeneity: how much the clients differ: 0 for iid clients, 1 by default.
      seed: the seed of the generator.
    """
    if isinstance(clients, bool) or int(clients) != clients or clients < 1:
        raise ValueError(f"clients must be an integer >= 1, got {clients!r}")
    if not 0 <= heterogeneity < float("inf"):
        raise ValueError(f"heterogeneity must be finite and >= 0, got {heterogeneity}")
    about = {
        "dataset": dataset,
        "generated": True,
        "source": f"lur.data.generate.{GENERATORS[dataset]}",
        "clients": int(clients),
        "heterogeneity": float(heterogeneity),
        "seed": int(seed),
    }
    generator = import_module(f"lur.data.generate.{GENERATORS[dataset]}")
    return cached(
        f"{GENERATORS[dataset]}-{clients}",
        about,
        lambda: generator.clients(int(clients), seed=seed, heterogeneity=float(heterogeneity)),
    )


def prepared_store(
    task: str, store: Store, prepare: Callable[[Store], Iterable[tuple[str, Examples]]], **options: Any
) -> Store:
    """Return a store prepared for a task, prepared once for each store and options, and cached.

    Args:
      task: the name of the task.
      store: the raw store; a store of the cache that is already prepared for the task is returned as it is. What
        another store says about its preparation is not believed.
      prepare: the preparation of a raw store.
      **options: what else `prepare` depends on; part of the cache's key.
    """
    if store.about.get("prepared") == task and is_cached(store):
        return store
    about = {**store.about, "prepared": task}
    key = [digest(store), {name: repr(value) for name, value in options.items()}]
    return cached(f"{task}-{store.clients}", about, lambda: prepare(store), key=key)


def vocabulary_or_most_used(
    store: Store,
    vocabulary: Sequence[bytes] | None,
    size: int,
    count: Callable[[Store], Sequence[tuple[bytes, int]]],
) -> Sequence[bytes]:
    """Return the first `size` words of a vocabulary, by default of the words that most clients of the store use.

    Args:
      store: the store; once it is prepared no vocabulary is needed, and the result is empty.
      vocabulary: the words, or None.
      size: the number of words.
      count: returns the words of a store with their numbers of clients, most used first.
    """
    if size < 1:
        raise ValueError(f"the size of a vocabulary must be >= 1, got {size}")
    if vocabulary is not None:
        return list(vocabulary)[:size]
    return () if "prepared" in store.about and is_cached(store) else [word for word, _ in count(store)[:size]]
