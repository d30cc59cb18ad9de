"""The paper's preprocessing: from raw examples to examples that a task can train on.

Each function takes a raw store (features named as TensorFlow Federated names them) and yields
``(client id, examples)`` one client at a time, for `lur.data.writer.write_store` or `in_memory`:

    shakespeare     snippets                     -> tokens (n, 81)
    next_character  x, y (LEAF)                  -> tokens (n, 81)
    next_word       tokens                       -> tokens (n, 21)
    tags            tokens, title, tags          -> words, weights, tags (ragged); known, total (n,)
    emnist          pixels, label                -> pixels, label
    cifar100        image, label[, coarse_label] -> the same

A client's examples keep their order; shuffling, mini-batches and input/target shifts belong to training.
"""

from collections.abc import Mapping
from typing import cast

import numpy as np

from lur.data.characters import characters, next_character, shakespeare
from lur.data.requirements import Clients, check_dense, store_location
from lur.data.store import Store, StoreError
from lur.data.words import clean_text, count_tags, count_words, next_word, tags

__all__ = [
    "characters",
    "cifar100",
    "clean_text",
    "count_tags",
    "count_words",
    "emnist",
    "next_character",
    "next_word",
    "shakespeare",
    "tags",
]


def emnist(store: Store, *, classes: int = 62) -> Clients:
    """Return handwritten characters as they are stored: ink 0 on a background of 1 (255 if they are bytes).

    Args:
      store: clients with the features ``pixels`` (n, 28, 28) and ``label`` (n,).
      classes: the number of classes; a label outside 0, ..., classes - 1 is a StoreError.
    """
    check_dense(store, "pixels", (28, 28), ("float32", "uint8"))
    return labelled_images(store, "pixels", {"label": classes})


def cifar100(store: Store) -> Clients:
    """Return images as they are stored, as bytes: the task crops and standardises them.

    Args:
      store: clients with the features ``image`` (n, 32, 32, 3), ``label`` (n,) and optionally ``coarse_label`` (n,).
    """
    check_dense(store, "image", (32, 32, 3), ("uint8",))
    return labelled_images(
        store, "image", {"label": 100, **({"coarse_label": 20} if "coarse_label" in store.features else {})}
    )


def labelled_images(store: Store, name: str, num_classes: Mapping[str, int]) -> Clients:
    """Return images and their labels as int32.

    A label that is not a class is a StoreError here, because JAX would clamp it silently.
    """
    for label in num_classes:
        check_dense(store, label, (), ("uint8", "int32", "int64"))

    def checked_labels(id: str, label: str, values: np.ndarray, classes: int) -> np.ndarray:
        if values.min(initial=0) < 0 or values.max(initial=0) >= classes:
            raise StoreError(
                f"{store_location(store)}, client {id!r}: expected {label} in 0..{classes - 1}, "
                f"found {values.min()}..{values.max()}"
            )
        return values.astype(np.int32)

    return (
        (
            id,
            {
                name: examples[name],
                **{
                    label: checked_labels(id, label, cast(np.ndarray, examples[label]), k)
                    for label, k in num_classes.items()
                },
            },
        )
        for id, examples in store.items()
    )
