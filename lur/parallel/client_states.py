"""The states that clients keep between rounds: one pytree per client of the population, with leading axis N.

They are in device memory where they fit, and otherwise on the host, as rows on disk (`lur.parallel.disk_rows`) or as
numpy arrays that the caller gives. Only the rows of a few rounds' clients are on the device at a time.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, PyTree

from lur.parallel.disk_rows import DiskRows, disk_rows
from lur.parallel.processes import place_arrays

DEVICE_BYTES = 2**31
"""States that take more memory than this stay on the host."""
DEVICE_ROWS_BYTES = 2**27
"""Bytes of states on the host that move to the device at once, if more than one round's states fit."""


def repeat_for_clients(client_state: PyTree, N: int) -> PyTree:
    """Return N clients' states that all start with `client_state`: on the device if they fit, else on disk."""
    if fits_device(jax.eval_shape(lambda: client_state), N):
        return jax.tree.map(lambda leaf: jnp.repeat(jnp.asarray(leaf)[None], N, axis=0), client_state)

    def on_disk(leaf: Any) -> DiskRows:
        return disk_rows(np.asarray(jnp.asarray(leaf)), N)  # in the dtype that it has on the device

    return jax.tree.map(on_disk, client_state)


def fits_device(client_state: PyTree, count: int) -> bool:
    """Return whether `count` states with these shapes and dtypes fit into device memory."""
    return count * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(client_state)) <= DEVICE_BYTES


def place_client_states(clients: PyTree, sharding: Any) -> PyTree:
    """Move states to the devices of a sharding (None: the default device) if they fit, else to the host."""
    if not fits_device(clients, 1):
        return jax.tree.map(lambda leaf: leaf if isinstance(leaf, DiskRows) else np.asarray(leaf), clients)
    return place_arrays(jax.tree.map(jnp.asarray, clients), sharding)


def population(clients: PyTree) -> int | None:
    """Return N, the number of clients that keep a state; None if clients keep none."""
    leaves = jax.tree.leaves(clients)
    return leaves[0].shape[0] if leaves else None


def is_on_host(clients: PyTree) -> bool:
    """Return whether the states are on the host, on disk or in memory."""
    return any(isinstance(leaf, np.ndarray | DiskRows) for leaf in jax.tree.leaves(clients))


def check_client_states(clients: PyTree, N: int) -> None:
    """Refuse states of another number of clients than the store has."""
    found = population(clients)
    if found is not None and found != N:
        raise ValueError(f"state must have one state for each of the store's {N} clients, got {found}; init with N")


def take_rows(clients: PyTree, chosen: Int[np.ndarray, "rounds M"], size: int) -> tuple[np.ndarray, PyTree, np.ndarray]:
    """Return the states of the clients that take part in some rounds.

    Args:
      clients: states on the host.
      chosen: the indices of the clients of each round.
      size: the number of rows to return, at least the number of distinct clients; further rows are copies.

    Returns:
      The distinct indices, the rows of their states, and `chosen` as positions among these rows.
    """
    index = np.unique(chosen)
    padded = np.concatenate([index, np.full(size - len(index), index[-1], index.dtype)])
    rows = jax.tree.map(lambda leaf: leaf[padded], clients)
    return index, rows, np.searchsorted(index, chosen).astype(np.int32)


def put_rows(clients: PyTree, index: np.ndarray, rows: PyTree) -> PyTree:
    """Return the states with the first rows as those of the clients `index`; numpy arrays are written in place."""

    def put(leaf: Any, new: Any) -> Any:
        new = np.asarray(new)[: len(index)]
        if isinstance(leaf, DiskRows):
            return leaf.with_rows(index, new)
        leaf[index] = new
        return leaf

    return jax.tree.map(put, clients, rows)


def writable_states(clients: PyTree, in_place: bool) -> PyTree:
    """Return states on the host to which `put_rows` may write: numpy arrays are copied unless it may do so in place."""

    def writable(leaf: Any) -> Any:
        if isinstance(leaf, DiskRows):
            return leaf
        return np.asarray(leaf) if in_place else np.array(leaf)

    return jax.tree.map(writable, clients)


def rounds_of_rows(clients: PyTree, M: int) -> int:
    """Return for how many rounds of M clients the rows of the states fit on the device, at least 1."""
    row = sum(leaf.nbytes // max(len(leaf), 1) for leaf in jax.tree.leaves(clients))
    return max(DEVICE_ROWS_BYTES // (M * max(row, 1)), 1)
