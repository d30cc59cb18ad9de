"""Next-token prediction: what the two language tasks share. Padding, token 0, never counts in the accuracy.

The option `positions` says which positions of a sequence count in the loss, and how padding is read:

================  ====================================================================================================
``tokens``        Those whose target is a token: the mean over each sequence, then over the mini-batch. The default.
``all``           All, padding too. The LSTMs read padding as a token, as Keras does without an input mask.
``all_held``      All. The LSTMs hold their state at padding, as with Keras's input mask (``mask_zero``): the published
                  model in a training loop that calls the loss itself, where the mask does not reach the loss.
``inputs``        Those whose input is a token, of the mini-batch together: the input mask in the loss, as newer
                  versions of Keras have it.
================  ====================================================================================================
"""

from collections.abc import Mapping
from typing import Any, Literal

import jax.numpy as jnp
from jaxtyping import Array, Int

from lur.data.store import Store
from lur.models.layers.losses import softmax_cross_entropy
from lur.models.lstm_lm import LSTMLM
from lur.tasks.task import Outcomes, Settings, Task, checked_choice, sequence_outcomes

Positions = Literal["tokens", "all", "all_held", "inputs"]


def language_task(
    name: str,
    store: Store,
    model: LSTMLM,
    length: int,
    settings: Settings,
    positions: Positions = "tokens",
    *,
    only_last: bool = False,
) -> Task:
    """Return the task of predicting ``tokens[1:]`` from ``tokens[:-1]``.

    Args:
      name: the name of the task.
      store: clients with the feature ``tokens`` of shape (n, length + 1).
      model: the language model.
      length: the number of positions at which the model predicts.
      settings: the default sizes and learning rates.
      positions: which positions count in the loss, see above.
      only_last: whether the last token is the only target, in the loss and in the accuracy; with ``tokens`` only.
    """
    checked_choice("positions", positions, ("tokens", "all", "all_held", "inputs"))
    model = model.clone(holds_at_padding=positions == "all_held")

    def eval_view(examples: Mapping[str, Any]) -> dict[str, Any]:
        return {"tokens": examples["tokens"].astype(jnp.int32)}

    def outcomes(params: Any, batch: Mapping[str, Any]) -> Outcomes:
        inputs, targets = batch["tokens"][..., :-1], batch["tokens"][..., 1:]
        logits: Any = model.apply(params, inputs)
        losses = softmax_cross_entropy(logits, targets)
        counted = {"tokens": None, "inputs": inputs != 0}.get(positions, jnp.ones_like(targets, bool))
        is_target = targets != 0
        if only_last:
            is_target &= jnp.arange(targets.shape[-1]) == targets.shape[-1] - 1
        return sequence_outcomes(losses, logits.argmax(-1) == targets, is_target, counted)

    def input_tokens(batch: Mapping[str, Any]) -> Int[Array, "B"]:
        return (batch["tokens"][..., :-1] != 0).sum(-1)

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
        example_weights=input_tokens if positions == "inputs" else None,
    )
