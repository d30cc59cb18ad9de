"""What a caller may pass, checked before anything is traced deep or compiled.

Shapes and dtypes are always known; values only outside of jit, so value checks let tracers through.
Every error names the argument, what came and what was expected.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PyTree

Loss = Callable[[PyTree, PyTree], Array]


def is_concrete(*values: Any) -> bool:
    """True where values can be looked at: nothing among them is being traced."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def floating_dtype(params: PyTree) -> jnp.dtype:
    """The one floating dtype of all parameters."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    if not leaves:
        raise ValueError("params must have at least one array, got an empty pytree")
    dtypes = {jax.tree_util.keystr(path) or "params": jnp.result_type(leaf) for path, leaf in leaves}
    for name, dtype in dtypes.items():
        if not jnp.issubdtype(dtype, jnp.floating):
            raise ValueError(f"params must be floating point, got {dtype} at {name}")
    if len(set(dtypes.values())) > 1:
        listing = ", ".join(f"{name}: {dtype}" for name, dtype in dtypes.items())
        raise ValueError(f"params must have one dtype, got a mixture ({listing})")
    return next(iter(dtypes.values()))


def rate(name: str, value: Any, dtype: Any, steps: int | None = None) -> Array:
    """A learning rate as an array: a nonnegative scalar or, where `steps` is given, one rate per local step."""
    array = value if isinstance(value, Tracer) else np.asarray(value)
    if not (jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)):
        raise ValueError(f"{name} must be a number, got dtype {array.dtype}")
    allowed = [()] if steps is None else [(), (steps,)]
    if array.shape not in allowed:
        expected = " or ".join(str(shape) for shape in allowed)
        raise ValueError(f"{name} must have shape {expected}, got {array.shape}")
    if is_concrete(array) and not (np.isfinite(array).all() and (np.asarray(array) >= 0).all()):
        raise ValueError(f"{name} must be finite and >= 0, got {value}")
    return jnp.asarray(array, dtype)


def leading_axes(batches: PyTree, names: tuple[str, ...], least: tuple[int, ...]) -> tuple[int, ...]:
    """The leading axes, named `names`, that all leaves of `batches` share.

    A leaf may stop short of the last axis (the examples axis): one value per step, say a random key.
    """
    leaves = jax.tree_util.tree_leaves_with_path(batches)
    if not leaves:
        raise ValueError("batches must have at least one array, got an empty pytree")
    axes = f"({', '.join(names)}, ...)"
    found: dict[int, tuple[int, str]] = {}
    for path, leaf in leaves:
        shape, where = np.shape(leaf), jax.tree_util.keystr(path) or "batches"
        if len(shape) < len(names) - 1:
            raise ValueError(f"batches must have leading axes {axes}, got shape {shape} at {where}")
        for axis, size in enumerate(shape[: len(names)]):
            expected, first = found.setdefault(axis, (size, where))
            if size != expected:
                sizes = f"{expected} at {first} and {size} at {where}"
                raise ValueError(f"batches must agree on the {names[axis]} axis of {axes}, got {sizes}")
    sizes = tuple(found[axis][0] if axis in found else 1 for axis in range(len(names)))
    for name, size, minimum in zip(names, sizes, least, strict=True):
        if size < minimum:
            raise ValueError(f"batches must have at least {minimum} along the {name} axis of {axes}, got {size}")
    return sizes


def batch_dtypes(batches: PyTree, dtype: Any) -> None:
    """Floating batches must have the parameters' dtype: a mixture would be promoted silently."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(batches):
        found = jnp.result_type(leaf)
        if jnp.issubdtype(found, jnp.floating) and found != dtype:
            where = jax.tree_util.keystr(path) or "batches"
            raise ValueError(
                f"batches must have the dtype of params, {dtype}, got {found} at {where}; cast one of them"
            )


def scalar_loss(loss_fn: Loss, params: PyTree, batch: PyTree, dtype: Any) -> None:
    """loss_fn(params, batch) must be one number of the parameters' dtype; checked on shapes alone."""
    shaped = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), jnp.result_type(leaf)), (params, batch))
    loss = jax.eval_shape(loss_fn, *shaped)
    if not hasattr(loss, "shape") or loss.shape != ():
        found = getattr(loss, "shape", type(loss).__name__)
        raise ValueError(f"loss_fn must return a scalar, got {found}; take the mean over the batch")
    if loss.dtype != dtype:
        raise ValueError(f"loss_fn must return the dtype of params, {dtype}, got {loss.dtype}")
