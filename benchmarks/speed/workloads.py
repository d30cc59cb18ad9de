"""The workloads of the speed benchmarks: a model and its loss, the paper's sizes, and synthetic clients.

Examples are random, since time does not depend on their content. Every client has K B of them. Sequences have no
padding, and the words of a bag are distinct. Learning rates are small for models with kinks (relu, maxima): with larger
rates on noise, a rounding error can put a value on the other side of a kink, and the following steps amplify it.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lur import models
from lur.engine.fast.linear import LinearModel
from lur.models.layers.dense import inner
from lur.models.layers.forms import Form
from lur.models.layers.losses import sigmoid_cross_entropy, softmax_cross_entropy
from lur.tasks.stackoverflow_tp import tag_regression
from lur.tasks.task import sequence_outcomes

Batch = Mapping[str, Any]
CLIENTS_PER_PARTICIPANT = 2
"""Clients in the store for each client of a round."""


class Sizes(NamedTuple):
    """Sizes of a round.

    Attributes:
        M: Clients per round.
        K: Local steps.
        B: Batch size.
    """

    M: int
    K: int
    B: int

    @property
    def examples(self) -> int:
        """Example gradients per round, M K B."""
        return self.M * self.K * self.B


class Workload(NamedTuple):
    """What is timed.

    Attributes:
        sizes: The paper's M, K and B.
        rounds: Rounds in a turn.
        client_lr: gamma.
        chunk: Largest batch of the floor, the gradient of all the examples of a round.
        examples: ``examples(generator, n)`` makes n examples.
        model: ``model(form)`` returns ``(init(key), loss(params, batch))`` with layers of this form
            (`lur.models.layers.forms`).
        tolerance: Allowed difference of the final parameters, relative to the distance they moved.
        linear: The model as a linear model; None if it is not one.
    """

    sizes: Sizes
    rounds: int
    client_lr: float
    chunk: int
    examples: Callable[[np.random.Generator, int], dict[str, np.ndarray]]
    model: Callable[[Form], tuple[Callable[[Any], Any], Callable[[Any, Batch], Any]]]
    tolerance: float = 1e-2
    linear: LinearModel | None = None


def logistic(form: Form):
    """Binary logistic regression on 50 features, initialised at zero."""

    def loss(params: Any, batch: Batch) -> Any:
        return sigmoid_cross_entropy(inner(batch["x"], params["kernel"], form=form), batch["y"], form=form).mean()

    return lambda key: {"kernel": jnp.zeros(50, jnp.float32)}, loss


LOGISTIC = LinearModel((), lambda batch: batch["x"], lambda batch: batch["y"], sigmoid_cross_entropy)


def logistic_examples(generator: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    """n examples with 50 features and a binary label."""
    x = generator.standard_normal((n, 50)).astype(np.float32)
    return {"x": x, "y": (x.sum(1) + generator.standard_normal(n) > 0).astype(np.float32)}


def classifier(model: Callable[[Form], Any], shape: tuple[int, ...]):
    """An image classifier with the mean cross-entropy as its loss."""

    def build(form: Form):
        net = model(form)

        def loss(params: Any, batch: Batch) -> Any:
            return softmax_cross_entropy(net.apply(params, batch["x"]), batch["y"], form=form).mean()

        return lambda key: net.init(key, jnp.zeros((1, *shape), jnp.float32)), loss

    return build


def image_examples(shape: tuple[int, ...], classes: int):
    """A function that makes random images with random labels."""

    def examples(generator: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        x = generator.standard_normal((n, *shape), np.float32)
        return {"x": x, "y": generator.integers(0, classes, n, np.int32)}

    return examples


def language(model: Callable[[Form], Any]):
    """A language model with the mean cross-entropy over the positions that are not padding."""

    def build(form: Form):
        net = model(form)

        def loss(params: Any, batch: Batch) -> Any:
            x, y = batch["tokens"][..., :-1], batch["tokens"][..., 1:]
            logits = net.apply(params, x)
            return sequence_outcomes(softmax_cross_entropy(logits, y, form=form), jnp.zeros_like(y), y != 0).loss.mean()

        return lambda key: net.init(key, jnp.zeros((1, 2), jnp.int32)), loss

    return build


def token_examples(length: int, vocabulary: int):
    """A function that makes random sequences of length + 1 tokens."""

    def examples(generator: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"tokens": generator.integers(1, vocabulary, (n, length + 1), np.int32)}

    return examples


def tags(form: Form):
    """One-versus-rest logistic regression on bags of words; the loss is the mean over 500 tags."""
    net = models.TagRegression(form=form)

    def loss(params: Any, batch: Batch) -> Any:
        logits: Any = net.apply(params, batch["words"], batch["weights"])
        positive = jnp.take_along_axis(logits, batch["tags"], -1).sum(-1)
        return (jax.nn.softplus(logits).sum(-1) - positive).mean() / logits.shape[-1]

    return lambda key: net.init(key, jnp.zeros((1, 1), jnp.int32), jnp.zeros((1, 1), jnp.float32)), loss


def distinct(generator: np.random.Generator, n: int, count: int, below: int) -> np.ndarray:
    """n rows of `count` distinct integers, one from each of `count` ranges of equal width."""
    width = below // count
    return generator.integers(0, width, (n, count), np.int32) + np.arange(count, dtype=np.int32) * np.int32(width)


def tag_examples(generator: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    """n examples with 64 of 10,000 words and 4 of 500 tags."""
    words, tags = distinct(generator, n, 64, 10_000), distinct(generator, n, 4, 500)
    weights, tagged = np.full(words.shape, 1 / 64, np.float32), np.ones(tags.shape, bool)
    return {"words": words, "weights": weights, "tags": tags, "tagged": tagged}


WORKLOADS: dict[str, Workload] = {
    "tiny": Workload(Sizes(10, 10, 1), 1000, 0.1, 100, logistic_examples, logistic, 1e-5, LOGISTIC),
    "femnist": Workload(
        Sizes(10, 10, 20),
        2,
        1e-3,
        2000,
        image_examples((28, 28, 1), 62),
        classifier(lambda form: models.CNN(form=form), (28, 28, 1)),
    ),
    "cifar100": Workload(
        Sizes(10, 10, 20),
        1,
        1e-3,
        500,
        image_examples((24, 24, 3), 100),
        classifier(lambda form: models.ResNet18(form=form), (24, 24, 3)),
    ),
    "shakespeare": Workload(
        Sizes(10, 10, 4), 2, 0.5, 400, token_examples(80, 90), language(lambda form: models.shakespeare(form=form))
    ),
    "stackoverflow_nwp": Workload(
        Sizes(50, 10, 16), 1, 0.1, 400, token_examples(20, 10_004), language(lambda form: models.next_word(form=form))
    ),
    "stackoverflow_tp": Workload(Sizes(50, 10, 16), 1, 10.0, 2000, tag_examples, tags, linear=tag_regression(500)),
}
