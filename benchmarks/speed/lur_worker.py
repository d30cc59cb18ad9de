"""lur itself as a contender, with and without its remedies; and the floor.

lur             layers whose gradients are written out for the CPU, and the layout that `lur train` takes
lur-vmap        these layers, all clients at once
lur-plain       layers as one would write them down, lur's layout
lur-plain-vmap  neither remedy: the straightforward vmap over clients
floor           one gradient of the round's M K B examples with shared weights: no local steps at all
"""

import sys
import time
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.speed.case import SEED, named, store_of
from benchmarks.speed.peers.protocol import Case, Done, Run, serve
from benchmarks.speed.work import WORKS, Sizes
from lur.data.gather import resident
from lur.engine import run as run_rounds
from lur.models.layers.forms import Form
from lur.server import local_update
from lur.theta import fedavg
from lur.train import choose_layout

VARIANTS: dict[str, tuple[Literal["auto", "vmap"], Form]] = {
    "lur": ("auto", "auto"),
    "lur-vmap": ("vmap", "auto"),
    "lur-plain": ("auto", "plain"),
    "lur-plain-vmap": ("vmap", "plain"),
}


def initial(case: Case) -> Any:
    """The initial parameters, as the model makes them."""
    init, _ = WORKS[case.task].model("auto")
    return jax.jit(init)(jax.random.key(SEED))


def variant(name: str, case: Case) -> Run:
    """`lur.run` over the store, all rounds of a turn in one call."""
    layout, form = VARIANTS[name]
    rounds, *counts = case.rows.shape
    sizes = Sizes(*counts)
    store = store_of(case.data, sizes)
    data = resident(store)
    algo = local_update(WORKS[case.task].model(form)[1], fedavg(sizes.K))
    state = algo.init(initial(case), case.client_lr, case.client_lr)  # eta = gamma: the mean of the clients' models
    chosen = choose_layout(layout, state.params)

    def run(count: int) -> Done:
        start = time.perf_counter()
        end, _ = run_rounds(
            algo,
            state,
            store,
            rounds=count,
            clients_per_round=sizes.M,
            batch_size=sizes.B,
            seed=SEED,
            layout=chosen,
            data=data,
            capacity=rounds,
        )
        jax.block_until_ready(end)
        return Done(time.perf_counter() - start, count * sizes.examples, named(end.params))

    return run


def floor(case: Case) -> Run:
    """The gradient at the initial model, over a round's examples: at once, or by the largest chunks with room."""
    work = WORKS[case.task]
    rows = case.rows[0].reshape(-1)
    chunks = max(1, -(-len(rows) // work.chunk))
    params = initial(case)
    parts = [
        {name: jnp.asarray(array[part]) for name, array in case.data.items()} for part in np.array_split(rows, chunks)
    ]
    gradients = [jax.jit(jax.grad(work.model(form)[1])) for form in ("auto", "plain")]
    add = jax.jit(lambda total, more: jax.tree.map(jnp.add, total, more))

    def gradient(of: Any) -> Any:
        total = of(params, parts[0])
        for part in parts[1:]:
            total = add(total, of(params, part))
        return jax.block_until_ready(total)

    def seconds(of: Any) -> float:
        start = time.perf_counter()
        gradient(of)
        return time.perf_counter() - start

    for of in gradients:
        gradient(of)
    quicker = min(gradients, key=seconds)

    def run(count: int) -> Done:
        start = time.perf_counter()
        for _ in range(count):
            gradient(quicker)
        return Done(time.perf_counter() - start, count * len(rows), {})

    return run


def main(name: str) -> None:
    serve(floor if name == "floor" else lambda case: variant(name, case), ("jax", "jaxlib", "flax", "numpy"))


if __name__ == "__main__":
    main(sys.argv[1])
