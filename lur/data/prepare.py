"""The paper's preprocessing: from a store of raw examples to a store that a task can train on.

Each function takes a raw store (features named as TensorFlow Federated names them) and yields
``(client id, examples)`` one client at a time, for `lur.data.writer.write_store` or `in_memory`:

    shakespeare   snippets                     -> tokens (n, 81)
    next_word     tokens                       -> tokens (n, 21)
    tags          tokens, title, tags          -> words, weights, tags (ragged); known, total (n,)
    emnist        pixels, label                -> pixels, label
    cifar100      image, label[, coarse_label] -> the same

The order of a client's examples is kept; shuffling, mini-batches and input/target shifts belong to training.
"""

from collections.abc import Mapping
from typing import cast

import numpy as np

from lur.data.characters import characters, shakespeare
from lur.data.expected import Clients, check_dense, place
from lur.data.store import Store, StoreError
from lur.data.words import clean_text, count_tags, count_words, next_word, tags

__all__ = [
    "characters",
    "cifar100",
    "clean_text",
    "count_tags",
    "count_words",
    "emnist",
    "next_word",
    "shakespeare",
    "tags",
]


def emnist(store: Store, *, classes: int = 62) -> Clients:
    """Handwritten characters as they are stored: ink 0 on a background of 1 (255 if they are bytes)."""
    check_dense(store, "pixels", (28, 28), ("float32", "uint8"))
    return labelled(store, "pixels", {"label": classes})


def cifar100(store: Store) -> Clients:
    """Images as they are stored, bytes; cropping and standardising are done on the fly, differently in training."""
    check_dense(store, "image", (32, 32, 3), ("uint8",))
    return labelled(
        store, "image", {"label": 100, **({"coarse_label": 20} if "coarse_label" in store.features else {})}
    )


def labelled(store: Store, name: str, labels: Mapping[str, int]) -> Clients:
    """Images, and their labels as int32, each checked to be a class: an index beyond would be clamped silently."""
    for label in labels:
        check_dense(store, label, (), ("uint8", "int32", "int64"))

    def checked(id: str, label: str, values: np.ndarray, classes: int) -> np.ndarray:
        if values.min(initial=0) < 0 or values.max(initial=0) >= classes:
            raise StoreError(
                f"{place(store)}, client {id!r}: expected {label} in 0..{classes - 1}, "
                f"found {values.min()}..{values.max()}"
            )
        return values.astype(np.int32)

    return (
        (
            id,
            {
                name: examples[name],
                **{label: checked(id, label, cast(np.ndarray, examples[label]), k) for label, k in labels.items()},
            },
        )
        for id, examples in store.items()
    )
