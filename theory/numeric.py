"""Double-precision arithmetic on jax arrays, with the names of `theory.exact`: a formula is written once for both."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from theory import enumeration, surrogate
from theory.plain import floats

eye = jnp.eye
sqrt = jnp.sqrt
exp = jnp.exp
log = jnp.log
sin = jnp.sin
cos = jnp.cos
floor = jnp.floor
sigmoid = jax.nn.sigmoid
solve = jnp.linalg.solve
inverse = jnp.linalg.inv
eigvalsh = jnp.linalg.eigvalsh
norm = jnp.linalg.norm
power = jnp.linalg.matrix_power
distortion = surrogate.distortion
batch_sequences = enumeration.batch_sequences
concatenate = jnp.concatenate


def array(values: Any) -> Any:
    """A float64 array of numbers or strings such as '3/4'."""
    return jnp.asarray(floats(values))


def total(values: Any) -> Any:
    """The sum of all entries."""
    return jnp.sum(values)


def maximum(*values: Any) -> Any:
    """The largest number."""
    return jnp.max(jnp.stack([jnp.asarray(v) for v in values]))


def minimum(*values: Any) -> Any:
    """The smallest number."""
    return jnp.min(jnp.stack([jnp.asarray(v) for v in values]))


def mean(p: Any, values: Any) -> Any:
    """sum_i p_i values_i over the first axis."""
    return jnp.tensordot(p, values, axes=1)


def operator_norm(A: Any) -> Any:
    """The largest singular value."""
    return jnp.linalg.norm(A, 2, axis=(-2, -1))


def stack(values: Any) -> Any:
    """Numbers or arrays as one array."""
    return jnp.stack([jnp.asarray(v) for v in values])


def expectation(probability: Any, of: Callable[[Any], Any], draws: Any) -> Any:
    """E[of(draw)] over listed draws."""
    return jnp.tensordot(probability, jax.vmap(of)(draws), axes=1)


def each(of: Callable[[Any], Any], draws: Any) -> Any:
    """of(draw) for every listed draw."""
    return jax.vmap(of)(draws)


def scan(step: Callable[[Any, Any], tuple[Any, Any]], state: Any, inputs: tuple[Any, ...]) -> Any:
    """The outputs of ``step(state, inputs_t) -> (state, output)`` for t = 1, 2, ..."""
    return jax.lax.scan(step, state, inputs)[1]
