"""What all contenders are given, in one file: examples, initial parameters, and whose examples come when.

lur draws clients and examples from (seed, round) alone, so its draws are known before it runs; the others are told
them. All then do the same work in the same order, and must end at the same parameters.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.speed.work import SHARE, Sizes, Work
from lur.data.store import Store
from lur.data.writer import in_memory
from lur.engine import host_store as hosted
from lur.engine import run as engine
from lur.methods.server import local_update
from lur.theta import fedavg

SEED = 0


def store_of(data: dict[str, np.ndarray], sizes: Sizes) -> Store:
    """The examples as a store of clients with K B each."""
    n = sizes.K * sizes.B
    clients = len(next(iter(data.values()))) // n
    return in_memory(
        (f"{i}", {name: array[i * n : (i + 1) * n] for name, array in data.items()}) for i in range(clients)
    )


def schedule(store: Store, sizes: Sizes, rounds: int) -> np.ndarray:
    """The rows of the store that lur's rounds draw: (rounds, M, K, B)."""
    algo = local_update(lambda params, batch: params, fedavg(sizes.K))
    plan = engine.plan(store, algo, sizes.M, sizes.B)

    seed = engine.checked_seed(SEED)

    def rows(t: np.int32) -> np.ndarray:
        chosen = np.asarray(hosted.chosen_clients(plan, seed, t))
        starts = store.offsets[chosen].astype(np.int32)
        drawn = hosted.drawn(plan, seed, t, chosen, store.sizes[chosen].astype(np.int32))
        return starts[:, None, None] + np.asarray(drawn.positions)

    return np.stack([rows(np.int32(t)) for t in range(rounds)])


def named(params: Any) -> dict[str, np.ndarray]:
    """Parameters under names like ``conv1/kernel``."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    names = ["/".join(str(key.key) for key in path).removeprefix("params/") for path, _ in leaves]
    return {name: np.asarray(leaf) for name, (_, leaf) in zip(names, leaves, strict=True)}


def write(file: Path, work: Work, sizes: Sizes, rounds: int) -> dict[str, np.ndarray]:
    """Write the case of a work. Returns the initial parameters."""
    data = work.examples(np.random.default_rng(SEED), SHARE * sizes.examples)
    init, _ = work.model("auto")
    params = named(jax.jit(init)(jax.random.key(SEED)))
    rows = schedule(store_of(data, sizes), sizes, rounds)
    arrays = {f"data:{name}": array for name, array in data.items()}
    arrays |= {f"params:{name}": array for name, array in params.items()}
    np.savez(file, rows=rows, **arrays)  # pyright: ignore[reportArgumentType]
    return params
