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
from lur.engine.host_store import HostRounds, rounds_per_transfer
from lur.engine.rounds import host_rounds, resident_rounds
from lur.parallel.mesh import CLIENTS_AXIS, lowering_for, mesh_of, replicated
from lur.training.experiment import Experiment, initial_state

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
    shapes = jax.eval_shape(lambda: (initial_state(experiment), resident(experiment.task.store)))
    state, data = _with_sharding(shapes, replicated(experiment.layout))
    seed, rounds = (jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.uint32, jnp.int32))
    return Program(jax.jit(partial(resident_rounds, experiment.program)), (state, data, seed, rounds))


def host_program(experiment: Experiment) -> Program:
    """The program that trains where several processes read their data on the host, on the devices of this process."""
    store, layout, plan = experiment.task.store, experiment.layout, experiment.program.plan
    count, padded = rounds_per_transfer(plan, store), plan.M + -plan.M % layout.devices

    def zeros(*shape: int, dtype: Any = jnp.int32) -> Any:
        return jnp.zeros((count, padded, *shape), dtype)

    def examples() -> Any:
        return gather(resident(store).features, dict(plan.widths), zeros(plan.K, plan.B))

    mask = None if plan.epochs is None else jax.eval_shape(lambda: zeros(plan.K, plan.B, dtype=bool))
    by_client = NamedSharding(mesh_of(layout), P(None, CLIENTS_AXIS))
    batches, mask = _with_sharding((jax.eval_shape(examples), mask), by_client)
    clients, weights = jax.eval_shape(lambda: (zeros(), zeros(dtype=jnp.float32)))
    clients, weights = _with_sharding((clients, weights), replicated(layout))
    data = HostRounds(clients, clients, batches, mask, weights)
    state = _with_sharding(jax.eval_shape(lambda: initial_state(experiment)), replicated(layout))
    seed, rounds = (jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.uint32, jnp.int32))
    function = jax.jit(partial(host_rounds, experiment.program), out_shardings=replicated(layout))
    return Program(function, (state, data, seed, rounds))


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
