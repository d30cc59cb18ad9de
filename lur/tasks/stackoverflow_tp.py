r"""`stackoverflow_tp`: which tags does a post have? One-versus-rest logistic regression on bags of words; convex.

A bag is normalised to sum 1, as the paper says, or as the published code does, which leaves out-of-vocabulary
words in the denominator (``normalise="mean"``). The loss of an example is the mean over the 500 tags of
:math:`\log(1 + e^z) - zy`, or their sum (``over_tags="sum"``). The metric is the recall of its five best tags.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp

from lur.data import prepare
from lur.data.store import Store
from lur.engine.fast.linear import tag_regression
from lur.tasks.built_in import generated, prepared, vocabulary_of
from lur.tasks.task import Outcomes, Settings, Task

SETTINGS = Settings(50, 10, 16, 10.0, 10**-0.5, "yogi")
CLIENTS = 300
VOCABULARY, TAGS = 10_000, 500
BEST = 5


def task(
    store: Store | None = None,
    *,
    clients: int | None = None,
    heterogeneity: float = 1.0,
    seed: int = 0,
    dtype: Any = jnp.float32,
    vocabulary: Sequence[bytes] | None = None,
    tags: Sequence[bytes] | None = None,
    vocabulary_size: int = VOCABULARY,
    tags_size: int = TAGS,
    max_examples: int | None = 500,
    normalise: Literal["sum", "mean"] = "sum",
    over_tags: Literal["mean", "sum"] = "mean",
) -> Task:
    """The task over a store with TFF's features tokens, title and tags, or over generated posts."""
    from lur.models.regression import TagRegression

    if over_tags not in ("mean", "sum"):
        raise ValueError(f"over_tags must be 'mean' or 'sum', got {over_tags!r}")
    if store is None:
        store = generated("stackoverflow", CLIENTS if clients is None else clients, heterogeneity, seed)
    words = vocabulary_of(store, vocabulary, vocabulary_size, prepare.count_words)
    labels = vocabulary_of(store, tags, tags_size, prepare.count_tags)
    store = prepared(
        "stackoverflow_tp",
        store,
        lambda raw: prepare.tags(raw, words, labels, max_examples=max_examples, normalise=normalise),
        words=words,
        labels=labels,
        max_examples=max_examples,
        normalise=normalise,
    )
    model = TagRegression(words=vocabulary_size, tags=tags_size, dtype=dtype)
    scale = 1 / tags_size if over_tags == "mean" else 1.0

    def plain(examples: Mapping[str, Any]) -> dict[str, Any]:
        tags, length = examples["tags"].astype(jnp.int32), examples["tags_length"]
        return {
            "words": examples["words"].astype(jnp.int32),
            "weights": examples["weights"].astype(dtype),
            "tags": tags,
            "tagged": jnp.arange(tags.shape[-1], dtype=jnp.int32) < length[..., None],
        }

    def outcomes(params: Any, batch: Mapping[str, Any]) -> Outcomes:
        logits: Any = model.apply(params, batch["words"], batch["weights"])
        tags, tagged = batch["tags"], batch["tagged"].astype(dtype)
        positive = (jnp.take_along_axis(logits, tags, -1) * tagged).sum(-1)
        loss = scale * (jax.nn.softplus(logits).sum(-1) - positive)
        _, best = jax.lax.top_k(logits, min(BEST, tags_size))
        hits = (best[..., None] == tags[..., None, :]).any(-2).astype(dtype)
        return Outcomes(loss, (hits * tagged).sum(-1), tagged.sum(-1))

    def init(key: Any) -> Any:
        return model.init(key, jnp.zeros((1, 1), jnp.int32), jnp.zeros((1, 1), dtype))

    return Task(
        "stackoverflow_tp",
        store,
        init,
        lambda key, z: plain(z),
        plain,
        outcomes,
        SETTINGS.fitting(store),
        metric="recall at 5",
        linear=tag_regression(tags_size, over_tags=over_tags),
    )
