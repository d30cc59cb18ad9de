"""From the store to mini-batches: on the device where the store fits, on the host (and ahead of time) where not.

Both take the same positions, drawn by `lur.data.sampling`, and give the same numbers. A ragged feature comes
out padded with zeros to the store's widest row, with its lengths as ``<feature>_length``.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from lur.data.ragged import Ragged
from lur.data.store import Store


class Rows(NamedTuple):
    """A ragged feature in device memory: row i is ``values[offsets[i]:offsets[i + 1]]``."""

    values: Array
    offsets: Int[Array, "n+1"]


class Resident(NamedTuple):
    """A store in device memory, as a pytree: features as jax arrays, ragged ones with int32 offsets."""

    features: dict[str, Any]
    offsets: Int[Array, "N+1"]


def resident(store: Store, sharding: Any = None) -> Resident:
    """Move a store to the device, or to all of a sharding's."""
    if store.examples >= 2**31 or any(
        len(feature.values) >= 2**31 for feature in store.features.values() if isinstance(feature, Ragged)
    ):
        raise ValueError("a resident store must have fewer than 2^31 examples and values; gather on the host instead")

    def move(feature: Any) -> Any:
        if isinstance(feature, Ragged):
            return Rows(jnp.asarray(np.asarray(feature.values)), jnp.asarray(np.asarray(feature.offsets, np.int32)))
        return jnp.asarray(np.asarray(feature))

    features = {name: move(feature) for name, feature in store.features.items()}
    moved = Resident(features, jnp.asarray(np.asarray(store.offsets, np.int32)))
    return moved if sharding is None else jax.device_put(moved, sharding)


def size_in_bytes(store: Store) -> int:
    """What a resident store would occupy."""
    return sum(
        feature.values.nbytes + 4 * len(feature.offsets) if isinstance(feature, Ragged) else feature.nbytes
        for feature in store.features.values()
    )


def gather(features: dict[str, Any], widths: dict[str, int], rows: Any) -> dict[str, Any]:
    """The examples `rows` of each feature, whatever the shape of `rows`: jax arrays if the store's are, else numpy."""
    out: dict[str, Any] = {}
    for name, feature in features.items():
        if isinstance(feature, Ragged | Rows):
            out[name], out[f"{name}_length"] = padded_rows(feature, widths[name], rows)
        else:
            out[name] = feature[rows]
    return out


def padded_rows(feature: Ragged | Rows, width: int, rows: Any) -> tuple[Any, Any]:
    """Rows of a ragged feature, padded with zeros to `width`, and their lengths."""
    xp = jnp if isinstance(feature.values, jax.Array) else np
    start, stop = feature.offsets[rows], feature.offsets[rows + 1]
    lengths = xp.asarray(stop - start, xp.int32)
    if width == 0 or not len(feature.values):
        return xp.zeros((*rows.shape, width), feature.values.dtype), lengths
    k = xp.arange(width, dtype=start.dtype)
    inside = k < lengths[..., None].astype(start.dtype)
    values = feature.values[xp.where(inside, start[..., None] + k, 0)]
    return xp.where(inside, values, xp.zeros((), feature.values.dtype)), lengths
