r"""A task: clients, a model, a loss, and the paper's sizes and learning rates.

The loss of an example z is :math:`f(x; z)`; the loss of a mini-batch is the mean over its examples. The loss of a
sequence is the mean over its positions that are not padding, and its accuracy counts those positions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from lur.data.store import Store

if TYPE_CHECKING:  # importing it loads the models' layers, which a task without a linear model does not need
    from lur.engine.fast.linear import LinearModel


class Outcomes(NamedTuple):
    """The result of a model on each example of a batch.

    Attributes:
      loss: the loss of each example.
      correct: the number of right answers in each example.
      answers: the number of answers in each example: 1 in classification, the number of positions that are not
        padding in a sequence.
    """

    loss: Float[Array, "B"]
    correct: Float[Array, "B"]
    answers: Float[Array, "B"]


class Settings(NamedTuple):
    """The default sizes and learning rates of a task, the paper's where the paper has them.

    Attributes:
      clients_per_round: M, the number of clients in a cohort.
      local_steps: K, the number of local steps of each client.
      batch_size: B, the number of examples in a mini-batch.
      client_lr: gamma, the client learning rate.
      server_lr: eta, the server learning rate.
      server: the server optimiser.
    """

    clients_per_round: int
    local_steps: int
    batch_size: int
    client_lr: float
    server_lr: float
    server: Literal["sgd", "yogi", "adam"] = "sgd"

    def for_store(self, store: Store) -> "Settings":
        """Return the same settings with at most as many clients per round as the store has clients."""
        return self._replace(clients_per_round=min(self.clients_per_round, store.clients))


@dataclass(frozen=True)
class Task:
    """Everything a run needs except the method.

    Attributes:
      name: the name of the task, as `lur.tasks.load` takes it.
      store: the clients and their examples, prepared for the model.
      init: ``init(key)`` returns the initial parameters.
      view: ``view(key, examples)`` returns the training batch of some examples, randomly augmented where the task
        augments.
      eval_view: ``eval_view(examples)`` returns the evaluation batch of some examples, without augmentation.
      outcomes: ``outcomes(params, batch)`` returns the loss and the number of right answers of each example.
      settings: the task's default sizes and learning rates.
      metric: the name of the metric that ``correct / answers`` is.
      linear: the model as a `lur.engine.fast.linear.LinearModel`, for large linear models, whose rounds need no
        model per client; None for all others.
      over_batch: whether the loss of a mini-batch is the mean or the sum over its examples.
      example_weights: ``example_weights(batch)`` returns the weight of each example in a mini-batch's mean; None for
        equal weights.
      penalty: ``penalty(params)``, which is added to the loss of every mini-batch; None for nothing. It is no part of
        the outcomes, and so not of an evaluation.
      test: the test examples of the clients of `store`, those that have some; None without any.
      held_out: clients that are never trained on, with the examples that they may adapt to; None without any.
      held_out_test: the test examples of the held-out clients; None without any.
    """

    name: str
    store: Store
    init: Callable[[Any], PyTree]
    view: Callable[[Any, Mapping[str, Any]], dict[str, Any]]
    eval_view: Callable[[Mapping[str, Any]], dict[str, Any]]
    outcomes: Callable[[PyTree, Mapping[str, Any]], Outcomes]
    settings: Settings
    metric: str = "accuracy"
    linear: "LinearModel | None" = None
    over_batch: Literal["mean", "sum"] = "mean"
    example_weights: Callable[[Mapping[str, Any]], Float[Array, "B"]] | None = None
    penalty: Callable[[PyTree], Float[Array, ""]] | None = None
    test: Store | None = None
    held_out: Store | None = None
    held_out_test: Store | None = None

    def split(self, name: str) -> Store:
        """Return the data of a split.

        Args:
          name: ``train``, the examples trained on; ``test``, the test examples of the same clients; or ``clients``,
            held-out clients, with their test examples if they have some.
        """
        held_out = self.held_out if self.held_out_test is None else self.held_out_test
        splits = {"train": self.store, "test": self.test, "clients": held_out}
        if name not in splits:
            raise ValueError(f"split must be one of {', '.join(splits)}, got {name!r}")
        store = splits[name]
        if store is None:
            what = {"test": "test examples", "clients": "held-out clients"}[name]
            found = ", ".join(other for other, data in splits.items() if data is not None)
            raise ValueError(f"the task {self.name} has no {what}: it has the splits {found}")
        return store

    def loss(self, params: PyTree, batch: Mapping[str, Any]) -> Float[Array, ""]:
        """Return the mean loss over a mini-batch, or what the options of the task make of it.

        Args:
          params: the parameters of the model.
          batch: what `view` or `eval_view` returns, optionally with a boolean ``mask`` of shape (B,).

        Returns:
          The mean (or sum) over the examples whose mask is True, or over all of them without a mask, and the penalty; 0
          if the mask excludes every example.
        """
        losses = self.outcomes(params, batch).loss
        penalty = None if self.penalty is None else self.penalty(params)
        weights = None if self.example_weights is None else self.example_weights(batch).astype(losses.dtype)
        if "mask" in batch:
            mask = batch["mask"].astype(losses.dtype)
            weights = mask if weights is None else weights * mask
            penalty = None if penalty is None else penalty * mask.max()
        if self.over_batch == "sum":
            loss = losses.sum() if weights is None else (losses * weights).sum()
        else:
            loss = losses.mean() if weights is None else (losses * weights).sum() / jnp.maximum(weights.sum(), 1)
        return loss if penalty is None else loss + penalty


def classification_outcomes(
    logits: Float[Array, "B classes"], losses: Float[Array, "B"], labels: Int[Array, "B"]
) -> Outcomes:
    """Return the outcomes of a classifier, which gives one answer per example.

    Args:
      logits: the scores of the classes.
      losses: the loss of each example.
      labels: the right classes.
    """
    correct = (logits.argmax(-1) == labels).astype(losses.dtype)
    return Outcomes(losses, correct, jnp.ones_like(correct))


def sequence_outcomes(
    losses: Float[Array, "B T"],
    correct: Bool[Array, "B T"] | Int[Array, "B T"],
    is_token: Bool[Array, "B T"],
    is_counted: Bool[Array, "B T"] | None = None,
) -> Outcomes:
    """Return the outcomes of a sequence model, which gives one answer per position.

    Args:
      losses: the loss at each position.
      correct: whether the prediction at each position is right.
      is_token: False at padding, which does not count in the accuracy.
      is_counted: which positions count in the loss; by default those that are not padding.
    """
    mask = is_token.astype(losses.dtype)
    count = mask.sum(-1)
    counted = mask if is_counted is None else is_counted.astype(losses.dtype)
    loss = (losses * counted).sum(-1) / jnp.maximum(counted.sum(-1), 1)
    return Outcomes(loss, (correct.astype(losses.dtype) * mask).sum(-1), count)


def checked_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse an option of a task that is none of its choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
