"""What a round draws: M of N clients, K mini-batches of B examples each, and what the loss sees of them."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
from jaxtyping import Array, Bool, Int, PyTree

from lur._checks import positive_integer
from lur.data.gather import Resident, check_device_dtypes, gather
from lur.data.sampling import Draw, client_key, shuffled_epochs, steps_of_epochs, with_replacement
from lur.data.store import Store
from lur.methods.method import Batches, Method

View = Callable[[Any, Mapping[str, Any]], PyTree]
"""``view(key, examples) -> batch``: what the loss sees of a mini-batch of stored examples, augmented or not."""


class SamplingPlan(NamedTuple):
    """What a round draws from a store.

    Attributes:
      N: number of clients in the store.
      M: number of clients per round.
      K: number of local steps.
      B: number of examples per mini-batch.
      epochs: E, if clients go E times through their shuffled data; None if they draw with replacement.
      largest: number of examples of the largest client.
      is_equal: whether all clients have the same number of examples.
      widths: widths of the padded ragged features, by name.
      weighting: whether clients are weighted uniformly or by their numbers of examples.
    """

    N: int
    M: int
    K: int
    B: int
    epochs: int | None
    largest: int
    is_equal: bool
    widths: tuple[tuple[str, int], ...]
    weighting: Literal["uniform", "examples"]


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


def plan_sampling(
    store: Store,
    method: Method,
    clients_per_round: int,
    batch_size: int,
    epochs: int | None = None,
    weighting: Literal["uniform", "examples"] = "uniform",
) -> SamplingPlan:
    """Return what the rounds of a method draw from a store, checked; the arguments are those of `lur.run`."""
    M = positive_integer("clients_per_round", clients_per_round)
    B = positive_integer("batch_size", batch_size)
    if store.clients < M:
        raise ValueError(
            f"clients_per_round must be at most the number of clients in the store, {store.clients}, got {M}"
        )
    if method.full_participation and store.clients != M:
        raise ValueError(
            f"clients_per_round must be all {store.clients} clients of the store, which this method needs in every "
            f"round, got {M}"
        )
    if weighting not in ("uniform", "examples"):
        raise ValueError(f"weighting must be 'uniform' or 'examples', got {weighting!r}")
    if method.uniform_weights and weighting != "uniform":
        raise ValueError(f"weighting must be 'uniform' with this method, which needs uniform means, got {weighting!r}")
    check_device_dtypes(store)
    largest, K = int(store.sizes.max()), method.local_steps
    if epochs is not None:
        epochs = positive_integer("epochs", epochs)
        K = steps_of_epochs(epochs, largest, B)
        if method.local_steps != K:
            raise ValueError(
                f"{epochs} epochs over the largest client ({largest} examples, batches of {B}) take K = {K} steps, "
                f"got a method with {method.local_steps}; use theta = lur.theta.fedavg({K})"
            )
    is_equal = bool((store.sizes == largest).all())
    widths = tuple(sorted(store.widths.items()))
    return SamplingPlan(store.clients, M, K, B, epochs, largest, is_equal, widths, weighting)


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


def client_batches(
    plan: SamplingPlan, view: View, round_key: Any, client: tuple[Any, Any, Any], read: Callable[[Any], Any]
) -> Batches:
    """Return the mini-batches of a client in a round. A step without examples is padding.

    Args:
      plan, view: see `lur.engine.rounds.Rounds`.
      round_key: the key of the round.
      client: the client's index, and the examples and mask of its steps.
      read: makes the examples of a step.
    """
    steps = local_steps(plan, round_key, *client)
    key = jax.random.fold_in(client_key(round_key, client[0]), 2)

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

    is_step = None if steps.mask is None or plan.is_equal else steps.mask.any(axis=-1)
    return Batches(steps, batch_of, is_step, key)


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
