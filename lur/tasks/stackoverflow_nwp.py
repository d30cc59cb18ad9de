"""`stackoverflow_nwp`: predict the next word with an LSTM over the first 20 words of a user's first 128 sentences.

The published model projects the LSTM's output to 96 units before the softmax, which the paper's text omits. The
projection is the default; ``projection=None`` is the direct softmax.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

import lur.data.prepare as prepare
from lur.data.store import Store
from lur.models.lstm_lm import LSTMLM
from lur.tasks.built_in import generated_store, prepared_store, vocabulary_or_most_used
from lur.tasks.language import Positions, language_task
from lur.tasks.task import Settings, Task

SETTINGS = Settings(clients_per_round=50, local_steps=10, batch_size=16, client_lr=0.1, server_lr=0.01, server="yogi")
CLIENTS = 300
"""The number of generated clients by default."""
VOCABULARY_SIZE = 10_000
LENGTH = 20


def vocabularies(
    store: Store, *, vocabulary: Sequence[bytes] | None = None, vocabulary_size: int = VOCABULARY_SIZE, **options: Any
) -> dict[str, Any]:
    """Return the arguments of `task` that are counted over a raw store."""
    return {"vocabulary": vocabulary_or_most_used(store, vocabulary, vocabulary_size, prepare.count_words)}


def built_in_store(clients: int | None = None, heterogeneity: float = 1.0, seed: int = 0) -> Store:
    """Return the built-in data; the arguments are those of `task`."""
    return generated_store("stackoverflow", CLIENTS if clients is None else clients, heterogeneity, seed)


def task(
    store: Store | None = None,
    *,
    clients: int | None = None,
    heterogeneity: float = 1.0,
    seed: int = 0,
    dtype: Any = jnp.float32,
    vocabulary: Sequence[bytes] | None = None,
    vocabulary_size: int = VOCABULARY_SIZE,
    max_examples: int | None = 128,
    projection: int | None = 96,
    positions: Positions = "tokens",
) -> Task:
    """Return the task.

    Args:
      store: clients with TensorFlow Federated's feature ``tokens``; by default generated posts.
      clients: the number of clients to generate.
      heterogeneity: the heterogeneity of the generated clients.
      seed: the seed of the generated clients.
      dtype: the dtype of parameters and activations.
      vocabulary: the words, most frequent first; by default the words that most clients of the store use.
      vocabulary_size: the number of words to keep.
      max_examples: the number of sentences that a client keeps; None for all.
      projection: the width of the linear layer between LSTM and softmax; None for the direct softmax.
      positions: which positions count in the loss, see `lur.tasks.language`.
    """
    if store is None:
        store = built_in_store(clients, heterogeneity, seed)
    words = vocabularies(store, vocabulary=vocabulary, vocabulary_size=vocabulary_size)["vocabulary"]
    store = prepared_store(
        "stackoverflow_nwp",
        store,
        lambda raw: prepare.next_word(raw, words, max_examples=max_examples),
        words=words,
        max_examples=max_examples,
    )
    model = LSTMLM(vocabulary_size + 4, 96, (670,), projection=projection, dtype=dtype)
    return language_task("stackoverflow_nwp", store, model, LENGTH, SETTINGS, positions)
