"""A grid of learning rates as one program, against one run per pair of rates in the same process.

    lur bench grid

About a minute. Both compute the same 63 models.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import lur
from benchmarks.speed.case import SEED, store_of
from benchmarks.speed.stopwatch import best_seconds
from benchmarks.speed.workloads import WORKLOADS
from lur.data.gather import resident
from lur.engine.fast.linear import linear_form
from lur.engine.grid import run_grid
from lur.engine.run import run

GAMMAS, ETAS = tuple(np.logspace(-3, 0, 7)), tuple(np.logspace(-3, 0, 9))


class Grid(NamedTuple):
    """Seconds of both contenders.

    Attributes:
        cells: Pairs of rates.
        rounds: Rounds of each.
        one_program: Seconds of the grid as one program.
        one_by_one: Seconds of one run per pair.
        difference: Largest difference of a parameter between the two, over the largest parameter of its model.
    """

    cells: int
    rounds: int
    one_program: float
    one_by_one: float
    difference: float


def measure(rounds: int = 1000, turns: int = 3) -> Grid:
    """Times the tiny logistic regression under 7 x 9 rates."""
    workload = WORKLOADS["tiny"]
    sizes = workload.sizes
    store = store_of(workload.examples(np.random.default_rng(SEED), 2 * sizes.examples), sizes)
    init, loss = workload.model("auto")
    theta, params, data = lur.theta.fedavg(sizes.K), init(None), resident(store)
    assert workload.linear is not None
    method = lur.local_update(loss, theta)
    wide = linear_form(method, workload.linear)  # all cells as one wide linear model
    options = {"rounds": rounds, "clients_per_round": sizes.M, "batch_size": sizes.B, "data": data, "capacity": rounds}

    def one_by_one() -> jax.Array:
        ends = [run(method, method.init(params, g, e), store, **options)[0] for g in GAMMAS for e in ETAS]
        return jax.block_until_ready(jnp.stack([end.params["kernel"] for end in ends]))

    def one_program() -> jax.Array:
        states, _ = run_grid(wide, params, store, client_lr=GAMMAS, server_lr=ETAS, **options)
        return jax.block_until_ready(states.params["kernel"])

    models, expected = one_program().reshape(-1, 50), one_by_one()
    gap = (jnp.abs(models - expected) / jnp.abs(expected).max(1, keepdims=True)).max()
    best = best_seconds({"program": one_program, "runs": one_by_one}, turns)
    return Grid(len(GAMMAS) * len(ETAS), rounds, best["program"], best["runs"], float(gap))


def report(times: Grid) -> str:
    """The comparison as two lines of text."""
    ratio = times.one_by_one / times.one_program
    return (
        f"{times.cells} cells, {times.rounds} rounds: {times.one_program:.3f} s as one program, "
        f"{times.one_by_one:.3f} s one run at a time, {ratio:.1f} times\n"
        f"  largest difference of a parameter: {times.difference:.1e} of its model's largest"
    )
