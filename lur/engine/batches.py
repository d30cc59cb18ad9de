"""What a round draws: M clients of N, K mini-batches of B each, and what the loss sees of them."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
from jaxtyping import Array, Int, PyTree

from lur.data.sampling import Draw, client_key, shuffled_epochs, steps_of_epochs, with_replacement
from lur.data.store import Store
from lur.methods.server import LocalUpdate

View = Callable[[Any, Mapping[str, Any]], PyTree]
"""``view(key, examples) -> batch``: what the loss sees of a mini-batch of stored examples, augmented or not."""


class Plan(NamedTuple):
    """What a round draws: M clients of N, K mini-batches of B each, or E shuffled epochs."""

    N: int
    M: int
    K: int
    B: int
    epochs: int | None
    largest: int
    widths: tuple[tuple[str, int], ...]
    weighting: Literal["uniform", "examples"]


def plan(
    store: Store,
    algo: LocalUpdate,
    clients_per_round: int,
    batch_size: int,
    epochs: int | None = None,
    weighting: Literal["uniform", "examples"] = "uniform",
) -> Plan:
    """Check the numbers of a run against its store."""
    for name, value in (("clients_per_round", clients_per_round), ("batch_size", batch_size), ("epochs", epochs)):
        if value is not None and (isinstance(value, bool) or int(value) != value or value < 1):
            raise ValueError(f"{name} must be an integer >= 1, got {value!r}")
    if clients_per_round > store.clients:
        raise ValueError(
            f"clients_per_round must be at most the number of clients in the store, {store.clients}, "
            f"got {clients_per_round}"
        )
    if weighting not in ("uniform", "examples"):
        raise ValueError(f"weighting must be 'uniform' or 'examples', got {weighting!r}")
    largest = int(store.sizes.max())
    K = algo.steps
    if epochs is not None:
        K = steps_of_epochs(epochs, largest, batch_size)
        if algo.steps != K:
            raise ValueError(
                f"{epochs} epochs over the largest client ({largest} examples, batches of {batch_size}) take K = {K} "
                f"steps, got an algorithm with {algo.steps}; use theta = lur.theta.fedavg({K})"
            )
    widths = tuple(sorted(store.widths.items()))
    return Plan(store.clients, clients_per_round, K, batch_size, epochs, largest, widths, weighting)


def draw(plan: Plan, key: Any, i: Int[Array, ""], n: Int[Array, ""]) -> Draw:
    """The positions, within its own data, of client i's mini-batches in the round of `key`."""
    own = client_key(key, i)
    if plan.epochs is None:
        return with_replacement(own, n, plan.K, plan.B)
    return shuffled_epochs(own, n, plan.epochs, plan.B, plan.largest)


class Step(NamedTuple):
    """What a client's local steps need: their examples (or their rows in a store), keys, and which examples count."""

    examples: Any
    key: Any
    mask: Any


def own_steps(plan: Plan, key: Any, i: Int[Array, ""], examples: Any, mask: Any) -> Step:
    """The K steps of client i in the round of `key`: each with a key of its own for augmentation."""
    return Step(examples, jax.random.split(jax.random.fold_in(client_key(key, i), 1), plan.K), mask)


def viewed(view: View, step: Step) -> PyTree:
    """A mini-batch as the loss sees it."""
    batch = view(step.key, step.examples)
    return batch if step.mask is None else {**batch, "mask": step.mask}


def as_stored(key: Any, examples: Mapping[str, Any]) -> PyTree:
    """The view that changes nothing."""
    return dict(examples)


def put(infos: PyTree, k: Int[Array, ""], info: PyTree) -> PyTree:
    """A round's info at place k of those of many rounds."""
    return jax.tree.map(lambda all, one: jax.lax.dynamic_update_index_in_dim(all, one, k, 0), infos, info)
