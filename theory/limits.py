r"""Where a method converges from its start, in rational numbers: a round on quadratics is affine in its state.

With the round :math:`s \mapsto s + r(s)`, its Jacobian J and :math:`r = r(s_0)`, the states that are reached lie in
:math:`s_0 + \mathrm{span}(r, Jr, J^2 r, \dots)`. Let p be the minimal polynomial of J on this space,
:math:`p(J) r = 0`. Unless p(1) = 0, it has one fixed point,

.. math:: s = s_0 + q(J)\,r, \qquad q(t) = \frac{p(1) - p(t)}{p(1)\,(1 - t)},

and iterating the round converges to it iff all roots of p are inside the unit circle. Unlike
`theory.fixed_point_of`, this allows states with parts that no round changes (learning rates) or that keep a relation to
others from the start on (SCAFFOLD's c is the mean of all c_i), which are eigenvalues 1 of J.

JAX computes J and r in float64. Here each of their entries becomes the fraction of small denominator that rounds to it,
if there is one. With rational problems and rates that is the true entry, unless the round takes roots or makes longer
fractions; closed forms are the witness in the tests. The rest is in fractions.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from theory.precision import float64

MAX_DENOMINATOR = 10**7
ROUNDING = 2.0**-50
"""Fractions this close to a float, relative to the largest entry, are taken for it."""
Vector = list[Fraction]


class Limit(NamedTuple):
    """Where iterating an affine round from a state leads.

    Attributes:
      state: the fixed point, in float64; integer leaves are those of the start.
      exact: the entries of its floating-point leaves as fractions.
      radius: the spectral radius on the states that are reached: above 1 the iteration diverges from the fixed point.
      residual: how far a round moves the fixed point, or the second round is from what the first one predicts: 0 up to
        rounding if the round is affine, a check of the above.
    """

    state: PyTree
    exact: Sequence[Fraction]
    radius: float
    residual: float


def nearest_fraction(value: float, scale: float = 0.0) -> Fraction:
    """Return the fraction of small denominator that a float is nearest to or, if there is none, the float's value."""
    simple = Fraction(value).limit_denominator(MAX_DENOMINATOR)
    return simple if abs(float(simple) - value) <= ROUNDING * max(abs(value), scale) else Fraction(value)


@float64
def limit_of(round_fn: Callable[[PyTree], PyTree], start: PyTree) -> Limit:
    """Return where iterating a round from `start` converges, if its spectral radius is below 1.

    Args:
      round_fn: one round, ``state -> state``, affine in the floating-point leaves where it is iterated.
      start: the first state. Its integer leaves, such as round counters, are held fixed.

    Raises:
      ValueError: if the iteration drifts: it has no fixed point, or a whole line of them.
    """
    after, matrix = (np.asarray(array) for array in linearized(round_fn, start))
    if not (np.isfinite(after).all() and np.isfinite(matrix).all()):
        raise ValueError("round_fn must be finite and differentiable at start, got a NaN or an infinity")
    scale = float(np.abs(matrix).max(initial=0.0))
    J = [[nearest_fraction(float(entry), scale) for entry in row] for row in matrix]
    s_0, s_1 = ([nearest_fraction(float(entry)) for entry in vector] for vector in (floats_of(start)[0], after))
    shift, radius = krylov_limit(J, [b - a for a, b in zip(s_0, s_1, strict=True)])
    exact = [a + b for a, b in zip(s_0, shift, strict=True)]
    found = np.array([float(entry) for entry in exact])
    state = floats_of(start)[1](jnp.asarray(found))
    second = linearized(round_fn, floats_of(start)[1](jnp.asarray(after)))[0]
    predicted = after + matrix @ (after - np.asarray(floats_of(start)[0]))
    gaps = np.concatenate([np.asarray(linearized(round_fn, state)[0]) - found, np.asarray(second) - predicted])
    return Limit(state, exact, radius, float(np.abs(gaps).max(initial=0.0)))


def floats_of(state: PyTree) -> tuple[Float[Array, "s"], Callable[[Float[Array, "s"]], PyTree]]:
    """Return the floating-point leaves as one vector, and the function that puts such a vector in their place."""
    leaves, structure = jax.tree.flatten(state)
    is_float = [jnp.issubdtype(jnp.result_type(leaf), jnp.floating) for leaf in leaves]
    floats = [jnp.asarray(leaf, jnp.float64) for leaf, own in zip(leaves, is_float, strict=True) if own]
    flat, unravel = ravel_pytree(floats)

    def state_of(vector: Float[Array, "s"]) -> PyTree:
        values = iter(unravel(vector))
        return structure.unflatten([next(values) if own else leaf for leaf, own in zip(leaves, is_float, strict=True)])

    return flat, state_of


@partial(jax.jit, static_argnums=0)
def linearized(round_fn: Callable[[PyTree], PyTree], state: PyTree) -> tuple[Float[Array, "s"], Float[Array, "s s"]]:
    """Return the floating-point leaves after a round, and their Jacobian."""
    flat, state_of = floats_of(state)

    def flat_round(vector: Float[Array, "s"]) -> Float[Array, "s"]:
        return floats_of(round_fn(state_of(vector)))[0]

    return flat_round(flat), jax.jacfwd(flat_round)(flat)


def krylov_limit(J: Sequence[Vector], r: Vector) -> tuple[Vector, float]:
    """Return q(J) r, the sum of all J^t r where it converges, and the largest modulus of the roots of p."""
    powers, polynomial = minimal_polynomial(J, r)
    at_one = sum(polynomial, Fraction(0))
    if at_one == 0:
        raise ValueError("round_fn must have one fixed point that start can reach, got a drift (eigenvalue 1)")
    total = [Fraction(0)] * len(r)
    tail = Fraction(0)  # q_j is the sum of the coefficients of p above j, over p(1)
    for power, coefficient in zip(reversed(powers), reversed(polynomial[1:]), strict=True):
        tail += coefficient
        total = [a + tail / at_one * b for a, b in zip(total, power, strict=True)]
    roots = np.roots([float(coefficient) for coefficient in reversed(polynomial)])
    return total, float(np.abs(roots).max(initial=0.0))


def minimal_polynomial(J: Sequence[Vector], r: Vector) -> tuple[list[Vector], Vector]:
    """Return r, Jr, ..., J^(m-1) r, which are independent, and the coefficients 0, ..., m of the p with p(J) r = 0."""
    powers: list[Vector] = []
    reduced: list[tuple[int, Vector, Vector]] = []  # pivot, a combination of powers with 1 there, its coefficients
    vector = r
    while True:
        rest, combination = vector, [Fraction(0)] * len(powers) + [Fraction(1)]
        for pivot, row, coefficients in reduced:
            factor = rest[pivot]
            rest = [a - factor * b for a, b in zip(rest, row, strict=True)]
            combination = [
                a - factor * b
                for a, b in zip(
                    combination, coefficients + [Fraction(0)] * (len(combination) - len(coefficients)), strict=True
                )
            ]
        pivot = next((index for index, entry in enumerate(rest) if entry), None)
        if pivot is None:
            return powers, combination
        powers.append(vector)
        scale = rest[pivot]
        reduced.append((pivot, [a / scale for a in rest], [a / scale for a in combination]))
        vector = [sum((a * b for a, b in zip(row, vector, strict=True)), Fraction(0)) for row in J]
