"""Next-token prediction: what the two language tasks share. Padding, token 0, never counts."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from lur.data.store import Store
from lur.models.layers.losses import softmax_cross_entropy
from lur.models.lstm_lm import LSTMLM
from lur.tasks.task import Outcomes, Settings, Task, sequence_outcomes


def language_task(name: str, store: Store, model: LSTMLM, length: int, settings: Settings) -> Task:
    """Return the task of predicting ``tokens[1:]`` from ``tokens[:-1]``.

    Args:
      name: the name of the task.
      store: clients with the feature ``tokens`` of shape (n, length + 1).
      model: the language model.
      length: the number of positions at which the model predicts.
      settings: the default sizes and learning rates.
    """

    def eval_view(examples: Mapping[str, Any]) -> dict[str, Any]:
        return {"tokens": examples["tokens"].astype(jnp.int32)}

    def outcomes(params: Any, batch: Mapping[str, Any]) -> Outcomes:
        inputs, targets = batch["tokens"][..., :-1], batch["tokens"][..., 1:]
        logits: Any = model.apply(params, inputs)
        losses = softmax_cross_entropy(logits, targets)
        return sequence_outcomes(losses, logits.argmax(-1) == targets, targets != 0)

    def init(key: Any) -> Any:
        return model.init(key, jnp.zeros((1, length), jnp.int32))

    return Task(
        name,
        store,
        init,
        view=lambda key, examples: eval_view(examples),
        eval_view=eval_view,
        outcomes=outcomes,
        settings=settings.for_store(store),
    )
