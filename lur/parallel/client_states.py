"""The states that clients keep between rounds: one pytree per client of the population, with leading axis N.

They are in device memory where they fit, and otherwise numpy arrays on the host, of which only the rows of a few
rounds' clients are on the device at a time.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, PyTree

from lur.parallel.processes import place_arrays

DEVICE_BYTES = 2**31
"""States that take more memory than this stay on the host."""


def repeat_for_clients(client_state: PyTree, N: int) -> PyTree:
    """Return N clients' states that all start with `client_state`: on the device if they fit, else on the host."""
    if fits_device(jax.eval_shape(lambda: client_state), N):
        return jax.tree.map(lambda leaf: jnp.repeat(jnp.asarray(leaf)[None], N, axis=0), client_state)

    def on_host(leaf: Any) -> np.ndarray:
        row = np.asarray(jnp.asarray(leaf))  # in the dtype that it has on the device
        rows = np.zeros((N, *row.shape), row.dtype)  # memory that is not touched is not allocated
        if any(row.tobytes()):  # -0.0 is not zero bytes
            rows[:] = row
        return rows

    return jax.tree.map(on_host, client_state)


def fits_device(client_state: PyTree, count: int) -> bool:
    """Return whether `count` states with these shapes and dtypes fit into device memory."""
    return count * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(client_state)) <= DEVICE_BYTES


def place_client_states(clients: PyTree, sharding: Any) -> PyTree:
    """Move states to the devices of a sharding (None: the default device) if they fit, else to the host."""
    if not fits_device(clients, 1):
        return jax.tree.map(np.asarray, clients)
    return place_arrays(jax.tree.map(jnp.asarray, clients), sharding)


def population(clients: PyTree) -> int | None:
    """Return N, the number of clients that keep a state; None if clients keep none."""
    leaves = jax.tree.leaves(clients)
    return leaves[0].shape[0] if leaves else None


def is_on_host(clients: PyTree) -> bool:
    """Return whether the states are numpy arrays on the host."""
    return any(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(clients))


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


def put_rows(clients: PyTree, index: np.ndarray, rows: PyTree) -> None:
    """Write the first rows back, in place, as the states of the clients `index`."""
    for leaf, new in zip(jax.tree.leaves(clients), jax.tree.leaves(rows), strict=True):
        leaf[index] = np.asarray(new)[: len(index)]
