"""The compiled program of an experiment: lowered for any platform, its collectives and its size."""

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
from lur.models.layers.forms import lowering_for
from lur.parallel.layouts import AXIS, mesh, replicated
from lur.training.experiment import MAX_ROUNDS_PER_CALL, Experiment, initial_state

KINDS = ("all_reduce", "all_gather", "all_to_all", "reduce_scatter", "collective_permute", "collective_broadcast")


class Collective(NamedTuple):
    """A collective operation: what devices send each other.

    Attributes:
      kind: one of `KINDS`.
      elements: how many numbers are sent.
    """

    kind: str
    elements: int


class ProgramSize(NamedTuple):
    """What the compiler says of a program on one device. The body of a loop is counted once.

    Attributes:
      arguments: bytes of the arguments.
      outputs: bytes of the results.
      temporaries: bytes of intermediate values.
      flops: floating-point operations.
    """

    arguments: int
    outputs: int
    temporaries: int
    flops: float


class Program(NamedTuple):
    """A function to compile and the shapes of its arguments.

    Attributes:
      function: the jitted function.
      arguments: shapes, dtypes and shardings of its arguments.
    """

    function: Any
    arguments: tuple[Any, ...]


def resident_program(experiment: Experiment) -> Program:
    """The program that trains on a resident store: rounds in a loop. Nothing is compiled or moved."""
    task, layout = experiment.task, experiment.layout
    shapes = jax.eval_shape(lambda: (initial_state(experiment), resident(task.store)))
    state, data = _with_sharding(shapes, replicated(layout))
    seed, rounds = (jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.uint32, jnp.int32))
    function = partial(rounds_of, experiment.method, task.view, _sampling_plan(experiment), MAX_ROUNDS_PER_CALL, layout)
    return Program(jax.jit(function), (state, data, seed, rounds))


def host_program(experiment: Experiment) -> Program:
    """The program that trains where several processes read their data on the host, on the devices of this process."""
    task, layout, made = experiment.task, experiment.layout, _sampling_plan(experiment)
    count = hosted.at_once(made, task.store)
    padded = made.M + -made.M % layout.devices
    rows = jax.eval_shape(
        lambda: hosted.Rows(
            jnp.zeros((count, padded), jnp.int32),
            jnp.zeros((count, padded), jnp.int32),
            gather(
                resident(task.store).features, dict(made.widths), jnp.zeros((count, padded, made.K, made.B), jnp.int32)
            ),
            None if made.epochs is None else jnp.zeros((count, padded, made.K, made.B), bool),
            jnp.zeros((count, padded), jnp.float32),
        )
    )
    everywhere, by_client = replicated(layout), NamedSharding(mesh(layout), P(None, AXIS))
    chosen, sizes, weights = _with_sharding((rows.chosen, rows.sizes, rows.weights), everywhere)
    examples, mask = _with_sharding(rows.examples, by_client), _with_sharding(rows.mask, by_client)
    rows = hosted.Rows(chosen, sizes, examples, mask, weights)
    state = _with_sharding(jax.eval_shape(lambda: initial_state(experiment)), everywhere)
    seed, rounds = (jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.uint32, jnp.int32))
    function = partial(hosted.rounds_of_rows, experiment.method, task.view, made, layout)
    return Program(jax.jit(function, out_shardings=everywhere), (state, rows, seed, rounds))


def _sampling_plan(experiment: Experiment) -> Plan:
    """What the rounds of an experiment draw."""
    config = experiment.config
    return plan(
        experiment.task.store,
        experiment.method,
        config.clients_per_round,
        config.batch_size,
        config.epochs,
        config.weighting,
    )


def _with_sharding(tree: PyTree, sharding: Any) -> PyTree:
    """Shapes with a sharding."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree)


def export_stablehlo(experiment: Experiment, platform: str) -> str:
    """The program as StableHLO for a platform that need not be here.

    Args:
      experiment: the experiment.
      platform: "tpu", "cuda" or "cpu".
    """
    with lowering_for(platform):
        function, arguments = resident_program(experiment)
        return jax.export.export(function, platforms=[platform])(*arguments).mlir_module()


def collectives(text: str) -> list[Collective]:
    """All collectives of a program. One inside a loop is listed once.

    Args:
      text: StableHLO as lowered, or HLO as compiled, in which the compiler may have added some.
    """
    found, text = [], re.sub(r"/\*index=\d+\*/", "", text)  # HLO comments long tuples
    for match in re.finditer(rf'"?stablehlo\.({"|".join(KINDS)})"?', text):
        types = re.search(r"\) -> (\(?tensor[^\n]*)", text[match.end() :])
        assert types is not None  # every operation has a result type
        found.append(Collective(match[1], sum(_num_elements(re.findall(r"tensor<((?:\d+x)*)[a-z]", types[1]), "x"))))
    names = "|".join(kind.replace("_", "-") for kind in KINDS)
    for match in re.finditer(rf"= ([^=\n]*?) ({names})(?:-start)?\(", text):
        found.append(
            Collective(match[2].replace("-", "_"), sum(_num_elements(re.findall(r"\w+\[([\d,]*)\]", match[1]), ",")))
        )
    return found


def _num_elements(shapes: Iterable[str], separator: str) -> Iterable[int]:
    """The numbers of elements of shapes such as ``8x50x`` or ``8,50``."""
    return (int(np.prod([int(n) for n in shape.split(separator) if n], dtype=np.int64)) for shape in shapes)


def compile_program(program: Program) -> tuple[list[Collective], ProgramSize]:
    """The collectives and the size of a program as compiled on this machine."""
    compiled = program.function.lower(*program.arguments).compile()
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
    size = ProgramSize(
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes,
        memory.temp_size_in_bytes,
        float(cost.get("flops", 0.0)),
    )
    return collectives(compiled.as_text()), size
