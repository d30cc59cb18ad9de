"""`shakespeare`: which character comes next? Two LSTM layers over sequences of 80 characters, one client per role."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from lur.data import prepare
from lur.data.store import Store
from lur.tasks.built_in import generated, prepared
from lur.tasks.task import Outcomes, Settings, Task, sequence

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
    from lur.models.layers.losses import softmax_cross_entropy
    from lur.models.lstm_lm import shakespeare as shakespeare_model

    if store is None:
        store = generated("shakespeare", CLIENTS if clients is None else clients, heterogeneity, seed)
    store = prepared("shakespeare", store, prepare.shakespeare)
    model = shakespeare_model(dtype=dtype)

    def plain(examples: Mapping[str, Any]) -> dict[str, Any]:
        return {"tokens": examples["tokens"].astype(jnp.int32)}

    def outcomes(params: Any, batch: Mapping[str, Any]) -> Outcomes:
        x, y = batch["tokens"][..., :-1], batch["tokens"][..., 1:]
        logits: Any = model.apply(params, x)
        return sequence(softmax_cross_entropy(logits, y), logits.argmax(-1) == y, y != 0)

    def init(key: Any) -> Any:
        return model.init(key, jnp.zeros((1, LENGTH), jnp.int32))

    return Task("shakespeare", store, init, lambda key, z: plain(z), plain, outcomes, SETTINGS.fitting(store))
