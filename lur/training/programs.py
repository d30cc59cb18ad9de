"""The program of a run, looked at: lowered for a platform that need not be here, its collectives, its size."""

import re
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from lur.data.gather import gather, resident
from lur.engine import host_store as hosted
from lur.engine.batches import Plan, plan
from lur.engine.run import rounds_of
from lur.methods.server import LocalUpdate
from lur.models.layers.forms import lowering_for
from lur.parallel.layouts import AXIS, Layout, mesh, parse, replicated
from lur.tasks.task import Task
from lur.training.configuration import Run, settled
from lur.training.loop import CAPACITY, algorithm, initial_state

KINDS = ("all_reduce", "all_gather", "all_to_all", "reduce_scatter", "collective_permute", "collective_broadcast")


class Collective(NamedTuple):
    """What devices send each other: how, and how many numbers."""

    kind: str
    elements: int


class Size(NamedTuple):
    """What the compiler says of a program on one device: bytes of what goes in, comes out and lies between; flops.

    A loop's body is counted once.
    """

    arguments: int
    outputs: int
    between: int
    flops: float


class Program(NamedTuple):
    """A function to compile and the shapes of its arguments."""

    function: Any
    arguments: tuple[Any, ...]


def program(task: Task, config: Run, layout: str | Layout) -> Program:
    """What `lur.training.loop.train` runs on a resident store: rounds in a loop. Nothing is compiled or moved."""
    config, layout = settled(config, task.settings), parse(layout)
    algo, made = method(task, config)
    shapes = jax.eval_shape(lambda: (initial_state(task, config), resident(task.store)))
    state, data = at(shapes, replicated(layout))
    seed, rounds = (jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.uint32, jnp.int32))
    return Program(jax.jit(partial(rounds_of, algo, task.view, made, CAPACITY, layout)), (state, data, seed, rounds))


def hosted_program(task: Task, config: Run, layout: str | Layout) -> Program:
    """What `lur.training.loop.train` runs where several processes read on the host, on the devices that are here."""
    config, layout = settled(config, task.settings), parse(layout)
    algo, made = method(task, config)
    count, devices = hosted.at_once(made, task.store), layout.devices
    filled = made.M + -made.M % devices
    rows = jax.eval_shape(
        lambda: hosted.Rows(
            jnp.zeros((count, filled), jnp.int32),
            jnp.zeros((count, filled), jnp.int32),
            gather(
                resident(task.store).features, dict(made.widths), jnp.zeros((count, filled, made.K, made.B), jnp.int32)
            ),
            None if made.epochs is None else jnp.zeros((count, filled, made.K, made.B), bool),
            jnp.zeros((count, filled), jnp.float32),
        )
    )
    everywhere, dealt = replicated(layout), NamedSharding(mesh(layout), P(None, AXIS))
    chosen, sizes, weights = at((rows.chosen, rows.sizes, rows.weights), everywhere)
    rows = hosted.Rows(chosen, sizes, at(rows.examples, dealt), at(rows.mask, dealt), weights)
    state = at(jax.eval_shape(lambda: initial_state(task, config)), everywhere)
    seed, rounds = (jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.uint32, jnp.int32))
    function = partial(hosted.rounds_of_rows, algo, task.view, made, layout)
    return Program(jax.jit(function, out_shardings=everywhere), (state, rows, seed, rounds))


def method(task: Task, config: Run) -> tuple[LocalUpdate, Plan]:
    """The method of a settled run and what its rounds draw."""
    algo = algorithm(task, config)
    assert config.clients_per_round is not None  # settled
    assert config.batch_size is not None
    return algo, plan(task.store, algo, config.clients_per_round, config.batch_size, config.epochs, config.weighting)


def at(tree: PyTree, sharding: Any) -> PyTree:
    """Shapes with a place."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree)


def exported(task: Task, config: Run, layout: str | Layout, platform: str) -> str:
    """The program for "tpu", "cuda" or "cpu" as StableHLO, as `jax.export` hands it to such a machine."""
    with lowering_for(platform):
        function, arguments = program(task, config, layout)
        return jax.export.export(function, platforms=[platform])(*arguments).mlir_module()


def collectives(text: str) -> list[Collective]:
    """All collectives of a program: of StableHLO as lowered, or of HLO as compiled, to which the compiler may add.

    One inside a loop is there once, however often the loop runs.
    """
    found, text = [], re.sub(r"/\*index=\d+\*/", "", text)  # which HLO writes into long tuples
    for match in re.finditer(rf'"?stablehlo\.({"|".join(KINDS)})"?', text):
        types = re.search(r"\) -> (\(?tensor[^\n]*)", text[match.end() :])
        assert types is not None  # every operation says what it gives
        found.append(Collective(match[1], sum(sizes(re.findall(r"tensor<((?:\d+x)*)[a-z]", types[1]), "x"))))
    names = "|".join(kind.replace("_", "-") for kind in KINDS)
    for match in re.finditer(rf"= ([^=\n]*?) ({names})(?:-start)?\(", text):
        found.append(Collective(match[2].replace("-", "_"), sum(sizes(re.findall(r"\w+\[([\d,]*)\]", match[1]), ","))))
    return found


def sizes(shapes: Iterable[str], between: str) -> Iterable[int]:
    """The numbers of elements of shapes such as ``8x50x`` or ``8,50``."""
    return (int(np.prod([int(n) for n in shape.split(between) if n], dtype=np.int64)) for shape in shapes)


def compiled(made: Program) -> tuple[list[Collective], Size]:
    """The collectives and the size of a program as this machine's compiler makes it."""
    function, arguments = made
    found = function.lower(*arguments).compile()
    memory, cost = found.memory_analysis(), found.cost_analysis()
    size = Size(
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes,
        memory.temp_size_in_bytes,
        float(cost.get("flops", 0.0)),
    )
    return collectives(found.as_text()), size
