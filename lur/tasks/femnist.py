"""`femnist`: which of 62 characters is it? A CNN over writers' characters (28x28, ink 0 on background 1)."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from lur.data import prepare
from lur.data.store import Store
from lur.tasks.built_in import generated, prepared
from lur.tasks.task import Outcomes, Settings, Task, classification

SETTINGS = Settings(10, 10, 20, 0.01, 10**-1.5)
CLIENTS = 100


def task(
    store: Store | None = None,
    *,
    clients: int | None = None,
    heterogeneity: float = 1.0,
    seed: int = 0,
    dtype: Any = jnp.float32,
) -> Task:
    """The task over a store with TFF's features pixels and label, or over generated handwriting."""
    from lur.models.cnn import CNN
    from lur.models.layers.losses import softmax_cross_entropy

    if store is None:
        store = generated("emnist", CLIENTS if clients is None else clients, heterogeneity, seed)
    store = prepared("femnist", store, prepare.emnist)
    model = CNN(classes=62, dtype=dtype)

    def plain(examples: Mapping[str, Any]) -> dict[str, Any]:
        pixels = examples["pixels"]
        scale = 255 if pixels.dtype == jnp.uint8 else 1
        return {"pixels": pixels[..., None].astype(dtype) / scale, "label": examples["label"].astype(jnp.int32)}

    def outcomes(params: Any, batch: Mapping[str, Any]) -> Outcomes:
        logits: Any = model.apply(params, batch["pixels"])
        return classification(logits, softmax_cross_entropy(logits, batch["label"]), batch["label"])

    def init(key: Any) -> Any:
        return model.init(key, jnp.zeros((1, 28, 28, 1), dtype))

    return Task("femnist", store, init, lambda key, z: plain(z), plain, outcomes, SETTINGS.fitting(store))
