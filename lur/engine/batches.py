"""A client's mini-batches: the examples that its local steps draw, and what the loss sees of them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from lur.data.gather import Resident, gather
from lur.data.sampling import Draw, client_key, sample_steps, shuffled_epochs, with_replacement
from lur.engine.array_setting import ArraySetting
from lur.engine.sampling_plan import SamplingPlan
from lur.methods.method import Batches

View = Callable[[Any, Mapping[str, Any]], PyTree]
"""``view(key, examples) -> batch``: what the loss sees of a mini-batch of stored examples, augmented or not."""


class LocalSteps(NamedTuple):
    """What a client's K local steps need, with leading axis K.

    Attributes:
      examples: the steps' examples, or their rows in a store.
      key: a random key per step, for the view; `Batches.key` is another one, for the client.
      mask: which examples of each mini-batch count; None if all do.
    """

    examples: Any
    key: Any
    mask: Bool[Array, "K B"] | None


def draw(plan: SamplingPlan, round_key: Any, i: Int[Array, ""], n: Int[Array, ""]) -> Draw:
    """Return the positions, among its n examples, of client i's mini-batches in a round."""
    key = client_key(round_key, i)
    if plan.epochs is None:
        return with_replacement(key, n, plan.K, plan.B)
    return shuffled_epochs(key, n, plan.epochs, plan.B, plan.largest)


def local_steps(plan: SamplingPlan, round_key: Any, i: Int[Array, ""], examples: Any, mask: Any) -> LocalSteps:
    """Return the K steps of client i in a round, each with a key of its own for augmentation or dropout."""
    keys = jax.random.split(jax.random.fold_in(client_key(round_key, i), 1), plan.K)
    return LocalSteps(examples, keys, mask)


def is_local_step(plan: SamplingPlan, key: Any, i: Int[Array, ""], mask: Any) -> Bool[Array, "K"] | None:
    """Return which of the K steps client i, whose key is `key`, takes; None if it takes all of them.

    A step without examples and a step from K_i on are padding.
    """
    if plan.steps is None:
        return None if mask is None or plan.is_equal else mask.any(axis=-1)
    K_i = (
        sample_steps(key, *plan.steps) if not isinstance(plan.steps, ArraySetting) else jnp.asarray(plan.steps.array)[i]
    )
    return jnp.arange(plan.K, dtype=jnp.int32) < K_i


def client_batches(
    plan: SamplingPlan, view: View, round_key: Any, client: tuple[Any, Any, Any], read: Callable[[Any], Any]
) -> Batches:
    """Return the mini-batches of a client in a round.

    Args:
      plan, view: see `lur.engine.rounds.Rounds`.
      round_key: the key of the round.
      client: the client's index, and the examples and mask of its steps.
      read: makes the examples of a step.
    """
    i, _, mask = client
    steps, own_key = local_steps(plan, round_key, *client), client_key(round_key, i)

    def batch_of(step: LocalSteps) -> PyTree:
        batch = view(step.key, read(step.examples))
        if step.mask is None:
            return batch
        if not isinstance(batch, Mapping):
            raise ValueError(
                f"view must return arrays by name with epochs, whose mini-batches get a `mask`, "
                f"got {type(batch).__name__}"
            )
        return {**batch, "mask": step.mask}

    is_step = is_local_step(plan, own_key, i, mask)
    return Batches(steps, batch_of, is_step, jax.random.fold_in(own_key, 2))


def resident_batches(plan: SamplingPlan, view: View) -> Callable[[Any, Any], Batches]:
    """Return ``batches_of((store in device memory, round key), client index)``."""

    def batches_of(source: tuple[Resident, Any], i: Int[Array, ""]) -> Batches:
        store, key = source
        start = store.offsets[i]
        positions, mask = draw(plan, key, i, store.offsets[i + 1] - start)
        client = (i, start + positions, mask)
        return client_batches(plan, view, key, client, lambda rows: gather(store.features, dict(plan.widths), rows))

    return batches_of


def as_stored(key: Any, examples: Mapping[str, Any]) -> PyTree:
    """Return the examples unchanged: the view of a loss that takes them as they are stored."""
    return dict(examples)
