"""`femnist`: classify handwritten characters (62 classes, 28x28 pixels) with a CNN; a client is a writer.

The paper's network is that of McMahan et al. 2017; the trainer of 2020 uses a smaller one with dropout
(``model="dropout_cnn"``). A training batch then has a ``key``, that of its (seed, round, client, step), and the network
drops units only where a batch has one: not in evaluation.
"""

from collections.abc import Mapping
from typing import Any, Literal

import jax.numpy as jnp

import lur.data.prepare as prepare
from lur.data.store import Store
from lur.models.cnn import CNN, DropoutCNN
from lur.models.layers.losses import softmax_cross_entropy
from lur.tasks.built_in import generated_store, prepared_store
from lur.tasks.task import Outcomes, Settings, Task, checked_choice, classification_outcomes

SETTINGS = Settings(clients_per_round=10, local_steps=10, batch_size=20, client_lr=0.01, server_lr=10**-1.5)
CLIENTS = 100
"""The number of generated clients by default."""


def built_in_store(clients: int | None = None, heterogeneity: float = 1.0, seed: int = 0) -> Store:
    """Return the built-in data; the arguments are those of `task`."""
    return generated_store("emnist", CLIENTS if clients is None else clients, heterogeneity, seed)


def task(
    store: Store | None = None,
    *,
    clients: int | None = None,
    heterogeneity: float = 1.0,
    seed: int = 0,
    dtype: Any = jnp.float32,
    model: Literal["default", "dropout_cnn"] = "default",
) -> Task:
    """Return the task.

    Args:
      store: clients with TensorFlow Federated's features ``pixels`` and ``label``; by default generated handwriting.
      clients: the number of clients to generate.
      heterogeneity: the heterogeneity of the generated clients.
      seed: the seed of the generated clients.
      dtype: the dtype of parameters and activations.
      model: the default CNN, or the one with dropout.
    """
    checked_choice("model", model, ("default", "dropout_cnn"))
    has_dropout = model == "dropout_cnn"
    if store is None:
        store = built_in_store(clients, heterogeneity, seed)
    store = prepared_store("femnist", store, prepare.emnist)
    network = DropoutCNN(classes=62, dtype=dtype) if has_dropout else CNN(classes=62, dtype=dtype)

    def eval_view(examples: Mapping[str, Any]) -> dict[str, Any]:
        pixels = examples["pixels"]
        scale = 255 if pixels.dtype == jnp.uint8 else 1
        return {"pixels": pixels[..., None].astype(dtype) / scale, "label": examples["label"].astype(jnp.int32)}

    def view(key: Any, examples: Mapping[str, Any]) -> dict[str, Any]:
        return eval_view(examples) | ({"key": key} if has_dropout else {})

    def outcomes(params: Any, batch: Mapping[str, Any]) -> Outcomes:
        training = {"train": True, "rngs": {"dropout": batch["key"]}} if "key" in batch else {}
        logits: Any = network.apply(params, batch["pixels"], **training)
        losses = softmax_cross_entropy(logits, batch["label"])
        return classification_outcomes(logits, losses, batch["label"])

    def init(key: Any) -> Any:
        return network.init(key, jnp.zeros((1, 28, 28, 1), dtype))

    return Task(
        "femnist",
        store,
        init,
        view=view,
        eval_view=eval_view,
        outcomes=outcomes,
        settings=SETTINGS.for_store(store),
    )
