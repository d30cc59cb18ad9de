r"""The surrogate of any client algorithm, by autodiff.

On quadratics whatever a first-order client sends is affine in the broadcast model, :math:`q^i(x) = J_i x - b_i`,
however it steps. So its Jacobian and its value at 0 are all there is to know. With :math:`J = E[J_i]`,
:math:`b = E[b_i]` the mean message is the gradient of a loss, with Hessian J, iff J is symmetric; whether or
not, it vanishes at :math:`J^{-1} b`.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from theory.enumeration import batch_sequences
from theory.precision import float64
from theory.problems import Problem, StochasticProblem

ClientFn = Callable[..., Float[Array, "d"]]
"""``client_fn(batches, x) -> message``; batches are (A, c) of shapes (K, B, d, d) and (K, B, d), as lur's clients."""

Drawing = Literal["iid", "reshuffled", "ordered"]

TOLERANCE = 1e-10
"""Relative to ||J||: asymmetry and departure from an affine map that count as rounding."""


class Affine(NamedTuple):
    """x -> matrix x + offset."""

    matrix: Float[Array, "m d"]
    offset: Float[Array, "m"]


def affine(function: Callable[[Float[Array, "d"]], Float[Array, "m"]], d: int) -> Affine:
    """The matrix and offset of an affine function of R^d; a NaN offset if it is not affine."""
    offset, matrix = function(jnp.zeros(d)), jax.jacfwd(function)(jnp.zeros(d))
    elsewhere = jnp.cos(jnp.arange(1.0, d + 1))  # no direction of a problem's choosing
    gap = jnp.abs(function(elsewhere) - matrix @ elsewhere - offset).max()
    scale = jnp.abs(matrix).max() + jnp.abs(offset).max()
    return Affine(matrix, jnp.where(gap <= TOLERANCE * scale, offset, jnp.nan))


class Surrogate(NamedTuple):
    """What a client algorithm optimises: the mean message is ``hessian @ (x - minimizer)``.

    Where `asymmetry` is 0 it is the gradient of the surrogate loss, and `hessian` is its Hessian; else of no loss,
    and `hessian` and `minimizer` are only the Jacobian of the mean message and the point where it vanishes.
    """

    hessian: Float[Array, "d d"]
    gradient_at_0: Float[Array, "d"]
    client_hessians: Float[Array, "n d d"]
    client_gradients_at_0: Float[Array, "n d"]

    @property
    @float64
    def minimizer(self) -> Float[Array, "d"]:
        """Where the mean message vanishes: the minimiser, if the Hessian is symmetric and positive definite."""
        return jnp.linalg.solve(self.hessian, -self.gradient_at_0)

    @property
    @float64
    def client_minimizers(self) -> Float[Array, "n d"]:
        """Where each client's message vanishes."""
        return jnp.linalg.solve(self.client_hessians, -self.client_gradients_at_0[..., None])[..., 0]

    @property
    @float64
    def condition_number(self) -> Float[Array, ""]:
        """The ratio of the extreme singular values; of eigenvalues, where there is a convex loss."""
        return jnp.linalg.cond(self.hessian)

    @property
    @float64
    def asymmetry(self) -> Float[Array, ""]:
        """||J - J^T||, the spectral norm: 0 iff a surrogate loss exists."""
        return jnp.linalg.norm(self.hessian - self.hessian.T, 2)

    @property
    def has_loss(self) -> bool:
        """Whether the mean message is the gradient of some loss, up to rounding."""
        return bool(float(self.asymmetry) <= TOLERANCE * np.linalg.norm(np.asarray(self.hessian), 2))

    @property
    def verdict(self) -> str:
        """In one sentence: is there a surrogate loss, and does the mean message lead anywhere?"""
        spectrum = np.linalg.eigvals(np.asarray(self.hessian))
        least = float(spectrum.real.min())
        if self.has_loss:
            if least > 0:
                return "the gradient of a strictly convex surrogate loss"
            return (
                f"the gradient of a surrogate loss without a strict minimum: the Hessian has the eigenvalue {least:.4g}"
            )
        end = "small server steps still converge" if least > 0 else "small server steps diverge"
        return f"not the gradient of any loss: ||J - J^T|| = {float(self.asymmetry):.4g}; {end}"

    def __str__(self) -> str:
        at = np.array2string(np.asarray(self.minimizer), precision=6)
        return f"{self.verdict}; vanishes at {at}, condition number {float(self.condition_number):.6g}"


@float64
def surrogate_of(
    client_fn: ClientFn,
    problem: Problem | StochasticProblem,
    *,
    steps: int | None = None,
    B: int = 1,
    drawing: Drawing = "iid",
    own: PyTree = None,
) -> Surrogate:
    """The surrogate of a client algorithm on a quadratic problem, in expectation over its mini-batches.

    Args:
      client_fn: ``client_fn(batches, x) -> message`` in jax, or ``client_fn(batches, x, own_i)`` with `own`.
      problem: a `Problem`, whose clients see (A_i, c_i) at every step (gradient descent), or a `StochasticProblem`,
        of whose examples every possible sequence of mini-batches is run.
      steps: how many mini-batches a client is handed; by default 1 if iid, else one epoch.
      B: examples per mini-batch.
      drawing: 'iid' with replacement, 'reshuffled' at each epoch, or 'ordered': always in the same order.
      own: pytree with a leading axis of clients: what a client has of its own, such as a number of steps.
    """
    if isinstance(problem, Problem):
        problem = StochasticProblem(problem.A[:, None], problem.c[:, None], None, problem.p)  # pyright: ignore
    n, _, d = problem.c_z.shape
    draws, probability = sequences(problem, steps, B, drawing)

    def of_client(A_z, c_z, p, *own):
        def of_draw(draw):
            return affine(lambda x: client_fn((A_z[draw], c_z[draw]), x, *own), d)

        found = jax.lax.map(of_draw, draws, batch_size=4096) if len(draws) > 1 else _one(of_draw, draws)
        return jnp.einsum("s,sij->ij", p, found.matrix), p @ found.offset

    arguments = (problem.A_z, problem.c_z, probability) + (() if own is None else (own,))
    matrices, offsets = jax.jit(jax.vmap(of_client))(*arguments)
    if matrices.shape != (n, d, d):
        raise ValueError(f"client_fn must send a message of shape {(d,)}, got {offsets.shape[1:]}")
    if not np.isfinite(np.asarray(offsets)).all():
        raise ValueError("client_fn must be affine in x on quadratics (or it has no surrogate), got one that is not")
    hessian = jnp.einsum("n,nij->ij", problem.p, matrices)
    return Surrogate(hessian, problem.p @ offsets, matrices, offsets)


def _one(function: Callable, draws: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[None], function(draws[0]))


def sequences(
    problem: StochasticProblem, steps: int | None, B: int, drawing: Drawing
) -> tuple[Int[Array, "s K B"], Float[Array, "n s"]]:
    """Every sequence of mini-batches (positions among a client's examples), and its probability for each client."""
    n, m, _ = problem.c_z.shape
    if drawing not in ("iid", "reshuffled", "ordered"):
        raise ValueError(f"drawing must be 'iid', 'reshuffled' or 'ordered', got {drawing!r}")
    if B < 1 or (steps is not None and steps < 1):
        raise ValueError(f"B and steps must be >= 1, got B = {B}, steps = {steps}")
    if drawing == "iid":
        steps = 1 if steps is None else steps
        found = [batch_sequences(p_z, steps, B) for p_z in problem.p_z]
        return found[0][0], jnp.stack([probability for _, probability in found])
    if np.ptp(np.asarray(problem.p_z)) > 1e-12:
        raise ValueError(f"p_z must be uniform for {drawing} mini-batches, which meet every example once an epoch")
    if m % B:
        raise ValueError(f"B must divide the {m} examples of a client for {drawing} mini-batches, got {B}")
    steps = m // B if steps is None else steps
    epochs = math.ceil(steps * B / m)
    if drawing == "ordered":
        orders = np.tile(np.arange(m), epochs)[None]
    else:
        if math.factorial(m) ** epochs > 100_000:
            raise ValueError(f"(m!)^epochs = ({m}!)^{epochs} orders are too many to enumerate; at most 100,000")
        one = list(itertools.permutations(range(m)))
        orders = np.array([np.concatenate(order) for order in itertools.product(one, repeat=epochs)])
    draws = orders[:, : steps * B].reshape(len(orders), steps, B)
    return jnp.asarray(draws), jnp.full((n, len(draws)), 1 / len(draws))


class FixedPoint(NamedTuple):
    """Where an affine round ``state -> state`` ends, if it does, and how fast: ||error|| shrinks like radius^t."""

    state: PyTree
    radius: float
    matrix: Float[Array, "s s"]


@float64
def fixed_point_of(round_fn: Callable[[PyTree], PyTree], like: PyTree) -> FixedPoint:
    """The fixed point and the spectral radius of a round of a method with memory (SCAFFOLD, momentum servers).

    `like` is any state. It must be the only fixed point, which an eigenvalue 1 of the round excludes.
    """
    flat, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), like))
    matrix, offset = jax.jit(lambda: affine(lambda s: ravel_pytree(round_fn(unravel(s)))[0], flat.size))()
    if not np.isfinite(np.asarray(offset)).all():
        raise ValueError("round_fn must be affine in the state, got one that is not")
    spectrum = np.linalg.eigvals(np.asarray(matrix))
    if np.abs(spectrum - 1).min() <= TOLERANCE:
        raise ValueError("round_fn must have a single fixed point, got one with the eigenvalue 1")
    state = unravel(jnp.linalg.solve(jnp.eye(flat.size) - matrix, offset))
    return FixedPoint(state, float(np.abs(spectrum).max()), matrix)
