"""`digits`: multinomial logistic regression on scikit-learn's bundled real digits, dealt to clients by a Dirichlet law.

Convex and seconds to run. The dial: each class is shared among clients by Dirichlet(1 / heterogeneity); 0 is iid.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from lur.data import partition
from lur.data.store import Store
from lur.data.writer import in_memory
from lur.tasks.task import Outcomes, Settings, Task, classification

SETTINGS = Settings(10, 10, 10, 0.1, 0.1)


def digits_store(clients: int = 50, heterogeneity: float = 1.0, seed: int = 0) -> Store:
    """1,797 real 8x8 digits over clients; a client that got none is left out."""
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    pixels, label = bunch["data"].astype(np.float32) / 16, bunch["target"].astype(np.int32)
    rng = np.random.default_rng([seed, 5])
    if heterogeneity == 0:
        parts = partition.iid(rng, len(label), clients)
    else:
        parts = partition.dirichlet(rng, label, clients, 1 / heterogeneity)
    about = {
        "dataset": "digits",
        "source": "scikit-learn load_digits (UCI optical recognition of handwritten digits)",
        "generated": False,
        "partition": {"clients": clients, "heterogeneity": heterogeneity, "seed": seed},
    }
    return in_memory(
        ((f"{i}", {"pixels": pixels[part], "label": label[part]}) for i, part in enumerate(parts) if len(part)), about
    )


def task(
    store: Store | None = None,
    *,
    clients: int | None = None,
    heterogeneity: float = 1.0,
    seed: int = 0,
    dtype: Any = jnp.float32,
) -> Task:
    """The task over the given store or over the bundled digits."""
    from lur.models.layers.losses import softmax_cross_entropy
    from lur.models.regression import LogisticRegression

    store = digits_store(50 if clients is None else clients, heterogeneity, seed) if store is None else store
    model = LogisticRegression(classes=10, dtype=dtype)

    def plain(examples: Mapping[str, Any]) -> dict[str, Any]:
        return {"pixels": examples["pixels"].astype(dtype), "label": examples["label"].astype(jnp.int32)}

    def outcomes(params: Any, batch: Mapping[str, Any]) -> Outcomes:
        logits: Any = model.apply(params, batch["pixels"])
        return classification(logits, softmax_cross_entropy(logits, batch["label"]), batch["label"])

    def init(key: Any) -> Any:
        return model.init(key, jnp.zeros((1, 64), dtype))

    return Task("digits", store, init, lambda key, z: plain(z), plain, outcomes, SETTINGS.fitting(store))
