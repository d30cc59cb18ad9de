r"""The clients axis of a round: how M clients run and how their messages meet.

All layouts compute :math:`q = \sum_i w_i m_i` with the same clients and mini-batches; they differ in time and
memory, and in the last bits of the sum.

=====================  ===========================================================================================
``vmap``               all clients at once: M models in memory. Accelerators, small models.
``sequential``         one client after the other with a running sum: one client's model in memory, whatever M.
``chunked:n``          n clients at a time, a running sum over the chunks.
``sharded``            the clients dealt to the devices, of all processes (`lur.parallel.processes`), each runs its
                       own one after the other; all send one sum, which is all that they tell each other.
                       ``sharded:vmap`` and ``sharded:chunked:n`` run them otherwise.
``sharded,model:n``    n devices hold a model together, each a part of every large array, and work on a client
                       together; the clients are dealt to groups of n. For models too large for one device.
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
from jaxtyping import Array, Float, Int, PyTree

from lur import _checks as checks
from lur.models.layers.forms import is_fast

AXIS = "clients"
SHARDED = "sharded, sharded:vmap or sharded:chunked:n"
FORMS = f"vmap, sequential, chunked:n, {SHARDED}, or one of these three with ,model:n"
MODEL = "model"
LARGE = 1024
"""Numbers in an array from which on a model axis parts it."""
ALONE = 2**22
"""Numbers in an array from which on joining it with others takes longer than a second message."""

Client = Callable[[Any, Any], tuple[PyTree, PyTree]]
"""``client(shared, own) -> (message, told)``: the message is summed over clients, what else it tells is kept."""
Own = Callable[[Any], tuple[PyTree, PyTree]]
Sum = tuple[PyTree, PyTree]
"""The weighted sum of messages, and what the clients tell, with leading axis M."""


class Layout(NamedTuple):
    """A layout: how many clients run at once (None: all), and on how many devices they are spread.

    `model` devices stand for each of these and hold the model together. `inside` is for a layout whose devices are an
    axis of a `shard_map` that the round already runs in (`lur.engine.grid`).
    """

    at_once: int | None
    devices: int = 1
    model: int = 1
    inside: bool = False

    def __str__(self) -> str:
        inner = {None: "vmap", 1: "sequential"}.get(self.at_once, f"chunked:{self.at_once}")
        if self.model > 1:
            return f"sharded:{inner},model:{self.model}"
        return inner if self.devices == 1 else f"sharded:{inner}"


def parse(text: str | Layout) -> Layout:
    """A layout from its text; ``sharded`` takes all devices, of all processes."""
    if isinstance(text, Layout):
        return text
    plain, comma, model = str(text).partition(",model:")
    kind, _, rest = plain.partition(":")
    if comma:
        if kind == "sharded" and model.isdecimal() and int(model) >= 1:
            return with_model(parse(plain), int(model))
    elif kind == "sharded":
        inner = parse(rest or "sequential")
        if inner.devices == 1 and not rest.startswith("sharded"):
            return inner._replace(devices=jax.device_count())
    elif kind == "chunked" and rest.isdecimal() and int(rest) >= 1:
        return Layout(int(rest))
    elif not rest and kind in ("vmap", "sequential"):
        return Layout(None if kind == "vmap" else 1)
    raise ValueError(f"layout must be one of {FORMS} with n >= 1, got {text!r}")


def with_model(layout: Layout, model: int) -> Layout:
    """The same devices in groups of `model`."""
    if jax.process_count() > 1:
        raise ValueError(f"layout must be without a model axis where {jax.process_count()} processes run, got {model}")
    if layout.devices % model:
        raise ValueError(f"layout's model must divide the {layout.devices} devices, got {model}")
    return layout._replace(devices=layout.devices // model, model=model)


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
    devices = enough(jax.device_count(), M)
    size = sum(leaf.size for leaf in leaves)
    if jax.process_count() > 1:
        at_once = None if jax.default_backend() != "cpu" or size < SMALL else 1
        inner = "all its clients at once" if at_once is None else "one client after the other"
        what = f"{jax.process_count()} processes with {jax.device_count()} devices"
        return Choice(Layout(at_once, jax.device_count()), f"{what}: {inner} on each")
    widest = max((leaf.shape[-1] for leaf in leaves if leaf.ndim >= 2), default=0)
    if jax.default_backend() != "cpu":
        what = f"{devices} {jax.default_backend()} device{'s' if devices > 1 else ''}"
        return Choice(Layout(None, devices), f"{what}: all clients at once")
    if size < SMALL:
        return Choice(Layout(None), f"a small model ({size:,} parameters): all clients at once")
    if devices > 1 and (linear or widest < WIDE):
        return Choice(Layout(1, devices), f"{devices} CPU devices: one client after the other on each")
    if devices > 1:
        return Choice(Layout(1), f"matrices of {widest:,} columns keep all cores busy: one client after the other")
    return Choice(Layout(1), f"a CPU and {size:,} parameters: one client after the other")


def enough(devices: int, M: int) -> int:
    """The fewest devices on which M clients are done as soon as on all."""
    return math.ceil(M / math.ceil(M / devices))


def mesh(layout: Layout) -> Mesh:
    """The devices over which the clients are spread, and the model where it is."""
    shape, names = (layout.devices,), (AXIS,)
    if layout.model > 1:
        shape, names = (layout.devices, layout.model), (AXIS, MODEL)
    used = jax.devices()[: layout.devices * layout.model]
    return jax.make_mesh(shape, names, (AxisType.Auto,) * len(shape), devices=used)


def replicated(layout: Layout) -> NamedSharding | None:
    """Where what all clients share should lie: on every device of the layout."""
    return None if layout.devices * layout.model == 1 else NamedSharding(mesh(layout), P())


def where(tree: PyTree, layout: Layout) -> PyTree:
    """Where the leaves of a model, or of what is shaped like it, lie: a large one parted along its longest axis.

    A tree of shardings, or one for all. XLA divides the work on them accordingly.
    """
    if layout.model == 1:
        return replicated(layout)

    def one(leaf: Any) -> NamedSharding:
        fits = [k for k in range(leaf.ndim) if leaf.shape[k] % layout.model == 0] if leaf.size >= LARGE else []
        if not fits:
            return NamedSharding(mesh(layout), P())
        longest = max(fits, key=lambda k: leaf.shape[k])
        return NamedSharding(mesh(layout), P(*(MODEL if k == longest else None for k in range(leaf.ndim))))

    return jax.tree.map(one, tree)


def over_clients(
    client: Client, shared: PyTree, inputs: PyTree, weights: Float[Array, "M"] | None, layout: Layout
) -> Sum:
    """The mean message of ``client(shared, own) -> (message, told)`` over the leading axis of `inputs`.

    `shared` is what all clients need: under ``sharded`` it is on every device, so nothing traced may be closed over.
    Its floating numbers have the messages' dtype. Weights, if given, sum to 1. Returns the mean and what the clients
    tell.
    """

    def run(shared: PyTree, inputs: PyTree, weights: Float[Array, "M"] | None) -> Sum:
        return on_one_device(partial(client, shared), inputs, weights, layout.at_once)

    if layout.devices > 1 and weights is None:
        M, dtype = leading(inputs), next(leaf.dtype for leaf in jax.tree.leaves(shared) if is_floating(leaf))
        weights = jnp.full((M,), 1 / M, dtype)
    return on_devices(run, shared, inputs, weights, layout)


def on_devices(
    run: Callable[[Any, PyTree, Any], Sum], shared: PyTree, inputs: PyTree, weights: Any, layout: Layout
) -> Sum:
    """``run(shared, inputs, weights) -> (sum, told)`` with the clients dealt to the layout's devices."""
    if layout.devices == 1:
        return run(shared, inputs, weights)
    M = leading(inputs)
    inputs, weights = filled_up(inputs, weights, layout.devices)
    m = leading(inputs) // layout.devices

    def shard(shared: PyTree, inputs: PyTree, weights: Array, place: Int[Array, "1"]) -> Sum:
        q, told = run(shared, inputs, weights)
        told = jax.tree.map(lambda own: among_all(own, place[0] * m, layout.devices * m), told)
        if layout.model == 1:
            return one_sum((q, told))
        return jax.lax.psum(q, AXIS), one_sum(told)  # arrays that lie on several devices are not put into one

    if layout.inside:
        k = jax.lax.axis_index(AXIS)
        inputs, weights = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, k * m, m), (inputs, weights))
        q, told = shard(shared, inputs, weights, k[None])
    else:
        specs = (P(), P(AXIS), P(AXIS), P(AXIS))
        places = jnp.arange(layout.devices, dtype=jnp.int32)
        weights = everywhere(weights, layout)
        spread = jax.shard_map(
            shard, mesh=mesh(layout), in_specs=specs, out_specs=(P(), P()), axis_names={AXIS}, check_vma=False
        )
        q, told = spread(shared, inputs, weights, places)
    return q, jax.tree.map(lambda leaf: leaf[:M], told)


def everywhere(tree: PyTree, layout: Layout) -> PyTree:
    """Small arrays that every device computes for itself: else XLA would deal that to the devices too, and collect it.

    For what is dealt to devices by its clients right after.
    """
    sharding = None if layout.inside else replicated(layout)
    return tree if sharding is None else jax.lax.with_sharding_constraint(tree, sharding)


def among_all(own: Float[Array, "m ..."], start: Int[Array, ""], filled: int) -> Float[Array, "filled ..."]:
    """What a device's clients tell, at their places among those of all devices, whose places are 0."""
    everyone = jnp.zeros((filled, *own.shape[1:]), own.dtype)
    return jax.lax.dynamic_update_slice_in_dim(everyone, own, start, 0)


def finished(tree: PyTree) -> PyTree:
    """`tree`; what spans several CPU devices is waited for.

    XLA's CPU client has as many threads as devices, and lets a launch wait on one of them while 32 are under way. With
    as many launches behind a program over two devices, as slices of its results, one of its devices may so never get a
    thread, and the other waits in the all-reduce until XLA ends the process.
    """
    for leaf in jax.tree.leaves(tree)[:1]:
        if checks.is_concrete(leaf):
            devices = leaf.sharding.device_set
            if len(devices) > 1 and all(device.platform == "cpu" for device in devices):
                jax.block_until_ready(tree)
    return tree


def one_sum(tree: PyTree) -> PyTree:
    """The sum over devices, in one message; on a CPU a very large leaf goes as it is, since copies cost more there."""
    total = partial(jax.lax.psum, axis_name=AXIS)
    leaves, structure = jax.tree.flatten(tree)
    alone = {k: total(leaf) for k, leaf in enumerate(leaves) if leaf.size >= ALONE and is_fast("auto")}
    rows = {k: leaf[None] for k, leaf in enumerate(leaves) if k not in alone}
    summed = alone | {k: leaf[0] for k, leaf in one_message(total, rows).items()}
    return jax.tree.unflatten(structure, [summed[k] for k in range(len(leaves))])


def one_message(send: Callable[[Array], Array], tree: PyTree) -> PyTree:
    """`send` of all leaves, which have as many rows, side by side, once for each dtype: every call has its latency."""
    leaves, structure = jax.tree.flatten(tree)
    for dtype in {leaf.dtype: None for leaf in leaves}:
        places = [k for k, leaf in enumerate(leaves) if leaf.dtype == dtype]
        rows = [leaves[k].reshape(len(leaves[k]), -1) for k in places]
        sent = send(jnp.concatenate(rows, axis=1))
        parts = jnp.split(sent, np.cumsum([own.shape[1] for own in rows])[:-1], axis=1)
        for k, part in zip(places, parts, strict=True):
            leaves[k] = part.reshape(len(sent), *leaves[k].shape[1:])
    return jax.tree.unflatten(structure, leaves)


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


def is_floating(leaf: Any) -> bool:
    """Whether an array has a floating dtype; keys of random numbers have none."""
    return jnp.issubdtype(leaf.dtype, jnp.floating)


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
