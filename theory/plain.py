"""Double-precision arithmetic on numpy arrays, with the names of `theory.exact`: nothing is compiled."""

import functools
import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

eye = np.eye
sqrt = np.sqrt
exp = np.exp
log = np.log
sin = np.sin
cos = np.cos
floor = np.floor
solve = np.linalg.solve
inverse = np.linalg.inv
eigvalsh = np.linalg.eigvalsh
norm = np.linalg.norm
power = np.linalg.matrix_power
concatenate = np.concatenate
total = np.sum


def floats(values: Any) -> np.ndarray:
    """An array of float64 from numbers, fractions or strings such as '3/4', in nested sequences."""
    values = np.asarray(values, dtype=object)
    return np.array([float(Fraction(v) if isinstance(v, str) else v) for v in values.ravel()]).reshape(values.shape)


array = floats


def sigmoid(x: Any) -> Any:
    """1 / (1 + e^{-x})."""
    return 0.5 * (1 + np.tanh(np.asarray(x) / 2))


def maximum(*values: Any) -> Any:
    """The largest number."""
    return np.max(np.stack(values))


def minimum(*values: Any) -> Any:
    """The smallest number."""
    return np.min(np.stack(values))


def mean(p: Any, values: Any) -> Any:
    """sum_i p_i values_i over the first axis."""
    return np.tensordot(p, values, axes=1)


def operator_norm(A: Any) -> Any:
    """The largest singular value."""
    return np.linalg.norm(A, 2, axis=(-2, -1))


def stack(values: Any) -> Any:
    """Numbers or arrays as one array."""
    return np.stack([np.asarray(v) for v in values])


def expectation(probability: Any, of: Callable[[Any], Any], draws: Any) -> Any:
    """E[of(draw)] over listed draws."""
    return np.tensordot(probability, np.stack([of(draw) for draw in draws]), axes=1)


def each(of: Callable[[Any], Any], draws: Any) -> Any:
    """of(draw) for every listed draw."""
    return np.stack([of(draw) for draw in draws])


def scan(step: Callable[[Any, Any], tuple[Any, Any]], state: Any, inputs: tuple[Any, ...]) -> Any:
    """The outputs of ``step(state, inputs_t) -> (state, output)`` for t = 1, 2, ..."""
    outputs = []
    for row in zip(*inputs, strict=True):
        state, output = step(state, row)
        outputs.append(output)
    return stack(outputs)


def distortion(A: Any, gamma: Any, theta: Sequence[Any]) -> Any:
    """Q = sum_k theta_k (I - gamma A)^{k-1}, of one matrix or of a stack, by Horner's rule."""
    one = np.eye(A.shape[-1])
    step, Q = one - gamma * A, 0 * A
    for theta_k in reversed(theta):
        Q = theta_k * one + step @ Q
    return Q


def inner_loop(A: Any, c: Any, x: Any, gamma: Any, theta: Sequence[Any]) -> Any:
    """Algorithm 2 on given mini-batches A (K, B, d, d), c (K, B, d): sum_k theta_k g_k."""
    update = 0 * x
    for k, theta_k in enumerate(theta):
        g = (A[k] @ (x - c[k])[..., None])[..., 0].mean(0)
        update = update + theta_k * g
        x = x - gamma * g
    return update


def maml_gradient(A: Any, c: Any, x: Any, gamma: Any, steps: int) -> Any:
    """The chain rule by hand: prod_k (I - gamma A_k), in reverse, times the outer gradient at X_K."""
    jacobians = []
    for k in range(steps):
        jacobians.append(np.eye(len(x)) - gamma * A[k].mean(0))
        x = x - gamma * (A[k] @ (x - c[k])[..., None])[..., 0].mean(0)
    gradient = (A[steps] @ (x - c[steps])[..., None])[..., 0].mean(0)
    return functools.reduce(lambda g, jacobian: jacobian @ g, reversed(jacobians), gradient)


def batch_sequences(p_z: Any, K: int, B: int) -> tuple[np.ndarray, np.ndarray]:
    """Every sequence of K mini-batches of B examples, with its probability."""
    draws = list(itertools.product(range(len(p_z)), repeat=K * B))
    probability = np.array([np.prod([p_z[z] for z in draw]) for draw in draws])
    return np.array(draws).reshape(len(draws), K, B), probability
