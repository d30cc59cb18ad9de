"""Runs a task in every layout, on two CPU devices: `python -m tests.lur.parallel.layout_runs TASK DTYPE`.

Prints two distances as JSON, both relative to the distance between the initial and the final parameters of the first
layout. `difference` is the largest distance between the final parameters of another layout and those of the first.
`last_bit` is the distance that results from changing the last bit of every initial parameter. No layout can be
expected to differ by less, since kinks and group norms amplify rounding errors (cifar100, within 20 rounds). All
layouts must draw the same clients: the client losses of the first round must agree in order.

In single precision the server uses SGD for every task. An adaptive optimiser divides by the size of the gradient, so
coordinates whose gradient is only rounding error take steps as long as the others (for next word prediction with Yogi
the difference is 1e-3).
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


def compare_layouts(name: str, dtype: str) -> dict[str, float]:
    """Returns the largest difference between layouts and the effect of the last bit of the initial parameters."""
    jax.config.update("jax_enable_x64", dtype == "float64")
    task = tasks.load(name, clients=5, dtype=jnp.dtype(dtype))
    server = None if dtype == "float64" else "sgd"
    method = resolve(RunConfig(name, theta="1:2", server=server), task).method
    initial = task.init(jax.random.key(0))

    def train(initial, layout):
        state = method.init(initial, RATE, RATE)
        options = {"rounds": ROUNDS, "clients_per_round": M, "batch_size": 2, "view": task.view, "layout": layout}
        state, infos = run(method, state, task.store, **options)
        return state.params, infos.client_losses[0]

    expected, expected_losses = train(initial, LAYOUTS[0])
    total, largest = distance(expected, initial), 0.0
    for layout in LAYOUTS[1:]:
        params, losses = train(initial, layout)
        np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
        largest = max(largest, distance(params, expected) / total)
    perturbed, _ = train(
        jax.tree.map(lambda leaf: jnp.nextafter(leaf, jnp.full_like(leaf, jnp.inf)), initial), LAYOUTS[0]
    )
    return {"difference": largest, "last_bit": distance(perturbed, expected) / total}


def distance(a, b) -> float:
    """Euclidean distance between two trees of parameters."""
    squares = jax.tree.map(lambda x, y: float(np.square(np.asarray(x, np.float64) - np.asarray(y)).sum()), a, b)
    return float(np.sqrt(sum(jax.tree.leaves(squares))))


if __name__ == "__main__":
    print(json.dumps(compare_layouts(*sys.argv[1:])))
