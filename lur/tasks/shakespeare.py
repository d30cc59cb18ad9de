"""`shakespeare`: predict the next character with two LSTM layers over sequences of 80; a client is a role of a play.

A store of TensorFlow Federated has speeches, and the model predicts every character of them. A store of LEAF has
windows of 80 characters, and the model predicts only the character that follows each window.
"""

from typing import Any

import jax.numpy as jnp

import lur.data.prepare as prepare
from lur.data.store import Store
from lur.data.store_cache import is_cached
from lur.models.lstm_lm import shakespeare as shakespeare_model
from lur.tasks.built_in import generated_store, prepared_store
from lur.tasks.language import Positions, language_task
from lur.tasks.task import Settings, Task

SETTINGS = Settings(clients_per_round=10, local_steps=10, batch_size=4, client_lr=1.0, server_lr=10**-0.5)
CLIENTS = 200
"""The number of generated clients by default."""
LENGTH = 80
LEAF = "shakespeare_leaf"
"""The name of the preparation of LEAF's windows."""


def built_in_store(clients: int | None = None, heterogeneity: float = 1.0, seed: int = 0) -> Store:
    """Return the built-in data; the arguments are those of `task`."""
    return generated_store("shakespeare", CLIENTS if clients is None else clients, heterogeneity, seed)


def task(
    store: Store | None = None,
    *,
    clients: int | None = None,
    heterogeneity: float = 1.0,
    seed: int = 0,
    dtype: Any = jnp.float32,
    positions: Positions = "tokens",
) -> Task:
    """Return the task.

    Args:
      store: clients with TensorFlow Federated's feature ``snippets`` or LEAF's ``x`` and ``y``; by default generated
        dialects.
      clients: the number of clients to generate.
      heterogeneity: the heterogeneity of the generated clients.
      seed: the seed of the generated clients.
      dtype: the dtype of parameters and activations.
      positions: which positions count in the loss, see `lur.tasks.language`. With LEAF's windows only the last one
        does, and this option must be left at its default.
    """
    if store is None:
        store = built_in_store(clients, heterogeneity, seed)
    is_leaf = has_windows(store)
    if is_leaf and positions != "tokens":
        raise ValueError(f"positions must be 'tokens' for LEAF's windows, of one target each, got {positions!r}")
    prepare_store = prepare.next_character if is_leaf else prepare.shakespeare
    store = prepared_store(LEAF if is_leaf else "shakespeare", store, prepare_store)
    model = shakespeare_model(dtype=dtype)
    return language_task("shakespeare", store, model, LENGTH, SETTINGS, positions, only_last=is_leaf)


def has_windows(store: Store) -> bool:
    """Return whether a store has LEAF's windows, raw or prepared."""
    is_prepared = store.about.get("prepared") == LEAF and is_cached(store)
    return is_prepared or ({"x", "y"} <= {*store.features} and "snippets" not in store.features)
