"""`stackoverflow_nwp`: which word comes next? An LSTM over the first 20 words of a user's first 128 sentences.

The published model projects the LSTM's output to 96 units before the softmax, which the paper's text omits:
that is the default; ``projection=None`` is the direct softmax.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from lur.data import prepare
from lur.data.store import Store
from lur.tasks.built_in import generated, prepared, vocabulary_of
from lur.tasks.task import Settings, Task

SETTINGS = Settings(50, 10, 16, 0.1, 0.01, "yogi")
CLIENTS = 300
VOCABULARY = 10_000
LENGTH = 20


def task(
    store: Store | None = None,
    *,
    clients: int | None = None,
    heterogeneity: float = 1.0,
    seed: int = 0,
    dtype: Any = jnp.float32,
    vocabulary: Sequence[bytes] | None = None,
    vocabulary_size: int = VOCABULARY,
    max_examples: int | None = 128,
    projection: int | None = 96,
) -> Task:
    """The task over a store with TFF's feature tokens, or over generated posts.

    Without a vocabulary the `vocabulary_size` words that most of the store's clients use are taken.
    """
    from lur.models.lstm_lm import LSTMLM
    from lur.tasks.language import language_task

    if store is None:
        store = generated("stackoverflow", CLIENTS if clients is None else clients, heterogeneity, seed)
    words = vocabulary_of(store, vocabulary, vocabulary_size, prepare.count_words)
    store = prepared(
        "stackoverflow_nwp",
        store,
        lambda raw: prepare.next_word(raw, words, max_examples=max_examples),
        words=words,
        max_examples=max_examples,
    )
    model = LSTMLM(vocabulary_size + 4, 96, (670,), projection=projection, dtype=dtype)
    return language_task("stackoverflow_nwp", store, model, LENGTH, SETTINGS)
