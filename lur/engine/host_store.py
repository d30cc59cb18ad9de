"""A store that stays on the host, in memory or memory-mapped: the examples of some rounds are read from it.

With several processes, each process reads only its own clients' examples.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int

from lur.data.gather import gather
from lur.data.ragged import Ragged
from lur.data.sampling import Draw, round_key
from lur.data.store import Store
from lur.engine.batches import draw
from lur.engine.sampling_plan import SamplingPlan, sample_cohort
from lur.methods.compiled import jit_per_settings
from lur.parallel.layouts import SHARDED_FORMS, Layout
from lur.parallel.mesh import CLIENTS_AXIS, mesh_of
from lur.parallel.processes import place_arrays

TRANSFER_BYTES = 2**24
"""Bytes of examples that move to a process's devices at once, if more than one round's examples fit."""
TRANSFER_ROUNDS = 64
"""The largest number of rounds whose examples move at once."""


class ProcessShare(NamedTuple):
    """The clients of a round that this process runs, if there are several processes.

    Attributes:
      padded: M rounded up to a multiple of the number of devices. A place from M on is the last client again, with
        weight 0.
      places: the places of this process's clients among these.
      mesh: the mesh over the devices of all processes.
    """

    padded: int
    places: Int[np.ndarray, "own"]
    mesh: Mesh


class HostRounds(NamedTuple):
    """The examples of some rounds, read on the host.

    Attributes:
      clients: the indices of each round's clients among the states in `ServerState.clients`.
      indices: the indices of each round's clients in the store.
      examples: the mini-batches, with leading axes (rounds, M, K, B); with several processes an array over the devices
        of all processes.
      mask: which examples count; None if all do.
      weights: the clients' weights; None for the uniform mean of one process.
    """

    clients: Int[Array, "rounds M"]
    indices: Int[Array, "rounds M"]
    examples: dict[str, Any]
    mask: Any
    weights: Any


def process_share(M: int, layout: Layout) -> ProcessShare | None:
    """Return the share of this process; None if one process runs all clients."""
    if jax.process_count() == 1:
        return None
    if layout.devices != jax.device_count():
        raise ValueError(
            f"layout must be {SHARDED_FORMS} with {jax.process_count()} processes, over the devices of all of them, "
            f"got {layout}"
        )
    padded, mesh = M + -M % layout.devices, mesh_of(layout)
    indices = NamedSharding(mesh, P(CLIENTS_AXIS)).addressable_devices_indices_map((padded,)).values()
    slices = [index[0] for index in indices if index is not None]
    bounds = sorted({(own.start or 0, padded if own.stop is None else own.stop) for own in slices})
    return ProcessShare(padded, np.concatenate([np.arange(*bound) for bound in bounds]), mesh)


@jit_per_settings(1)
def sample_rounds(plan: SamplingPlan, seed: Any, ts: Int[Array, "rounds"]) -> Int[Array, "rounds M"]:
    """Return the clients of the rounds `ts`."""
    return jax.vmap(partial(sample_cohort, plan, seed))(ts)


@jit_per_settings(1)
def draw_rounds(plan: SamplingPlan, seed: Any, ts: Any, clients: Any, sizes: Any) -> Draw:
    """Return the positions of all mini-batches of the rounds `ts`."""

    def draw_round(t: Any, clients: Any, sizes: Any) -> Draw:
        return jax.vmap(partial(draw, plan, round_key(seed, t)))(clients, sizes)

    return jax.vmap(draw_round)(ts, clients, sizes)


def read_rounds(
    plan: SamplingPlan, store: Store, seed: Any, ts: np.ndarray, share: ProcessShare | None = None
) -> HostRounds:
    """Read the examples of the rounds `ts`; only those that this process needs are touched."""
    ts = np.asarray(ts, np.int32)
    clients = np.asarray(sample_rounds(plan, seed, ts))
    if share is not None:
        clients = clients[:, np.minimum(np.arange(share.padded), plan.M - 1)]
    starts, stops = np.asarray(store.offsets[clients]), np.asarray(store.offsets[clients + 1])
    sizes = (stops - starts).astype(np.int32)
    own = slice(None) if share is None else share.places
    positions, mask = draw_rounds(plan, seed, ts, clients[:, own], sizes[:, own])
    rows = starts[:, own, None, None] + np.asarray(positions)
    examples = gather(dict(store.features), dict(plan.widths), rows)
    if share is None:
        weights = sizes if plan.weighting == "examples" else None
        return HostRounds(clients, clients, examples, mask, weights)  # pyright: ignore[reportArgumentType]
    weights = np.where(np.arange(share.padded) < plan.M, sizes if plan.weighting == "examples" else 1, 0)
    return _join_processes(share, clients, examples, mask, np.broadcast_to(weights, sizes.shape))


def _join_processes(share: ProcessShare, clients: Any, examples: Any, mask: Any, weights: Any) -> HostRounds:
    """Return the processes' examples as one array over the devices of all processes; nothing is sent."""
    by_client = NamedSharding(share.mesh, P(None, CLIENTS_AXIS))

    def joined(leaf: Any) -> Array:
        value = np.asarray(leaf)
        return jax.make_array_from_process_local_data(by_client, value, (len(value), share.padded, *value.shape[2:]))

    clients, weights = place_arrays((clients, weights.astype(np.float32)), NamedSharding(share.mesh, P()))
    examples, mask = jax.tree.map(joined, (examples, mask))
    return HostRounds(clients, clients, examples, mask, weights)


def rounds_per_transfer(plan: SamplingPlan, store: Store) -> int:
    """Return for how many rounds the examples move to the device at once."""
    widths = dict(plan.widths)
    example = sum(
        (widths[name] * feature.values.itemsize if isinstance(feature, Ragged) else feature[:1].nbytes)
        for name, feature in store.features.items()
    )
    own = -(-plan.M // jax.process_count()) * plan.K * plan.B * max(example, 1)
    return min(max(TRANSFER_BYTES // own, 1), TRANSFER_ROUNDS)
