r"""`stackoverflow_tp`: predict the tags of a post by one-versus-rest logistic regression on bags of words.

The problem is convex. A bag of words is normalised to sum 1, as the paper says, or as the published code does, which
counts out-of-vocabulary words in the denominator (``normalise="mean"``). The loss of an example is the mean over the
500 tags of :math:`\log(1 + e^z) - zy`, or their sum (``over_tags="sum"``). The loss of a mini-batch is the mean over
its examples, or their sum, as in the published code (``over_batch="sum"``). The metric is recall at 5.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax.linen import initializers
from jaxtyping import Array, Float

import lur.data.prepare as prepare
from lur.data.store import Store
from lur.engine.fast.bags import Bags
from lur.engine.fast.linear import LinearModel
from lur.models.layers.losses import sigmoid_cross_entropy
from lur.models.regression import TagRegression
from lur.tasks.built_in import generated_store, prepared_store, vocabulary_or_most_used
from lur.tasks.task import Outcomes, Settings, Task, checked_choice

SETTINGS = Settings(
    clients_per_round=50, local_steps=10, batch_size=16, client_lr=10.0, server_lr=10**-0.5, server="yogi"
)
CLIENTS = 300
"""The number of generated clients by default."""
VOCABULARY_SIZE, NUM_TAGS = 10_000, 500
INITIALIZERS: dict[str, Any] = {
    "default": initializers.zeros,
    "glorot_uniform": initializers.glorot_uniform(),
    "glorot_normal": initializers.glorot_normal(),
}
"""The initialisers of the kernel; Keras's normal one is truncated, and so is this one."""
TOP = 5
"""The number of highest-scoring tags among which a right tag is counted as recalled."""


def tag_regression(
    num_tags: int, *, over_tags: Literal["mean", "sum"] = "mean", over_batch: Literal["mean", "sum"] = "mean"
) -> LinearModel:
    """Return the task's model and loss as a linear model.

    Args:
      num_tags: the number of tags, the outputs of the model.
      over_tags: whether the loss of an example is the mean or the sum over tags.
      over_batch: whether the loss of a mini-batch is the mean or the sum over its examples.
    """
    if over_tags not in ("mean", "sum"):
        raise ValueError(f"over_tags must be 'mean' or 'sum', got {over_tags!r}")
    scale = 1 / num_tags if over_tags == "mean" else 1.0

    def targets(batch: Any) -> Float[Array, "*examples tags"]:
        hits = batch["tags"][..., None] == jnp.arange(num_tags, dtype=batch["tags"].dtype)
        return (hits & batch["tagged"][..., None]).astype(batch["weights"].dtype).sum(-2)

    def losses(logits: Array, labels: Array) -> Array:
        return scale * sigmoid_cross_entropy(logits, labels).sum(-1)

    return LinearModel(("params",), lambda batch: Bags(batch["words"], batch["weights"]), targets, losses, over_batch)


def vocabularies(
    store: Store,
    *,
    vocabulary: Sequence[bytes] | None = None,
    tags: Sequence[bytes] | None = None,
    vocabulary_size: int = VOCABULARY_SIZE,
    tags_size: int = NUM_TAGS,
    **options: Any,
) -> dict[str, Any]:
    """Return the arguments of `task` that are counted over a raw store."""
    return {
        "vocabulary": vocabulary_or_most_used(store, vocabulary, vocabulary_size, prepare.count_words),
        "tags": vocabulary_or_most_used(store, tags, tags_size, prepare.count_tags),
    }


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
    tags: Sequence[bytes] | None = None,
    vocabulary_size: int = VOCABULARY_SIZE,
    tags_size: int = NUM_TAGS,
    max_examples: int | None = 500,
    normalise: Literal["sum", "mean"] = "sum",
    over_tags: Literal["mean", "sum"] = "mean",
    over_batch: Literal["mean", "sum"] = "mean",
    init: Literal["default", "glorot_uniform", "glorot_normal"] = "default",
) -> Task:
    """Return the task.

    Args:
      store: clients with TensorFlow Federated's features ``tokens``, ``title``, ``tags``; by default generated posts.
      clients: the number of clients to generate.
      heterogeneity: the heterogeneity of the generated clients.
      seed: the seed of the generated clients.
      dtype: the dtype of the parameters.
      vocabulary: the words, most frequent first; by default the words that most clients of the store use.
      tags: the tags, most frequent first; by default the tags that most clients of the store use.
      vocabulary_size: the number of words to keep.
      tags_size: the number of tags to keep.
      max_examples: the number of sentences that a client keeps; None for all.
      normalise: the denominator of word frequencies, see `lur.data.prepare.tags`.
      over_tags: whether the loss of an example is the mean or the sum over tags.
      over_batch: whether the loss of a mini-batch is the mean or the sum over its examples.
      init: the initial kernel: zeros by default, or one of Keras's two random ones.
    """
    if over_tags not in ("mean", "sum"):
        raise ValueError(f"over_tags must be 'mean' or 'sum', got {over_tags!r}")
    checked_choice("over_batch", over_batch, ("mean", "sum"))
    checked_choice("init", init, tuple(INITIALIZERS))
    checked_choice("normalise", normalise, ("sum", "mean"))
    if store is None:
        store = built_in_store(clients, heterogeneity, seed)
    counted = vocabularies(
        store, vocabulary=vocabulary, tags=tags, vocabulary_size=vocabulary_size, tags_size=tags_size
    )
    words, labels = counted["vocabulary"], counted["tags"]
    store = prepared_store(
        "stackoverflow_tp",
        store,
        lambda raw: prepare.tags(raw, words, labels, max_examples=max_examples, normalise=normalise),
        words=words,
        labels=labels,
        max_examples=max_examples,
        normalise=normalise,
    )
    model = TagRegression(words=vocabulary_size, tags=tags_size, kernel_init=INITIALIZERS[init], dtype=dtype)
    scale = 1 / tags_size if over_tags == "mean" else 1.0

    def eval_view(examples: Mapping[str, Any]) -> dict[str, Any]:
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
        _, best = jax.lax.top_k(logits, min(TOP, tags_size))
        hits = (best[..., None] == tags[..., None, :]).any(-2).astype(dtype)
        return Outcomes(loss, (hits * tagged).sum(-1), tagged.sum(-1))

    def initial_params(key: Any) -> Any:
        return model.init(key, jnp.zeros((1, 1), jnp.int32), jnp.zeros((1, 1), dtype))

    return Task(
        "stackoverflow_tp",
        store,
        initial_params,
        view=lambda key, examples: eval_view(examples),
        eval_view=eval_view,
        outcomes=outcomes,
        settings=SETTINGS.for_store(store),
        metric="recall at 5",
        linear=tag_regression(tags_size, over_tags=over_tags, over_batch=over_batch),
        over_batch=over_batch,
    )
