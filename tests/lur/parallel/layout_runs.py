"""A task run in every layout, in a process with two CPU devices: `python -m tests.lur.parallel.layout_runs TASK DTYPE`.

Prints, as JSON, the largest difference between any layout's final parameters and those of the first one, as a share
of the way that these went; and, measured alike, what becomes of the last bit of each initial parameter, in the first
layout. No layout can be held to less than that: kinks and norms of groups make much of rounding (cifar100, within 20
rounds). The layouts must have drawn the same clients: the losses of the first round's clients, in order, must agree.

In single precision the server is SGD for all: an adaptive one divides by the gradient's own size, so that coordinates
whose gradient is mere rounding take steps as long as the others' (of next word, with Yogi, 1e-3 of the way).
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

from lur import tasks
from lur.engine.run import run
from lur.training.configuration import RunConfig
from lur.training.experiment import resolve

LAYOUTS = ("sequential", "vmap", "chunked:2", "sharded", "sharded:vmap", "sharded:chunked:2")
ROUNDS = 20
M = 3
RATE = 0.01


def runs(name: str, dtype: str) -> dict[str, float]:
    """The largest difference over the layouts, and that of a run from a model whose last bits differ."""
    jax.config.update("jax_enable_x64", dtype == "float64")
    task = tasks.load(name, clients=5, dtype=jnp.dtype(dtype))
    server = None if dtype == "float64" else "sgd"
    algo = resolve(RunConfig(name, theta="1:2", server=server), task).method
    start = task.init(jax.random.key(0))

    def end(start, layout):
        state = algo.init(start, RATE, RATE)
        options = {"rounds": ROUNDS, "clients_per_round": M, "batch_size": 2, "view": task.view, "layout": layout}
        state, infos = run(algo, state, task.store, **options)
        return state.params, infos.client_losses[0]

    first, losses = end(start, LAYOUTS[0])
    way, largest = distance(first, start), 0.0
    for layout in LAYOUTS[1:]:
        params, found = end(start, layout)
        np.testing.assert_allclose(found, losses, rtol=1e-5)
        largest = max(largest, distance(params, first) / way)
    nudged, _ = end(jax.tree.map(lambda leaf: jnp.nextafter(leaf, jnp.full_like(leaf, jnp.inf)), start), LAYOUTS[0])
    return {"difference": largest, "last_bit": distance(nudged, first) / way}


def distance(a, b) -> float:
    squares = jax.tree.map(lambda x, y: float(np.square(np.asarray(x, np.float64) - np.asarray(y)).sum()), a, b)
    return float(np.sqrt(sum(jax.tree.leaves(squares))))


if __name__ == "__main__":
    print(json.dumps(runs(*sys.argv[1:])))
