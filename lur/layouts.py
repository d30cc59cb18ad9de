r"""The clients axis of a round: how M clients run and how their messages meet.

All layouts compute :math:`q = \sum_i w_i m_i` with the same clients and mini-batches; they differ in time and
memory, and in the last bits of the sum.

=====================  ===========================================================================================
``vmap``               all clients at once: M models in memory. Accelerators, small models.
``sequential``         one client after the other with a running sum: one client's model in memory, whatever M.
``chunked:n``          n clients at a time, a running sum over the chunks.
``sharded``            the clients dealt to the devices, each of which runs its own one after the other and sends
                       one sum; ``sharded:vmap`` and ``sharded:chunked:n`` run them otherwise.
=====================  ===========================================================================================

M need not divide by chunks or devices: what is missing is filled up with clients of weight 0.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, PyTree

AXIS = "clients"
FORMS = "vmap, sequential, chunked:n, sharded, sharded:vmap or sharded:chunked:n"

Client = Callable[[Any, Any], tuple[PyTree, PyTree]]
"""``client(shared, own) -> (message, told)``: the message is summed over clients, what else it tells is kept."""
Own = Callable[[Any], tuple[PyTree, PyTree]]
Sum = tuple[PyTree, PyTree]
"""The weighted sum of messages, and what the clients tell, with leading axis M."""


class Layout(NamedTuple):
    """A layout: how many clients run at once (None: all), and on how many devices they are spread."""

    at_once: int | None
    devices: int = 1

    def __str__(self) -> str:
        inner = {None: "vmap", 1: "sequential"}.get(self.at_once, f"chunked:{self.at_once}")
        return inner if self.devices == 1 else f"sharded:{inner}"


def parse(text: str | Layout) -> Layout:
    """A layout from its text; ``sharded`` takes all local devices."""
    if isinstance(text, Layout):
        return text
    kind, _, rest = str(text).partition(":")
    if kind == "sharded":
        inner = parse(rest or "sequential")
        if inner.devices == 1 and not rest.startswith("sharded"):
            return inner._replace(devices=jax.local_device_count())
    elif kind == "chunked" and rest.isdecimal() and int(rest) >= 1:
        return Layout(int(rest))
    elif not rest and kind in ("vmap", "sequential"):
        return Layout(None if kind == "vmap" else 1)
    raise ValueError(f"layout must be one of {FORMS} with n >= 1, got {text!r}")


SMALL = 100_000
WIDE = 4096


class Choice(NamedTuple):
    """A layout, and why."""

    layout: Layout
    why: str


def choose(params: PyTree, M: int, layout: str | Layout = "auto", *, linear: bool = False) -> Choice:
    """The layout asked for, or for ``auto`` the one that suits the machine, the model and M clients.

    Accelerators like many clients at once. A CPU gains from that only where models are small; else it runs one
    client after the other on each device (a process has as many CPU devices as ``JAX_NUM_CPU_DEVICES`` says),
    unless matrices are so wide that one client's products keep all cores busy.
    """
    if layout != "auto":
        return Choice(parse(layout), "as asked for")
    leaves = jax.tree.leaves(params)
    devices = enough(jax.local_device_count(), M)
    size = sum(leaf.size for leaf in leaves)
    widest = max((leaf.shape[-1] for leaf in leaves if leaf.ndim >= 2), default=0)
    if jax.default_backend() != "cpu":
        what = f"{devices} {jax.default_backend()} device{'s' if devices > 1 else ''}"
        return Choice(Layout(None, devices), f"{what}: all clients at once")
    if size < SMALL:
        return Choice(Layout(None), f"a small model ({size:,} parameters): all clients at once")
    if linear:
        return Choice(Layout(1), "a linear model: no model per client is needed")
    if devices > 1 and widest < WIDE:
        return Choice(Layout(1, devices), f"{devices} CPU devices: one client after the other on each")
    if devices > 1:
        return Choice(Layout(1), f"matrices of {widest:,} columns keep all cores busy: one client after the other")
    return Choice(Layout(1), f"a CPU and {size:,} parameters: one client after the other")


def enough(devices: int, M: int) -> int:
    """The fewest devices on which M clients are done as soon as on all."""
    return math.ceil(M / math.ceil(M / devices))


def mesh(layout: Layout) -> Mesh:
    """The devices over which the clients are spread."""
    return jax.make_mesh((layout.devices,), (AXIS,), (AxisType.Auto,), devices=jax.local_devices()[: layout.devices])


def replicated(layout: Layout) -> NamedSharding | None:
    """Where what all clients share should lie: on every device of the layout."""
    return None if layout.devices == 1 else NamedSharding(mesh(layout), P())


def over_clients(
    client: Client, shared: PyTree, inputs: PyTree, weights: Float[Array, "M"] | None, layout: Layout
) -> Sum:
    """The mean message of ``client(shared, own) -> (message, told)`` over the leading axis of `inputs`.

    `shared` is what all clients need: under ``sharded`` it is on every device, so nothing traced may be closed over.
    Weights, if given, sum to 1. Returns the mean and what the clients tell.
    """

    def run(shared: PyTree, inputs: PyTree, weights: Float[Array, "M"] | None) -> Sum:
        return on_one_device(partial(client, shared), inputs, weights, layout.at_once)

    if layout.devices > 1 and weights is None:
        weights = uniform(partial(client, shared), inputs)
    return on_devices(run, shared, inputs, weights, layout)


def on_devices(
    run: Callable[[Any, PyTree, Any], Sum], shared: PyTree, inputs: PyTree, weights: Any, layout: Layout
) -> Sum:
    """``run(shared, inputs, weights) -> (sum, told)`` with the clients dealt to the layout's devices."""
    if layout.devices == 1:
        return run(shared, inputs, weights)
    M = leading(inputs)
    inputs, weights = filled_up(inputs, weights, layout.devices)

    def shard(shared: PyTree, inputs: PyTree, weights: Array) -> Sum:
        q, told = run(shared, inputs, weights)
        return jax.lax.psum(q, AXIS), told

    specs = (P(), P(AXIS), P(AXIS))
    spread = jax.shard_map(shard, mesh=mesh(layout), in_specs=specs, out_specs=specs[:2], check_vma=False)
    q, told = spread(shared, inputs, weights)
    return q, jax.tree.map(lambda leaf: leaf[:M], told)


def on_one_device(run: Own, inputs: PyTree, weights: Float[Array, "M"] | None, at_once: int | None) -> Sum:
    """The weighted sum of messages, `at_once` clients at a time."""
    M = leading(inputs)
    if at_once is None or (at_once > 1 and at_once >= M):
        messages, told = jax.vmap(run)(inputs)
        return jax.tree.map(lambda m: weighted_mean(m, weights), messages), told
    run = jax.jit(run)  # traced once, for its shapes and for the loop
    weights = uniform(run, inputs) if weights is None else weights
    inputs, weights = filled_up(inputs, weights, at_once)
    groups = jax.tree.map(lambda leaf: leaf.reshape(-1, at_once, *leaf.shape[1:]), (weights, inputs))

    def one(total: PyTree, group: Any) -> tuple[PyTree, Any]:
        share, members = group
        if at_once == 1:
            message, told = run(jax.tree.map(lambda leaf: leaf[0], members))
            return jax.tree.map(lambda t, m: t + share[0] * m, total, message), jax.tree.map(lambda l: l[None], told)
        messages, told = jax.vmap(run)(members)
        return jax.tree.map(lambda t, m: t + weighted_mean(m, share), total, messages), told

    shapes, _ = jax.eval_shape(run, jax.tree.map(lambda leaf: leaf[0], inputs))
    total = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    q, told = jax.lax.scan(one, total, groups)
    return q, jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:M], told)


def leading(inputs: PyTree) -> int:
    """M."""
    return jax.tree.leaves(inputs)[0].shape[0]


def uniform(run: Own, inputs: PyTree) -> Float[Array, "M"]:
    """Equal weights, of the messages' dtype."""
    M = leading(inputs)
    message, _ = jax.eval_shape(run, jax.tree.map(lambda leaf: leaf[0], inputs))
    return jnp.full((M,), 1 / M, jax.tree.leaves(message)[0].dtype)


def filled_up(inputs: PyTree, weights: Float[Array, "M"], multiple: int) -> tuple[PyTree, Float[Array, "padded"]]:
    """Clients of weight 0 (the last one again), so that their number divides."""
    M = leading(inputs)
    missing = -M % multiple
    if not missing:
        return inputs, weights
    index = np.minimum(np.arange(M + missing, dtype=np.int32), np.int32(M - 1))
    return jax.tree.map(lambda leaf: leaf[index], inputs), jnp.pad(weights, (0, missing))


def weighted_mean(values: Float[Array, "M ..."], weights: Float[Array, "M"] | None) -> Float[Array, "..."]:
    """The mean over the leading axis: uniform, as the paper's, or weighted."""
    return values.mean(axis=0) if weights is None else jnp.tensordot(weights, values, axes=1)
