"""A grid of learning rates as one compiled program: every cell sees the same clients and mini-batches.

Sampling and gather do not depend on the rates, so they are done once for all cells; the models, one per cell, run
side by side.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from lur.cache import keep_compiled
from lur.data.gather import Resident, resident
from lur.data.store import Store
from lur.engine import View, as_stored, checked_seed, plan, run_resident
from lur.layouts import Layout, parse
from lur.server import Info, LocalUpdate, State


def run_grid(
    algo: LocalUpdate,
    params: PyTree,
    store: Store,
    *,
    client_lr: Sequence[float],
    server_lr: Sequence[float],
    rounds: int,
    clients_per_round: int,
    batch_size: int,
    seeds: Sequence[int] = (0,),
    view: View = as_stored,
    layout: str | Layout = "vmap",
    epochs: int | None = None,
    weighting: Literal["uniform", "examples"] = "uniform",
    data: Resident | None = None,
) -> tuple[State, Info]:
    """R rounds of every (gamma, eta, seed), from the same initial model.

    Args:
      params: the initial model, of all cells.
      client_lr, server_lr: the rates gamma and eta; the grid is their product.
      seeds: of the runs; each further seed repeats the whole grid with other clients and mini-batches.
      rounds, clients_per_round, batch_size, view, layout, epochs, weighting, data: as in `lur.run`.

    Returns:
      States with leading axes (gammas, etas, seeds) and infos with (gammas, etas, seeds, R).
    """
    for name, values in (("client_lr", client_lr), ("server_lr", server_lr), ("seeds", seeds)):
        if np.ndim(values) != 1 or not len(values):
            raise ValueError(f"{name} must be a list of at least one number, got {values!r}")
    if isinstance(rounds, bool) or int(rounds) != rounds or rounds < 1:
        raise ValueError(f"rounds must be an integer >= 1, got {rounds!r}")
    chosen = parse(layout)
    if chosen.devices > 1:
        raise ValueError(f"layout of a grid must be on one device, got {layout}")
    keep_compiled()
    made = plan(store, algo, clients_per_round, batch_size, epochs, weighting)
    data = resident(store) if data is None else data
    states = [[algo.init(params, gamma, eta) for eta in server_lr] for gamma in client_lr]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(state for row in states for state in row))
    keys = jnp.asarray(np.array([checked_seed(seed) for seed in seeds]))
    final, infos = cells(algo, view, made, rounds, chosen, stacked, data, keys)
    shape = (len(client_lr), len(server_lr))
    return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), (final, infos))


@partial(jax.jit, static_argnames=("algo", "view", "made", "rounds", "layout"))
def cells(
    algo: LocalUpdate, view: View, made: Any, rounds: int, layout: Layout, states: State, data: Resident, seeds: Any
) -> tuple[State, Info]:
    """All cells at once: axis 0 the rates, axis 1 the seeds."""

    def one(state: State, seed: Any) -> tuple[State, Info]:
        return run_resident(algo, view, made, rounds, layout, state, data, seed, rounds)

    return jax.vmap(lambda state: jax.vmap(lambda seed: one(state, seed))(seeds))(states)
