"""lur's own contenders: lur with and without its two CPU optimisations, and the floor.

lur             layers with explicit gradients for the CPU; the layout and XLA options that `lur train` uses
lur-one-device  the same without one CPU device per core
lur-vmap        the same layers, with a vmap over all clients
lur-plain       layers in their textbook form, with lur's layout
lur-plain-vmap  neither optimisation: textbook layers and a vmap over clients
floor           one gradient of the round's M K B examples with shared weights: no local steps at all
"""

import sys
import time
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import lur
from benchmarks.speed.case import SEED, named_parameters, store_of
from benchmarks.speed.peers.protocol import Case, Done, Run, serve
from benchmarks.speed.workloads import WORKLOADS, Sizes
from lur.data.gather import resident
from lur.engine.fast.bags import product, transposed_product
from lur.engine.fast.linear import LinearModel, linear_form
from lur.engine.run import run as run_rounds
from lur.jax_setup import compile_small_loops_whole, use_all_cores
from lur.models.layers.forms import Form
from lur.parallel.layouts import SMALL_MODEL, choose_layout
from lur.parallel.mesh import replicated

VARIANTS: dict[str, tuple[Literal["auto", "vmap"], Form]] = {
    "lur": ("auto", "auto"),
    "lur-one-device": ("auto", "auto"),
    "lur-vmap": ("vmap", "auto"),
    "lur-plain": ("auto", "plain"),
    "lur-plain-vmap": ("vmap", "plain"),
}


def initial_parameters(case: Case) -> Any:
    """The initial parameters as the model's pytree."""
    init, _ = WORKLOADS[case.task].model("auto")
    return jax.jit(init)(jax.random.key(SEED))


def variant(name: str, case: Case) -> Run:
    """A variant of lur: `lur.run` over the store, all rounds of a turn in one call."""
    layout, form = VARIANTS[name]
    rounds, *counts = case.rows.shape
    sizes = Sizes(*counts)
    store = store_of(case.data, sizes)
    workload, theta = WORKLOADS[case.task], lur.theta.fedavg(sizes.K)
    params = initial_parameters(case)
    is_large = sum(leaf.size for leaf in jax.tree.leaves(params)) >= SMALL_MODEL
    linear = workload.linear if is_large and VARIANTS[name] == VARIANTS["lur"] else None
    method = lur.local_update(workload.model(form)[1], theta)
    method = method if linear is None else linear_form(method, linear)
    state = method.init(params, case.client_lr, case.client_lr)  # eta = gamma: the mean of the clients' models
    chosen = choose_layout(state.params, sizes.M, layout, linear=linear is not None).layout
    data = resident(store, replicated(chosen))

    def run(count: int) -> Done:
        start = time.perf_counter()
        end, _ = run_rounds(
            method,
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
        return Done(time.perf_counter() - start, count * sizes.examples, named_parameters(end.params))

    return run


def floor(case: Case) -> Run:
    """The floor: one gradient of a round's examples with shared weights, by the fastest of several candidates.

    The candidates differ in the form of the layers and in the batch: all examples, or as many as fit into memory, are
    not always fastest on a CPU, whose caches suit mini-batches. A linear model's gradient is also two matrix products.
    """
    rows = case.rows[0].reshape(-1)
    forms: tuple[Form, ...] = ("auto", "plain")
    is_small = sum(array.size for array in case.params.values()) < SMALL_MODEL
    if is_small:
        candidates = [large_batch_steps(case, form) for form in forms]
    else:
        chunks = (WORKLOADS[case.task].chunk, case.rows.shape[-1])
        candidates = [large_batch_gradients(case, form, chunk) for form in forms for chunk in chunks]
    if WORKLOADS[case.task].linear is not None and not is_small:
        candidates.append(large_batch_products(case))
    for run in candidates:
        run(1)
    fastest = min(candidates, key=lambda run: run(1))
    return lambda count: Done(fastest(count), count * len(rows), {})


def large_batch_gradients(case: Case, form: Form, chunk: int) -> Callable[[int], float]:
    """Times repeated gradients at the initial model, summed over chunks of at most `chunk` examples."""
    rows = case.rows[0].reshape(-1)
    params = initial_parameters(case)
    cuts = np.array_split(rows, -(-len(rows) // chunk))
    parts = [{name: jnp.asarray(array[cut]) for name, array in case.data.items()} for cut in cuts]
    gradient = jax.jit(jax.grad(WORKLOADS[case.task].model(form)[1]))
    add = jax.jit(lambda total, more: jax.tree.map(jnp.add, total, more))

    def run(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            jax.block_until_ready(reduce(add, (gradient(params, part) for part in parts)))
        return time.perf_counter() - start

    return run


def large_batch_products(case: Case) -> Callable[[int], float]:
    """Times repeated gradients of a linear model, as matrix products with sparse bags of words."""
    model = WORKLOADS[case.task].linear
    assert model is not None
    batch = {name: jnp.asarray(array[case.rows[0].reshape(-1)]) for name, array in case.data.items()}
    params, gradient = initial_parameters(case), jax.jit(partial(linear_gradient, model))

    def run(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            jax.block_until_ready(gradient(params, batch))
        return time.perf_counter() - start

    return run


def linear_gradient(model: LinearModel, params: Any, batch: Any) -> dict[str, Any]:
    """The gradient in kernel and bias: residuals R of the logits X W + b, then X^T R."""
    for key in model.path:
        params = params[key]
    features, kernel = model.features(batch), params["kernel"]
    logits = product(features, kernel) + params["bias"]
    R = jax.vmap(jax.grad(model.losses))(logits, model.targets(batch)) / len(logits)
    return {"kernel": transposed_product(features, R, len(kernel)), "bias": R.sum(0)}


def large_batch_steps(case: Case, form: Form) -> Callable[[int], float]:
    """Times gradient steps in one program: for small models, separate calls would cost more than the gradients."""
    gradient = jax.grad(WORKLOADS[case.task].model(form)[1])
    batch = {name: jnp.asarray(array[case.rows[0].reshape(-1)]) for name, array in case.data.items()}
    params = initial_parameters(case)

    @jax.jit
    def gradient_descent(params: Any, count: Any) -> Any:
        def step(_: Any, x: Any) -> Any:
            return jax.tree.map(lambda x, g: x - case.client_lr * g, x, gradient(x, batch))

        return jax.lax.fori_loop(0, count, step, params)

    def run(count: int) -> float:
        start = time.perf_counter()
        jax.block_until_ready(gradient_descent(params, np.int32(count)))
        return time.perf_counter() - start

    return run


def main(name: str) -> None:
    """Serves the contender of this name."""
    if name in ("lur", "lur-one-device", "floor"):
        compile_small_loops_whole()
    if name == "lur":
        use_all_cores()
    serve(floor if name == "floor" else lambda case: variant(name, case), ("jax", "jaxlib", "flax", "numpy"))


if __name__ == "__main__":
    main(sys.argv[1])
