"""Which token comes next: what the two language tasks share. Padding, token 0, counts nowhere."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from lur.data.store import Store
from lur.models.layers.losses import softmax_cross_entropy
from lur.tasks.task import Outcomes, Settings, Task, sequence


def language_task(name: str, store: Store, model: Any, length: int, settings: Settings) -> Task:
    """The task of predicting ``tokens[1:]`` from ``tokens[:-1]``, sequences of `length` each."""

    def plain(examples: Mapping[str, Any]) -> dict[str, Any]:
        return {"tokens": examples["tokens"].astype(jnp.int32)}

    def outcomes(params: Any, batch: Mapping[str, Any]) -> Outcomes:
        x, y = batch["tokens"][..., :-1], batch["tokens"][..., 1:]
        logits: Any = model.apply(params, x)
        return sequence(softmax_cross_entropy(logits, y), logits.argmax(-1) == y, y != 0)

    def init(key: Any) -> Any:
        return model.init(key, jnp.zeros((1, length), jnp.int32))

    return Task(name, store, init, lambda key, z: plain(z), plain, outcomes, settings.fitting(store))
