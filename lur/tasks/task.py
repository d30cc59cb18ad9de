r"""A task: a store, a model, a loss, and the paper's M, K and B.

The loss of an example z is :math:`f(x; z)`, a mini-batch's the mean over its examples; of a sequence it is the
mean over the positions that are not padding. Accuracy counts positions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from lur.data.store import Store
from lur.engine.fast.linear import LinearModel


class Outcomes(NamedTuple):
    """What a model makes of each example of a batch: its loss, how many answers are right, of how many."""

    loss: Float[Array, "B"]
    correct: Float[Array, "B"]
    answers: Float[Array, "B"]


class Settings(NamedTuple):
    """The sizes and rates of a run, as the paper has them where it says."""

    clients_per_round: int
    steps: int
    batch_size: int
    client_lr: float
    server_lr: float
    server: Literal["sgd", "yogi", "adam"] = "sgd"

    def fitting(self, store: Store) -> "Settings":
        """The same with no more clients per round than the store has."""
        return self._replace(clients_per_round=min(self.clients_per_round, store.clients))


@dataclass(frozen=True)
class Task:
    """Everything that a run needs but the algorithm.

    ``init(key) -> params``; ``view(key, examples) -> batch`` for training and ``plain(examples) -> batch`` for
    evaluation (no augmentation); ``outcomes(params, batch)``. A large linear model says so in `linear`, and then
    needs no model per client (`lur.engine.fast.linear`).
    """

    name: str
    store: Store
    init: Callable[[Any], PyTree]
    view: Callable[[Any, Mapping[str, Any]], dict[str, Any]]
    plain: Callable[[Mapping[str, Any]], dict[str, Any]]
    outcomes: Callable[[PyTree, Mapping[str, Any]], Outcomes]
    settings: Settings
    metric: str = "accuracy"
    linear: LinearModel | None = None

    def loss(self, params: PyTree, batch: Mapping[str, Any]) -> Float[Array, ""]:
        """The mean loss over a mini-batch; of masked examples none, and 0 if all are."""
        losses = self.outcomes(params, batch).loss
        if "mask" not in batch:
            return losses.mean()
        mask = batch["mask"].astype(losses.dtype)
        return (losses * mask).sum() / jnp.maximum(mask.sum(), 1)


def classification(logits: Float[Array, "B C"], losses: Float[Array, "B"], label: Any) -> Outcomes:
    """Outcomes of one answer per example."""
    right = (logits.argmax(-1) == label).astype(losses.dtype)
    return Outcomes(losses, right, jnp.ones_like(right))


def sequence(losses: Float[Array, "B T"], right: Any, real: Any) -> Outcomes:
    """Outcomes of one answer per position, of which only the real ones count."""
    real = real.astype(losses.dtype)
    count = real.sum(-1)
    loss = (losses * real).sum(-1) / jnp.maximum(count, 1)
    return Outcomes(loss, (right.astype(losses.dtype) * real).sum(-1), count)
