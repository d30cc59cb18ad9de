"""lur itself as a contender, with and without its remedies; and the floor.

lur             layers whose gradients are written out for the CPU, and the layout that `lur train` takes
lur-vmap        these layers, all clients at once
lur-plain       layers as one would write them down, lur's layout
lur-plain-vmap  neither remedy: the straightforward vmap over clients
floor           one gradient of the round's M K B examples with shared weights: no local steps at all
"""

import sys
import time
from collections.abc import Callable
from functools import reduce
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
from lur.train import SMALL, choose_layout

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
    """Gradients of a round's examples with shared weights, by the quicker of the layers' two forms."""
    rows = case.rows[0].reshape(-1)
    small = sum(array.size for array in case.params.values()) < SMALL
    candidates = [(large_batch_steps if small else large_batch_gradients)(case, form) for form in ("auto", "plain")]
    for run in candidates:
        run(1)
    quicker = min(candidates, key=lambda run: run(1))
    return lambda count: Done(quicker(count), count * len(rows), {})


def large_batch_gradients(case: Case, form: Form) -> Callable[[int], float]:
    """The gradient at the initial model so many times: of all examples at once, or by the largest chunks with room."""
    work = WORKS[case.task]
    rows = case.rows[0].reshape(-1)
    params = initial(case)
    cuts = np.array_split(rows, -(-len(rows) // work.chunk))
    parts = [{name: jnp.asarray(array[cut]) for name, array in case.data.items()} for cut in cuts]
    gradient = jax.jit(jax.grad(work.model(form)[1]))
    add = jax.jit(lambda total, more: jax.tree.map(jnp.add, total, more))

    def run(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            jax.block_until_ready(reduce(add, (gradient(params, part) for part in parts)))
        return time.perf_counter() - start

    return run


def large_batch_steps(case: Case, form: Form) -> Callable[[int], float]:
    """So many steps along the gradient in one program: for small models the calls would outweigh the gradients."""
    gradient = jax.grad(WORKS[case.task].model(form)[1])
    batch = {name: jnp.asarray(array[case.rows[0].reshape(-1)]) for name, array in case.data.items()}
    params = initial(case)

    @jax.jit
    def descend(params: Any, count: Any) -> Any:
        def step(_: Any, x: Any) -> Any:
            return jax.tree.map(lambda x, g: x - case.client_lr * g, x, gradient(x, batch))

        return jax.lax.fori_loop(0, count, step, params)

    def run(count: int) -> float:
        start = time.perf_counter()
        jax.block_until_ready(descend(params, np.int32(count)))
        return time.perf_counter() - start

    return run


def main(name: str) -> None:
    serve(floor if name == "floor" else lambda case: variant(name, case), ("jax", "jaxlib", "flax", "numpy"))


if __name__ == "__main__":
    main(sys.argv[1])
