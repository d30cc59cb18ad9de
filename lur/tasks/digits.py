"""`digits`: multinomial logistic regression on scikit-learn's 8x8 digits, partitioned among clients at random.

The problem is convex, the data are real and bundled, and a run takes seconds. Each class is shared among the clients
in proportions drawn from Dirichlet(1 / heterogeneity); heterogeneity 0 is an iid partition.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from lur._extras import optional_imports
from lur.data import partition
from lur.data.requirements import check_dense, check_labels
from lur.data.store import Store
from lur.data.writer import in_memory
from lur.engine.fast.linear import LinearModel
from lur.models.layers.losses import softmax_cross_entropy
from lur.models.regression import LogisticRegression
from lur.tasks.task import Outcomes, Settings, Task, classification_outcomes

SETTINGS = Settings(clients_per_round=10, local_steps=10, batch_size=10, client_lr=0.1, server_lr=0.1)
CLIENTS = 50
"""The number of clients by default."""


def logistic_regression() -> LinearModel:
    """Return the task's model and loss as a linear model.

    The task does not use it, because a round of so small a model is faster in the general form. A grid of many
    learning rates is faster in the linear form.
    """
    return LinearModel(
        ("params", "logits"), lambda batch: batch["pixels"], lambda batch: batch["label"], softmax_cross_entropy
    )


def digits_store(clients: int = CLIENTS, heterogeneity: float = 1.0, seed: int = 0) -> Store:
    """Return the 1,797 digits, partitioned among clients. A client without any example is left out."""
    with optional_imports("the task digits"):
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


def built_in_store(clients: int | None = None, heterogeneity: float = 1.0, seed: int = 0) -> Store:
    """Return the built-in data; the arguments are those of `task`."""
    return digits_store(CLIENTS if clients is None else clients, heterogeneity, seed)


def task(
    store: Store | None = None,
    *,
    clients: int | None = None,
    heterogeneity: float = 1.0,
    seed: int = 0,
    dtype: Any = jnp.float32,
) -> Task:
    """Return the task.

    Args:
      store: clients with the features ``pixels`` (n, 64) and ``label`` (n,); by default the bundled digits.
      clients: the number of clients among which the bundled digits are partitioned.
      heterogeneity: the heterogeneity of that partition.
      seed: the seed of that partition.
      dtype: the dtype of the parameters.
    """
    if store is None:
        store = built_in_store(clients, heterogeneity, seed)
    check_dense(store, "pixels", (64,), ("float16", "float32", "float64", "uint8"))
    check_labels(store, "label", 10)
    model = LogisticRegression(classes=10, dtype=dtype)

    def eval_view(examples: Mapping[str, Any]) -> dict[str, Any]:
        return {"pixels": examples["pixels"].astype(dtype), "label": examples["label"].astype(jnp.int32)}

    def outcomes(params: Any, batch: Mapping[str, Any]) -> Outcomes:
        logits: Any = model.apply(params, batch["pixels"])
        losses = softmax_cross_entropy(logits, batch["label"])
        return classification_outcomes(logits, losses, batch["label"])

    def init(key: Any) -> Any:
        return model.init(key, jnp.zeros((1, 64), dtype))

    return Task(
        "digits",
        store,
        init,
        view=lambda key, examples: eval_view(examples),
        eval_view=eval_view,
        outcomes=outcomes,
        settings=SETTINGS.for_store(store),
    )
