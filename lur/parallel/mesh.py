"""Devices: the platform that programs run on, meshes, where arrays are placed, and what devices send each other."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, PyTree

from lur.parallel.layouts import Layout

CLIENTS_AXIS = "clients"
MODEL_AXIS = "model"
LARGE_ARRAY = 2**22
"""On a CPU an array with at least this many elements is sent by itself: copying costs more than another message."""
SPLIT_SIZE = 1024
"""Arrays with at least this many elements are split along a model axis."""


lowering_for = jax.make_user_context(None)
"""``with lowering_for("tpu"):`` traces programs for that platform; the default None means this machine's backend."""


def target_platform() -> str:
    """Return the platform that programs traced now will run on: ``cpu``, ``gpu``, ``cuda``, ``tpu``, ..."""
    return lowering_for.value or jax.default_backend()


def targets_cpu() -> bool:
    """Return whether programs traced now will run on a CPU."""
    return target_platform() == "cpu"


def mesh_of(layout: Layout) -> Mesh:
    """Return the mesh over which the layout shards clients and, if it has a model axis, models."""
    shape, names = (layout.devices,), (CLIENTS_AXIS,)
    if layout.model > 1:
        shape, names = (layout.devices, layout.model), (CLIENTS_AXIS, MODEL_AXIS)
    devices = jax.devices()[: layout.devices * layout.model]
    return jax.make_mesh(shape, names, (AxisType.Auto,) * len(shape), devices=devices)


def replicated(layout: Layout) -> NamedSharding | None:
    """Return the sharding that copies an array to every device of the layout; None for a single device."""
    return None if layout.devices * layout.model == 1 else NamedSharding(mesh_of(layout), P())


def param_shardings(tree: PyTree, layout: Layout) -> PyTree:
    """Return shardings for a model, or for state shaped like one: a tree of shardings, or one for all leaves.

    With a model axis, each large array is split along its longest axis that divides, and XLA partitions the
    computation accordingly. Without one, everything is replicated.
    """
    if layout.model == 1:
        return replicated(layout)
    mesh = mesh_of(layout)

    def sharding(leaf: Any) -> NamedSharding:
        divisible = [k for k in range(leaf.ndim) if leaf.shape[k] % layout.model == 0]
        if leaf.size < SPLIT_SIZE or not divisible:
            return NamedSharding(mesh, P())
        longest = max(divisible, key=lambda k: leaf.shape[k])
        return NamedSharding(mesh, P(*(MODEL_AXIS if k == longest else None for k in range(leaf.ndim))))

    return jax.tree.map(sharding, tree)


def constrain_replicated(tree: PyTree, layout: Layout) -> PyTree:
    """Constrain small arrays to be replicated, so that every device computes them itself.

    Otherwise XLA may shard their computation as well and then has to gather the result. Used for arrays that are
    sharded by client right afterwards.
    """
    sharding = None if layout.inside_mesh else replicated(layout)
    return tree if sharding is None else jax.lax.with_sharding_constraint(tree, sharding)


def block_if_cpu_mesh(tree: PyTree) -> PyTree:
    """Return `tree`; if it lies on several CPU devices, wait until it is computed.

    XLA's CPU client has one thread per device and blocks a launch on such a thread while 32 computations are in
    flight. With that many launches (slices of the results, say) queued behind a program over two devices, one of its
    devices may never get a thread, and the other waits in the all-reduce until XLA aborts the process.
    """
    for leaf in jax.tree.leaves(tree)[:1]:
        if not isinstance(leaf, Tracer):
            devices = leaf.sharding.device_set
            if len(devices) > 1 and all(device.platform == "cpu" for device in devices):
                jax.block_until_ready(tree)
    return tree


def packed_psum(tree: PyTree, axis_name: str) -> PyTree:
    """Sum `tree` over the devices of a mesh axis in one all-reduce per dtype."""
    psum = partial(jax.lax.psum, axis_name=axis_name)
    leaves, structure = jax.tree.flatten(tree)
    summed = {k: psum(leaf) for k, leaf in enumerate(leaves) if leaf.size >= LARGE_ARRAY and targets_cpu()}
    rows = {k: leaf[None] for k, leaf in enumerate(leaves) if k not in summed}
    summed |= {k: leaf[0] for k, leaf in packed(psum, rows).items()}
    return jax.tree.unflatten(structure, [summed[k] for k in range(len(leaves))])


def packed(send: Callable[[Array], Array], tree: PyTree) -> PyTree:
    """Apply the collective `send` to all leaves at once, concatenated into one matrix per dtype.

    The leaves must agree on their first axis, which `send` may change; every call of a collective has its latency.
    """
    leaves, structure = jax.tree.flatten(tree)
    for dtype in {leaf.dtype: None for leaf in leaves}:
        positions = [k for k, leaf in enumerate(leaves) if leaf.dtype == dtype]
        rows = [leaves[k].reshape(len(leaves[k]), -1) for k in positions]
        sent = send(jnp.concatenate(rows, axis=1))
        columns = jnp.split(sent, np.cumsum([row.shape[1] for row in rows])[:-1], axis=1)
        for k, column in zip(positions, columns, strict=True):
            leaves[k] = column.reshape(len(sent), *leaves[k].shape[1:])
    return jax.tree.unflatten(structure, leaves)
