"""The case of a race: one file with the examples, initial parameters and mini-batches that all contenders get.

lur derives clients and examples from (seed, round) alone, so its draws are known before it runs and the other
contenders read them from the file. All of them then do the same work in the same order and must end at the same
parameters.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np

import lur
from benchmarks.speed.workloads import CLIENTS_PER_PARTICIPANT, Sizes, Workload
from lur.data.store import Store
from lur.data.writer import in_memory
from lur.engine.host_store import draw_rounds, sample_rounds
from lur.engine.run import checked_seed
from lur.engine.sampling_plan import plan_sampling

SEED = 0


def store_of(data: dict[str, np.ndarray], sizes: Sizes) -> Store:
    """A store of the examples in which every client holds K B of them."""
    n = sizes.K * sizes.B
    clients = len(next(iter(data.values()))) // n
    return in_memory(
        (f"{i}", {name: array[i * n : (i + 1) * n] for name, array in data.items()}) for i in range(clients)
    )


def schedule(store: Store, sizes: Sizes, rounds: int) -> np.ndarray:
    """Rows of the store that lur's rounds read, of shape (rounds, M, K, B)."""
    method = lur.local_update(lambda params, batch: params, lur.theta.fedavg(sizes.K))
    plan, seed = plan_sampling(store, method, sizes.M, sizes.B), checked_seed(SEED)

    def rows(t: int) -> np.ndarray:
        ts = np.array([t], np.int32)
        cohort = np.asarray(sample_rounds(plan, seed, ts))
        starts = store.offsets[cohort].astype(np.int32)
        drawn = draw_rounds(plan, seed, ts, cohort, store.sizes[cohort].astype(np.int32))
        return (starts[:, :, None, None] + np.asarray(drawn.positions))[0]

    return np.stack([rows(t) for t in range(rounds)])


def named_parameters(params: Any) -> dict[str, np.ndarray]:
    """Parameters by path, such as ``conv1/kernel``."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    names = ["/".join(str(key.key) for key in path).removeprefix("params/") for path, _ in leaves]
    return {name: np.asarray(leaf) for name, (_, leaf) in zip(names, leaves, strict=True)}


def write_case(file: Path, workload: Workload, sizes: Sizes, rounds: int) -> dict[str, np.ndarray]:
    """Writes the case of a workload and returns its initial parameters."""
    data = workload.examples(np.random.default_rng(SEED), CLIENTS_PER_PARTICIPANT * sizes.examples)
    init, _ = workload.model("auto")
    params = named_parameters(jax.jit(init)(jax.random.key(SEED)))
    rows = schedule(store_of(data, sizes), sizes, rounds)
    arrays = {f"data:{name}": array for name, array in data.items()}
    arrays |= {f"params:{name}": array for name, array in params.items()}
    np.savez(file, rows=rows, **arrays)  # pyright: ignore[reportArgumentType]
    return params
