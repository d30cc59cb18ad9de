"""`shakespeare`: which character comes next? Two LSTM layers over sequences of 80 characters, one client per role."""

from typing import Any

import jax.numpy as jnp

from lur.data import prepare
from lur.data.store import Store
from lur.tasks.built_in import generated, prepared
from lur.tasks.task import Settings, Task

SETTINGS = Settings(10, 10, 4, 1.0, 10**-0.5)
CLIENTS = 200
LENGTH = 80


def task(
    store: Store | None = None,
    *,
    clients: int | None = None,
    heterogeneity: float = 1.0,
    seed: int = 0,
    dtype: Any = jnp.float32,
) -> Task:
    """The task over a store with TFF's feature snippets, or over generated dialects."""
    from lur.models.lstm_lm import shakespeare as shakespeare_model
    from lur.tasks.language import language_task

    if store is None:
        store = generated("shakespeare", CLIENTS if clients is None else clients, heterogeneity, seed)
    store = prepared("shakespeare", store, prepare.shakespeare)
    model = shakespeare_model(dtype=dtype)
    return language_task("shakespeare", store, model, LENGTH, SETTINGS)
