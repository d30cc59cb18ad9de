"""What a round draws: its cohort, M of N clients, and K mini-batches of B examples each."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from lur._checks import client_steps, positive_integer
from lur.data.gather import check_device_dtypes
from lur.data.sampling import (
    next_in_order,
    probability_bounds,
    round_key,
    sample_by_bounds,
    sample_clients,
    sample_independent,
    steps_of_epochs,
)
from lur.data.store import Store
from lur.engine.array_setting import ArraySetting, array_setting
from lur.methods.method import Method

Sampling = Literal["uniform", "iid", "full", "cyclic"]
"""How the cohort of a round is drawn, see `lur.run`."""
Steps = Int[np.ndarray, "N"] | Sequence[int] | tuple[int, int] | None
"""Numbers of local steps K_i: one per client of the store, or a tuple (low, high) to draw from; None is K for all."""


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
      steps: K_i of every client of the store, or the least and the largest of those drawn; None if all take K steps.
      sampling: how the M clients are drawn.
      bounds: of the clients' probabilities, see `lur.data.sampling.probability_bounds`; None if they are equal.
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
    steps: ArraySetting | tuple[int, int] | None = None
    sampling: Sampling = "uniform"
    bounds: ArraySetting | None = None


def plan_sampling(
    store: Store,
    method: Method,
    clients_per_round: int | None,
    batch_size: int,
    epochs: int | None = None,
    weighting: Literal["uniform", "examples"] = "uniform",
    *,
    steps: Steps = None,
    sampling: Sampling = "uniform",
    probabilities: Any = None,
) -> SamplingPlan:
    """Return what the rounds of a method draw from a store, checked; the arguments are those of `lur.run`."""
    M = checked_cohort_size(clients_per_round, store.clients, sampling)
    bounds = checked_probabilities(probabilities, store.clients, sampling)
    B = positive_integer("batch_size", batch_size)
    if method.full_participation and store.clients != M:
        raise ValueError(
            f"clients_per_round must be all {store.clients} clients of the store, which this method needs in every "
            f"round, got {M}"
        )
    if method.full_participation and sampling == "iid":
        raise ValueError("sampling must be of all clients, which this method needs in every round, got 'iid'")
    if weighting not in ("uniform", "examples"):
        raise ValueError(f"weighting must be 'uniform' or 'examples', got {weighting!r}")
    if method.uniform_weights and weighting != "uniform":
        raise ValueError(f"weighting must be 'uniform' with this method, which needs uniform means, got {weighting!r}")
    check_device_dtypes(store)
    largest, K = int(store.sizes.max()), method.local_steps
    if epochs is not None and steps is not None:
        raise ValueError("steps must be None with epochs, which decide each client's number of steps, got both")
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
    return SamplingPlan(
        store.clients,
        M,
        K,
        B,
        epochs,
        largest,
        is_equal,
        widths,
        weighting,
        checked_steps(steps, store.clients, K),
        sampling,
        bounds,
    )


def checked_cohort_size(M: int | None, N: int, sampling: Sampling) -> int:
    """Return M, the number of clients per round that this sampling from N clients can have."""
    if sampling not in get_args(Sampling):
        raise ValueError(f"sampling must be one of {', '.join(get_args(Sampling))}, got {sampling!r}")
    if sampling == "full" and M is None:
        return N
    M = positive_integer("clients_per_round", M)
    if sampling == "full" and M != N:
        raise ValueError(f"clients_per_round must be None or the store's {N} clients with sampling='full', got {M}")
    if sampling != "iid" and N < M:
        raise ValueError(f"clients_per_round must be at most the number of clients in the store, {N}, got {M}")
    return M


def checked_probabilities(p: Any, N: int, sampling: Sampling) -> ArraySetting | None:
    """Return the bounds of N clients' probabilities, checked; None if there are none."""
    if p is None:
        return None
    if sampling != "iid":
        raise ValueError(f"probabilities must be None unless sampling='iid', got sampling={sampling!r}")
    given = np.asarray(p)
    if given.shape != (N,) or given.dtype.kind not in "fiu":
        raise ValueError(
            f"probabilities must be {N} numbers, one per client, got shape {given.shape} of dtype {given.dtype}"
        )
    values = given.astype(np.float64)
    rounding = N * np.finfo(np.float64).eps  # of a sum in any order
    if given.dtype.kind == "f":
        rounding += 64 * np.finfo(given.dtype).eps  # of each number and of numpy's sum that normalised them
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if wrong.size:
        raise ValueError(f"probabilities must be finite and >= 0, got {values[wrong[0]]} at index {wrong[0]}")
    if abs(values.sum() - 1) > rounding:
        raise ValueError(f"probabilities must sum to 1, got a sum of {values.sum():.9g}")
    return array_setting(probability_bounds(values), np.uint32)


def check_kept_states(plan: SamplingPlan, clients: PyTree) -> None:
    """Refuse cohorts in which a client may occur twice if clients keep a state: it would have two next states."""
    if plan.sampling == "iid" and jax.tree.leaves(clients):
        raise ValueError(
            "sampling must be without replacement where clients keep a state, got 'iid': a client that is drawn twice "
            "in a round would have two states after it"
        )


def sample_cohort(plan: SamplingPlan, seed: Any, t: Int[Array, ""]) -> Int[Array, "M"]:
    """Return the indices of the clients of round t."""
    key = round_key(seed, t)
    if plan.sampling == "full":
        return jnp.arange(plan.N, dtype=jnp.int32)
    if plan.sampling == "cyclic":
        return next_in_order(t, plan.N, plan.M)
    if plan.bounds is not None:
        return sample_by_bounds(key, jnp.asarray(plan.bounds.array), plan.M)
    if plan.sampling == "iid":
        return sample_independent(key, plan.N, plan.M)
    return sample_clients(key, plan.N, plan.M)


def checked_steps(steps: Steps, N: int, K: int) -> ArraySetting | tuple[int, int] | None:
    """Return K_i of every client, or the range to draw them from, checked; the arguments are those of `lur.run`."""
    if steps is None:
        return None
    if not isinstance(steps, tuple):
        return array_setting(client_steps(steps, N, K), np.int32)
    if len(steps) != 2 or not all(isinstance(k, int | np.integer) and not isinstance(k, bool) for k in steps):
        raise ValueError(f"steps must be a tuple (low, high) of integers, or an array of {N} integers, got {steps}")
    low, high = map(int, steps)
    if not 1 <= low <= high <= K:
        raise ValueError(f"steps must be (low, high) with 1 <= low <= high <= K = {K}, got {(low, high)}")
    return low, high
