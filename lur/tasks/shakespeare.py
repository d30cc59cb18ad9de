"""`shakespeare`: predict the next character with two LSTM layers over sequences of 80; a client is a role of a play."""

from typing import Any

import jax.numpy as jnp

import lur.data.prepare as prepare
from lur.data.store import Store
from lur.models.lstm_lm import shakespeare as shakespeare_model
from lur.tasks.built_in import generated_store, prepared_store
from lur.tasks.language import Positions, language_task
from lur.tasks.task import Settings, Task

SETTINGS = Settings(clients_per_round=10, local_steps=10, batch_size=4, client_lr=1.0, server_lr=10**-0.5)
CLIENTS = 200
"""The number of generated clients by default."""
LENGTH = 80


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
      store: clients with TensorFlow Federated's feature ``snippets``; by default generated dialects.
      clients: the number of clients to generate.
      heterogeneity: the heterogeneity of the generated clients.
      seed: the seed of the generated clients.
      dtype: the dtype of parameters and activations.
      positions: which positions count in the loss, see `lur.tasks.language`.
    """
    if store is None:
        store = built_in_store(clients, heterogeneity, seed)
    store = prepared_store("shakespeare", store, prepare.shakespeare)
    return language_task("shakespeare", store, shakespeare_model(dtype=dtype), LENGTH, SETTINGS, positions)
