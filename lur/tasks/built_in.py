"""Where a task's clients come from when the user has none: generated stand-ins, and the preparation of raw stores."""

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Literal

from lur.data.store import Store
from lur.data.store_cache import cached, digest
from lur.data.writer import Examples

Kind = Literal["emnist", "cifar100", "shakespeare", "stackoverflow"]
GENERATORS: dict[Kind, str] = {
    "emnist": "handwriting",
    "cifar100": "images",
    "shakespeare": "dialect",
    "stackoverflow": "posts",
}
KINDS: dict[str, Kind] = {
    "femnist": "emnist",
    "cifar100": "cifar100",
    "shakespeare": "shakespeare",
    "stackoverflow_nwp": "stackoverflow",
    "stackoverflow_tp": "stackoverflow",
}


def generated(kind: Kind, clients: int, heterogeneity: float, seed: int) -> Store:
    """A generated stand-in of the dataset, made once and cached. Its `about` names it as generated."""
    if isinstance(clients, bool) or int(clients) != clients or clients < 1:
        raise ValueError(f"clients must be an integer >= 1, got {clients!r}")
    if not 0 <= heterogeneity < float("inf"):
        raise ValueError(f"heterogeneity must be finite and >= 0, got {heterogeneity}")
    about = {
        "dataset": kind,
        "generated": True,
        "source": f"lur.data.generate.{GENERATORS[kind]}",
        "clients": int(clients),
        "heterogeneity": float(heterogeneity),
        "seed": int(seed),
    }
    module = import_module(f"lur.data.generate.{GENERATORS[kind]}")
    return cached(
        f"{GENERATORS[kind]}-{clients}",
        about,
        lambda: module.clients(int(clients), seed=seed, heterogeneity=float(heterogeneity)),
    )


def prepared(
    task: str, store: Store, prepare: Callable[[Store], Iterable[tuple[str, Examples]]], **options: Any
) -> Store:
    """The store as the task trains on it, made once per store and options and cached."""
    if store.about.get("prepared") == task:
        return store
    about = {**store.about, "prepared": task}
    key = [digest(store), {name: repr(value) for name, value in options.items()}]
    return cached(f"{task}-{store.clients}", about, lambda: prepare(store), key=key)


def vocabulary_of(
    store: Store,
    given: Sequence[bytes] | None,
    size: int,
    count: Callable[[Store], Sequence[tuple[bytes, int]]],
) -> Sequence[bytes]:
    """The vocabulary given, or the words that most clients of the store use; none is needed once it is prepared."""
    if size < 1:
        raise ValueError(f"a vocabulary must have at least 1 word, got {size}")
    if given is not None:
        return list(given)[:size]
    return () if "prepared" in store.about else [word for word, _ in count(store)[:size]]
