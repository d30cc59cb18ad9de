"""Checks of a caller's arguments, made before anything is traced or compiled.

Shapes and dtypes are always known. Values are known outside of jit only, so checks of values let tracers through.
Every error names the argument, what was expected and what was given.
"""

from collections.abc import Callable
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PyTree

Loss = Callable[[PyTree, PyTree], Array]


def is_concrete(*values: Any) -> bool:
    """Return whether the values can be inspected: nothing among them is being traced."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def positive_integer(name: str, value: Any) -> int:
    """Return an integer >= 1."""
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else 0.0
    if number < 1 or not number.is_integer():
        raise ValueError(f"{name} must be an integer >= 1, got {value!r}")
    return int(number)


def positive_number(name: str, value: Any, largest: float | None = None) -> float:
    """Return a number > 0 in the range of float32, and at most `largest`."""
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else 0.0
    if not 0 < number < float("inf") or (largest is not None and number > largest):
        expected = "> 0" if largest is None else f"in (0, {largest}]"
        raise ValueError(f"{name} must be a number {expected}, got {value!r}")
    in_range(name, np.array([number]), jnp.float32)
    return number


def seed(name: str, value: Any) -> np.uint32:
    """Return a seed, an integer of 32 bits."""
    if isinstance(value, bool) or int(value) != value or not 0 <= value < 2**32:
        raise ValueError(f"{name} must be an integer from 0 to 2^32 - 1, got {value!r}")
    return np.uint32(value)


def param_dtypes(params: PyTree) -> tuple[Any, ...]:
    """Return the distinct dtypes of all parameters, which must be floating point."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    if not leaves:
        raise ValueError("params must have at least one array, got an empty pytree")
    dtypes = {}
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path) or "params"
        try:
            dtypes[name] = jnp.result_type(leaf)
        except TypeError:
            raise ValueError(
                f"params must be a pytree of arrays, got {type(leaf).__name__} at {name}; keep what is not an array "
                f"out of params, in the loss function's closure (equinox.partition and nnx.split separate the two)"
            ) from None
        if not jnp.issubdtype(dtypes[name], jnp.floating):
            raise ValueError(
                f"params must be floating point, got {dtypes[name]} at {name}; keep such arrays out of params, in the "
                f"loss function's closure (equinox.partition and nnx.split separate the two)"
            )
    return tuple(dict.fromkeys(dtypes.values()))


def floating_dtype(params: PyTree) -> Any:
    """Return the dtype of rates, weights and norms: the widest dtype of the parameters, and at least float32."""
    return widest_dtype(*param_dtypes(params), jnp.float32)


def widest_dtype(*dtypes: Any) -> Any:
    """Return the floating dtype with the most bits, the first of them if there are several."""
    return max(map(jnp.dtype, dtypes), key=lambda dtype: jnp.finfo(dtype).bits)


def client_weights(weights: Any, M: int, dtype: Any) -> Array:
    """Return the weights of a round's clients: nonnegative, not all zero, one per client."""
    shape = np.shape(weights)
    if shape != (M,):
        raise ValueError(f"weights must have one entry per client, shape ({M},), got {shape}")
    if is_concrete(weights):
        values = np.asarray(weights, np.float64)
        if not (np.isfinite(values).all() and (values >= 0).all() and values.any()):
            raise ValueError(f"weights must be finite, >= 0 and not all zero, got {values}")
        values = values / values.max()  # neither the sum nor the cast overflows
        return jnp.asarray(values / values.sum(), dtype)
    weights = jnp.asarray(weights, dtype)
    return weights * jnp.where(weights.max() > 2.0**64, 2.0**-64, 1.0).astype(dtype)  # their sum does not overflow


def client_indices(clients: Any, M: int, N: int | None) -> Array:
    """Return the indices of a round's clients, among the N that keep a state or, if N is None, of any number."""
    if clients is None:
        if N is not None and M > N:
            raise ValueError(f"batches must have at most the {N} clients of the state, got {M}")
        return np.arange(M, dtype=np.int32)  # pyright: ignore[reportReturnType] # jnp.arange compiles a program
    clients = clients if isinstance(clients, Array) else np.asarray(clients)
    if clients.shape != (M,) or not jnp.issubdtype(clients.dtype, jnp.integer):
        raise ValueError(f"clients must be {M} integers, one index per client, got {clients!r}")
    if is_concrete(clients):
        values = np.asarray(clients)
        if N is None and values.min() < 0:
            raise ValueError(f"clients must be indices >= 0, got {values}")
        if N is not None and (values.min() < 0 or values.max() >= N or len({*values.tolist()}) < M):
            raise ValueError(f"clients must be distinct indices from 0 to {N - 1}, got {values}")
    return jnp.asarray(clients, jnp.int32)


def client_steps(steps: Any, count: int, K: int) -> Any:
    """Return numbers of local steps, one per client: `count` integers from 1 to K."""
    array = steps if isinstance(steps, Array) else np.asarray(steps)
    if array.shape != (count,) or not jnp.issubdtype(array.dtype, jnp.integer):
        raise ValueError(
            f"steps must be {count} integers, one per client, got shape {array.shape} of dtype {array.dtype}"
        )
    if is_concrete(array):
        values = np.asarray(array)
        wrong = np.flatnonzero((values < 1) | (values > K))
        if wrong.size:
            i = int(wrong[0])
            raise ValueError(f"steps must be from 1 to K = {K}, the method's local steps, got {values[i]} at index {i}")
    return array


def rate(name: str, value: Any, dtype: Any, steps: int | None = None, within: Any = None) -> Array:
    """Return a learning rate as an array: a nonnegative scalar or, if `steps` is given, one rate per local step.

    It must be in the range of the dtype `within`, by default that of the array.
    """
    array = value if isinstance(value, Tracer) else np.asarray(value)
    if not (jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)):
        raise ValueError(f"{name} must be a number, got dtype {array.dtype}")
    allowed = [()] if steps is None else [(), (steps,)]
    if array.shape not in allowed:
        expected = " or ".join(str(shape) for shape in allowed)
        raise ValueError(f"{name} must have shape {expected}, got {array.shape}")
    if is_concrete(array) and not (np.isfinite(array).all() and (np.asarray(array) >= 0).all()):
        raise ValueError(f"{name} must be finite and >= 0, got {value}")
    if is_concrete(array):
        in_range(name, np.asarray(array, np.float64), dtype if within is None else within)
    return jnp.asarray(array, dtype)


def param_rate(name: str, value: Any, params: PyTree, steps: int | None = None) -> Array:
    """Return a learning rate for these parameters: at least float32, and in the range of the widest of their dtypes."""
    return rate(name, value, floating_dtype(params), steps, within=widest_dtype(*param_dtypes(params)))


def in_range(name: str, values: np.ndarray, dtype: Any) -> None:
    """Refuse finite numbers that would be infinite in `dtype`, and positive ones that would be zero."""
    limits = jnp.finfo(dtype)
    least, largest = float(limits.smallest_subnormal), float(limits.max)
    for number in values[(values > largest) | ((values > 0) & (values < least))].flat:
        raise ValueError(
            f"{name} must be 0 or in the range of {jnp.dtype(dtype)}, from {least:.3g} to {largest:.5g}, got {number}"
        )


def leading_axes(batches: PyTree, names: tuple[str, ...], least: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes of the leading axes, named `names`, that all leaves of `batches` share.

    A leaf may lack the last axis (the examples axis): it then has one value per step, such as a random key.
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
                raw_keys = [x for _, x in leaves if jnp.result_type(x) == jnp.uint32 and np.ndim(x) == len(names)]
                is_key = raw_keys and axis == len(names) - 1
                hint = "; give random keys of jax.random.key, not of jax.random.PRNGKey" if is_key else ""
                raise ValueError(f"batches must agree on the {names[axis]} axis of {axes}, got {sizes}{hint}")
    sizes = tuple(found[axis][0] if axis in found else 1 for axis in range(len(names)))
    for name, size, minimum in zip(names, sizes, least, strict=True):
        if size < minimum:
            raise ValueError(f"batches must have at least {minimum} along the {name} axis of {axes}, got {size}")
    return sizes


def batch_dtypes(batches: PyTree, params: PyTree) -> None:
    """Refuse floating batches of a dtype that no parameter has: products with them would be promoted silently."""
    dtypes = param_dtypes(params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(batches):
        dtype = jnp.result_type(leaf)
        if jnp.issubdtype(dtype, jnp.floating) and dtype not in dtypes:
            name, expected = jax.tree_util.keystr(path) or "batches", " or ".join(str(one) for one in dtypes)
            raise ValueError(
                f"batches must have the dtype of params, {expected}, got {dtype} at {name}; cast one of them"
            )


def scalar_loss(loss_fn: Loss, params: PyTree, batch: PyTree) -> None:
    """Refuse a loss function whose value is not a scalar of a dtype of the parameters; only shapes are computed."""
    dtypes = param_dtypes(params)
    loss = jax.eval_shape(loss_fn, params, batch)
    if not hasattr(loss, "shape") or loss.shape != ():
        given = getattr(loss, "shape", type(loss).__name__)
        raise ValueError(f"loss_fn must return a scalar, got {given}; take the mean over the batch")
    if loss.dtype not in (*dtypes, *(() if len(dtypes) == 1 else (floating_dtype(params),))):
        expected = " or ".join(str(one) for one in dtypes)
        raise ValueError(f"loss_fn must return the dtype of params, {expected}, got {loss.dtype}")


def state_of_method(expected: Any, state: Any) -> None:
    """Refuse a state whose fields differ from those that the method makes, such as Adam's for an SGD server.

    Args:
      expected: the shapes of the method's own state.
      state: the state given, a NamedTuple of the same type.
    """
    for name in expected._fields:
        shapes = [
            jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), getattr(one, name))
            for one in (expected, state)
        ]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"state must be that of this method, with {name} = {shapes[0]}, got {shapes[1]}; use method.init"
            )
