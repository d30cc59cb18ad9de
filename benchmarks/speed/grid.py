"""A grid of learning rates as one program against one run after the other, in one process.

    lur bench grid

About a minute. The same 63 models come out of both.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.speed.case import SEED, store_of
from benchmarks.speed.stopwatch import best_seconds
from benchmarks.speed.work import WORKS
from lur.data.gather import resident
from lur.engine.fast.linear import linear_update
from lur.engine.grid import run_grid
from lur.engine.run import run
from lur.methods.server import local_update
from lur.theta import fedavg

GAMMAS, ETAS = tuple(np.logspace(-3, 0, 7)), tuple(np.logspace(-3, 0, 9))


class Grid(NamedTuple):
    """Seconds of both, and the largest difference of any model's parameters."""

    cells: int
    rounds: int
    one_program: float
    one_by_one: float
    difference: float


def measure(rounds: int = 1000, turns: int = 3) -> Grid:
    """The tiny logistic regression under 7 x 9 rates."""
    work = WORKS["tiny"]
    sizes = work.sizes
    store = store_of(work.examples(np.random.default_rng(SEED), 2 * sizes.examples), sizes)
    init, loss = work.model("auto")
    theta, params, data = fedavg(sizes.K), init(None), resident(store)
    assert work.linear is not None
    algo = local_update(loss, theta)._replace(cells=linear_update(work.linear, theta).cells)
    options = {"rounds": rounds, "clients_per_round": sizes.M, "batch_size": sizes.B, "data": data, "capacity": rounds}

    def one_by_one() -> jax.Array:
        ends = [run(algo, algo.init(params, g, e), store, **options)[0] for g in GAMMAS for e in ETAS]
        return jax.block_until_ready(jnp.stack([end.params["kernel"] for end in ends]))

    def one_program() -> jax.Array:
        states, _ = run_grid(algo, params, store, client_lr=GAMMAS, server_lr=ETAS, **options)
        return jax.block_until_ready(states.params["kernel"])

    gap = jnp.abs(one_program().reshape(-1, 50) - one_by_one()).max()
    best = best_seconds({"program": one_program, "runs": one_by_one}, turns)
    return Grid(len(GAMMAS) * len(ETAS), rounds, best["program"], best["runs"], float(gap))


def report(found: Grid) -> str:
    """The two in words."""
    ratio = found.one_by_one / found.one_program
    return (
        f"{found.cells} cells, {found.rounds} rounds: {found.one_program:.3f} s as one program, "
        f"{found.one_by_one:.3f} s one after the other, {ratio:.1f} times\n"
        f"  largest difference of a parameter: {found.difference:.1e}"
    )
