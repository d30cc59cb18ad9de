"""Exact arithmetic: rationals where the answer is rational, rigorous enclosures where it is not.

Arrays are numpy arrays of `flint.fmpq`; an irrational root, logarithm or eigenvalue becomes a ball (`flint.arb`) that
certainly contains it. A comparison of balls is true only if it is certain. The functions transcribe the definitions and
share no code with the jax forms that they check.
"""

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from theory._extras import exact_extra

with exact_extra("theory.exact"):
    import flint
    from flint import arb, fmpq

PRECISION = 256
flint.ctx.prec = PRECISION

Number = Any  # fmpq or arb


def rational(value: Any) -> fmpq:
    """Returns an exact rational from an int, a Fraction, a string such as '3/4' or a float (its exact binary value)."""
    if isinstance(value, fmpq):
        return value
    fraction = Fraction(str(value)) if isinstance(value, str) else Fraction(value)
    return fmpq(fraction.numerator, fraction.denominator)


def array(values: Any) -> np.ndarray:
    """A numpy array of exact rationals from nested sequences."""
    values = np.asarray(values, dtype=object)
    return np.array([rational(v) for v in values.ravel()], dtype=object).reshape(values.shape)


def fraction(value: Number) -> Fraction:
    """A rational as a `fractions.Fraction`."""
    value = rational(value)
    return Fraction(int(value.p), int(value.q))


def eye(d: int) -> np.ndarray:
    """The identity."""
    return array(np.eye(d, dtype=int))


def sqrt(value: Number) -> Number:
    """The square root: rational if possible, otherwise a ball."""
    if isinstance(value, fmpq):
        if value < 0:
            raise ValueError(f"square root of the negative number {value}")
        roots = value.p.isqrt(), value.q.isqrt()
        if roots[0] ** 2 == value.p and roots[1] ** 2 == value.q:
            return fmpq(*roots)
    return arb(value).sqrt()


def exp(value: Number) -> Number:
    """e to the power of a number: a ball, except for e^0."""
    return fmpq(1) if value == 0 else arb(value).exp()


def log(value: Number) -> Number:
    """The natural logarithm: a ball, except for log 1."""
    return fmpq(0) if value == 1 else arb(value).log()


def maximum(*values: Number) -> Number:
    """The largest number; a ball that contains it if the order is uncertain."""
    largest = values[0]
    for value in values[1:]:
        if value >= largest:
            largest = value
        elif not value <= largest:
            largest = arb(largest).max(arb(value))
    return largest


def minimum(*values: Number) -> Number:
    """The smallest number."""
    return -maximum(*(-v for v in values))


def total(values: Any) -> Number:
    """The sum of all entries."""
    return sum(np.asarray(values, dtype=object).ravel(), fmpq(0))


def norm(vector: Any) -> Number:
    """The Euclidean norm."""
    return sqrt(total(np.asarray(vector, dtype=object) ** 2))


def mean(p: Any, values: Any) -> Any:
    """sum_i p_i values_i over the first axis."""
    return sum((p_i * v for p_i, v in zip(p, values, strict=True)), 0 * values[0])


def stack(values: Sequence[Any]) -> np.ndarray:
    """Numbers or arrays as one array."""
    return np.stack([np.asarray(v, dtype=object) for v in values])


def expectation(probability: np.ndarray, of: Callable[[Any], Any], draws: np.ndarray) -> Any:
    """E[of(draw)] over listed draws."""
    return mean(probability, [of(draw) for draw in draws])


def each(of: Callable[[Any], Any], draws: np.ndarray) -> np.ndarray:
    """of(draw) for every listed draw."""
    return stack([of(draw) for draw in draws])


def scan(step: Callable[[Any, Any], tuple[Any, Any]], state: Any, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
    """The outputs of ``step(state, inputs_t) -> (state, output)`` for t = 1, 2, ..."""
    outputs = []
    for row in zip(*inputs, strict=True):
        state, output = step(state, row)
        outputs.append(output)
    return stack(outputs)


def concatenate(values: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays joined along their first axis."""
    return np.concatenate(values)


def solve(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A^{-1} b by elimination, for a vector or a matrix b."""
    d = len(A)
    rows = [[*A[i], *np.atleast_1d(b[i])] for i in range(d)]
    for i in range(d):
        pivot = next((r for r in range(i, d) if rows[r][i] != 0), None)
        if pivot is None:
            raise ZeroDivisionError("the matrix is singular")
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [v / rows[i][i] for v in rows[i]]
        for r in range(d):
            if r != i:
                rows[r] = [v - rows[r][i] * w for v, w in zip(rows[r], rows[i], strict=True)]
    solution = np.array([row[d:] for row in rows], dtype=object)
    return solution.reshape(np.shape(b))


def inverse(A: np.ndarray) -> np.ndarray:
    """A^{-1}."""
    return solve(A, eye(len(A)))


def eigvalsh(A: np.ndarray) -> np.ndarray:
    """Ascending eigenvalues of a symmetric matrix or of a stack of them."""
    if A.ndim > 2:
        return np.stack([eigvalsh(a) for a in A])
    d = len(A)
    if all(A[i, j] == 0 for i in range(d) for j in range(d) if i != j):
        diagonal = [A[i, i] for i in range(d)]
        if all(isinstance(v, fmpq) for v in diagonal):
            return np.array(sorted(diagonal), dtype=object)
        if d == 1:
            return np.array(diagonal, dtype=object)
    if d == 2:
        middle, half = (A[0, 0] + A[1, 1]) / 2, (A[0, 0] - A[1, 1]) / 2
        radius = sqrt(half**2 + A[0, 1] * A[1, 0])
        return np.array([middle - radius, middle + radius], dtype=object)
    if not all(isinstance(v, fmpq) for v in A.ravel()):
        return _enclosed_spectrum(A)
    roots = []
    polynomial: Any = flint.fmpq_mat(d, d, list(A.ravel())).charpoly()
    for root, multiplicity in polynomial.numer().complex_roots():
        roots += [root.real] * multiplicity
    return np.array(sorted(roots, key=float), dtype=object)


def _enclosed_spectrum(A: np.ndarray) -> np.ndarray:
    """Ascending eigenvalues of a symmetric matrix of balls; not a number where they cannot be enclosed."""
    d = len(A)
    try:
        values: Any = flint.acb_mat(flint.arb_mat(d, d, [arb(v) for v in A.ravel()])).eig(multiple=True)
    except ValueError:  # the eigenvalues of such matrices are too close
        return np.array([arb("nan")] * d, dtype=object)
    return np.array(sorted((value.real for value in values), key=float), dtype=object)


def operator_norm(A: np.ndarray) -> Number:
    """The largest singular value."""
    if np.array_equal(A, A.T):
        spectrum = eigvalsh(A)
        return maximum(*(abs(v) for v in spectrum))
    return sqrt(eigvalsh(A.T @ A)[-1])


def power(A: np.ndarray, k: int) -> np.ndarray:
    """A^k by repeated products."""
    result = eye(len(A))
    for _ in range(k):
        result = result @ A
    return result


def distortion(A: np.ndarray, gamma: Number, theta: Sequence[Number]) -> np.ndarray:
    """Q = sum_k theta_k (I - gamma A)^{k-1}, term by term."""
    if A.ndim > 2:
        return np.stack([distortion(a, gamma, theta) for a in A])
    term, Q = eye(len(A)), 0 * A
    step = eye(len(A)) - gamma * A
    for theta_k in theta:
        Q = Q + theta_k * term
        term = term @ step
    return Q


def inner_loop(A: np.ndarray, c: np.ndarray, x: np.ndarray, gamma: Number, theta: Sequence[Number]) -> np.ndarray:
    """Algorithm 2 on given mini-batches A (K, B, d, d), c (K, B, d): sum_k theta_k g_k."""
    update = 0 * x
    for k, theta_k in enumerate(theta):
        B = len(A[k])
        g = sum((A[k][b] @ (x - c[k][b]) for b in range(B)), 0 * x) / fmpq(B)
        update = update + theta_k * g
        x = x - gamma * g
    return update


def maml_gradient(A: np.ndarray, c: np.ndarray, x: np.ndarray, gamma: Number, steps: int) -> np.ndarray:
    """The chain rule by hand: prod_k (I - gamma A_k), in reverse, times the outer gradient at X_K."""
    jacobians = []
    for k in range(steps):
        A_k = mean(np.array([fmpq(1, len(A[k]))] * len(A[k]), dtype=object), A[k])
        g = sum((a @ (x - b) for a, b in zip(A[k], c[k], strict=True)), 0 * x) / fmpq(len(A[k]))
        jacobians.append(eye(len(x)) - gamma * A_k)
        x = x - gamma * g
    gradient = sum((a @ (x - b) for a, b in zip(A[steps], c[steps], strict=True)), 0 * x) / fmpq(len(A[steps]))
    for jacobian in reversed(jacobians):
        gradient = jacobian @ gradient
    return gradient


def batch_sequences(p_z: Sequence[Number], K: int, B: int) -> tuple[np.ndarray, np.ndarray]:
    """Every sequence of K mini-batches of B examples, with its probability."""
    draws = list(itertools.product(range(len(p_z)), repeat=K * B))
    probability = np.array([np.prod([p_z[z] for z in draw]) for draw in draws], dtype=object)
    return np.array(draws).reshape(len(draws), K, B), probability
