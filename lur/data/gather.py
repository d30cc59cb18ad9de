"""Gathering mini-batches from a store, in device memory or on the host.

Both take the same positions, drawn by `lur.data.sampling`, and return the same numbers. A ragged feature is padded
with zeros to the longest row of the store, and its lengths are returned as ``<feature>_length``.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from lur.data.file_facts import fact
from lur.data.ragged import Ragged
from lur.data.store import Store

ROWS_PER_CHECK = 2**20
"""The numbers of a feature that are checked at once."""


class Rows(NamedTuple):
    """A ragged feature in device memory.

    Attributes:
      values: the values of all rows, end to end.
      offsets: where each row begins: row i is ``values[offsets[i]:offsets[i + 1]]``.
    """

    values: Array
    offsets: Int[Array, "n+1"]


class Resident(NamedTuple):
    """A store in device memory, as a pytree.

    Attributes:
      features: each feature as a jax array, or as `Rows` with int32 offsets if it is ragged.
      offsets: where each client's examples begin: client i owns examples ``offsets[i]:offsets[i + 1]``.
    """

    features: dict[str, Any]
    offsets: Int[Array, "N+1"]


def resident(store: Store, sharding: Any = None) -> Resident:
    """Return the store in device memory.

    Args:
      store: the store.
      sharding: the sharding of all arrays; by default the default device.
    """
    if store.examples >= 2**31 or any(
        len(feature.values) >= 2**31 for feature in store.features.values() if isinstance(feature, Ragged)
    ):
        raise ValueError(
            f"a store in device memory must have fewer than 2^31 examples and values, got {store.examples} examples; "
            "gather on the host instead"
        )
    check_device_dtypes(store)

    def move(feature: Any) -> Any:
        if isinstance(feature, Ragged):
            return Rows(jnp.asarray(np.asarray(feature.values)), jnp.asarray(np.asarray(feature.offsets, np.int32)))
        return jnp.asarray(np.asarray(feature))

    features = {name: move(feature) for name, feature in store.features.items()}
    moved = Resident(features, jnp.asarray(np.asarray(store.offsets, np.int32)))
    return moved if sharding is None else jax.device_put(moved, sharding)


def check_device_dtypes(store: Store) -> None:
    """Raise a ValueError if a number does not fit the dtype that jax gives it.

    Without jax_enable_x64, int64 becomes int32, in which 2^32 + 7 would be 7, and float64 becomes float32. A file of a
    store on disk is read once per change.
    """
    for name, feature in store.features.items():
        values = feature.values if isinstance(feature, Ragged) else feature
        dtype = jax.dtypes.canonicalize_dtype(values.dtype)
        if dtype == values.dtype:
            continue
        rows = "value {} of " + name if isinstance(feature, Ragged) else name + " of example {}"
        if store.path is None:
            check_range(rows, values, dtype)
        else:
            fact(f"fits {dtype}", [store.path / f"{name}.bin"], partial(check_range, rows, values, dtype))


def check_range(rows: str, values: np.ndarray, dtype: np.dtype) -> None:
    """Raise a ValueError if a finite number is outside the range of the dtype; `rows` names its row."""
    limits = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    step = max(ROWS_PER_CHECK // max(int(values[:1].size), 1), 1)
    for start in range(0, len(values), step):
        part = np.asarray(values[start : start + step])
        outside = ((part < limits.min) | (part > limits.max)) & np.isfinite(part)
        if outside.any():
            row = int(np.argwhere(outside)[0, 0])
            raise ValueError(
                f"{rows.format(start + row)} must fit {dtype}, which jax uses unless jax_enable_x64 is set, "
                f"got {part[outside][0]}"
            )


def size_in_bytes(store: Store) -> int:
    """Return the bytes that the features of a store occupy in device memory."""
    return sum(
        feature.values.nbytes + 4 * len(feature.offsets) if isinstance(feature, Ragged) else feature.nbytes
        for feature in store.features.values()
    )


def gather(features: dict[str, Any], widths: dict[str, int], rows: Any) -> dict[str, Any]:
    """Return the examples at some positions.

    Args:
      features: the features of a `Store` or of a `Resident`.
      widths: the length of the longest row of each ragged feature.
      rows: the positions of the examples, an integer array of any shape.

    Returns:
      Each feature at these positions, jax arrays if the features are, else numpy arrays.
    """
    out: dict[str, Any] = {}
    for name, feature in features.items():
        if isinstance(feature, Ragged | Rows):
            out[name], out[f"{name}_length"] = padded_rows(feature, widths[name], rows)
        else:
            out[name] = feature[rows]
    return out


def padded_rows(feature: Ragged | Rows, width: int, rows: Any) -> tuple[Any, Any]:
    """Return rows of a ragged feature, padded with zeros to `width`, and their lengths."""
    xp = jnp if isinstance(feature.values, jax.Array) else np
    start, stop = feature.offsets[rows], feature.offsets[rows + 1]
    lengths = xp.asarray(stop - start, xp.int32)
    if width == 0 or not len(feature.values):
        return xp.zeros((*rows.shape, width), feature.values.dtype), lengths
    k = xp.arange(width, dtype=start.dtype)
    inside = k < lengths[..., None].astype(start.dtype)
    values = feature.values[xp.where(inside, start[..., None] + k, 0)]
    return xp.where(inside, values, xp.zeros((), feature.values.dtype)), lengths
