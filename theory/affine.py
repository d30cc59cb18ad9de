r"""The surrogate of any client algorithm, by automatic differentiation.

On quadratics the update of a first-order client is affine in the broadcast model, :math:`q^i(x) = J_i x - b_i`, however
it steps, so its Jacobian and its value at 0 determine it. With :math:`J = E[J_i]` and :math:`b = E[b_i]` the mean
update is the gradient of a loss, with Hessian J, iff J is symmetric; in any case it vanishes at :math:`J^{-1} b`.

Clients have the signature that `lur.from_client` takes, ``client(params, batches, gamma) -> (update, loss_before)``, so
that the same function runs in lur and is analysed here.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, PyTree

from theory.enumeration import batch_sequences
from theory.precision import float64
from theory.problems import Problem, StochasticProblem

ClientFn = Callable[..., Any]
"""A client: ``client(params, batches, gamma) -> (update, loss_before)``, or ``client(batches, x) -> update``.

Batches are (A, c) of shapes (K, B, d, d) and (K, B, d), as lur's clients get them.
"""

Drawing = Literal["iid", "reshuffled", "ordered"]

TOLERANCE = 1e-10
"""Relative to ||J||: asymmetry and departure from an affine map up to this are rounding errors."""


class Affine(NamedTuple):
    """The map x -> matrix x + offset.

    Attributes:
      matrix: its linear part.
      offset: its value at 0.
    """

    matrix: Float[Array, "m d"]
    offset: Float[Array, "m"]


def affine(function: Callable[[Float[Array, "d"]], Float[Array, "m"]], d: int) -> Affine:
    """Returns the matrix and offset of an affine function on R^d; the offset is NaN if the function is not affine."""
    offset, matrix = function(jnp.zeros(d)), jax.jacfwd(function)(jnp.zeros(d))
    elsewhere = jnp.cos(jnp.arange(1.0, d + 1))  # a point that is special for no problem
    gap = jnp.abs(function(elsewhere) - matrix @ elsewhere - offset).max()
    scale = jnp.abs(matrix).max() + jnp.abs(offset).max()
    return Affine(matrix, jnp.where(gap <= TOLERANCE * scale, offset, jnp.nan))


class Surrogate(NamedTuple):
    """What a client algorithm optimises: the mean update is ``hessian @ (x - minimizer)``.

    If `asymmetry` is 0, the mean update is the gradient of the surrogate loss and `hessian` is its Hessian. Otherwise
    it is the gradient of no loss; `hessian` is its Jacobian and `minimizer` the point where it vanishes.

    Attributes:
      hessian: the Jacobian of the mean update.
      gradient_at_0: the mean update at x = 0.
      client_hessians: the Jacobian of each client's update.
      client_gradients_at_0: each client's update at x = 0.
    """

    hessian: Float[Array, "d d"]
    gradient_at_0: Float[Array, "d"]
    client_hessians: Float[Array, "n d d"]
    client_gradients_at_0: Float[Array, "n d"]

    @property
    @float64
    def minimizer(self) -> Float[Array, "d"]:
        """Where the mean update vanishes: the minimiser, if the Hessian is symmetric and positive definite."""
        return jnp.linalg.solve(self.hessian, -self.gradient_at_0)

    @property
    @float64
    def client_minimizers(self) -> Float[Array, "n d"]:
        """Where each client's update vanishes."""
        return jnp.linalg.solve(self.client_hessians, -self.client_gradients_at_0[..., None])[..., 0]

    @property
    @float64
    def condition_number(self) -> Float[Array, ""]:
        """The ratio of the extreme singular values; these are eigenvalues if there is a convex loss."""
        return jnp.linalg.cond(self.hessian)

    @property
    @float64
    def asymmetry(self) -> Float[Array, ""]:
        """||J - J^T|| in the spectral norm: 0 iff a surrogate loss exists."""
        return jnp.linalg.norm(self.hessian - self.hessian.T, 2)

    @property
    def has_loss(self) -> bool:
        """Whether the mean update is the gradient of some loss, up to rounding."""
        return bool(float(self.asymmetry) <= TOLERANCE * np.linalg.norm(np.asarray(self.hessian), 2))

    @property
    def verdict(self) -> str:
        """Whether there is a surrogate loss and whether small server steps converge, in one sentence."""
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
        zero = np.array2string(np.asarray(self.minimizer), precision=6)
        return f"{self.verdict}; vanishes at {zero}, condition number {float(self.condition_number):.6g}"


@float64
def surrogate_of(
    client_fn: ClientFn,
    problem: Problem | StochasticProblem,
    *,
    gamma: Float[ArrayLike, "*K"] | None = None,
    steps: int | None = None,
    B: int = 1,
    drawing: Drawing = "iid",
    own: PyTree = None,
) -> Surrogate:
    """Returns the surrogate of a client algorithm on a quadratic problem, in expectation over its mini-batches.

    Args:
      client_fn: with `gamma`, a client as `lur.from_client` takes it, ``client(params, batches, gamma) -> (update,
        loss_before)``, of which only the update is used. Without `gamma`, a function ``(batches, x) -> update`` that
        has its rate inside. Either takes ``own_i`` as a last argument if `own` is given.
      problem: a `Problem`, whose clients see (A_i, c_i) at every step (gradient descent), or a `StochasticProblem`,
        for which every possible sequence of mini-batches is enumerated.
      gamma: the client learning rate, one number or one per step.
      steps: the number of mini-batches a client gets; by default 1 if iid, otherwise one epoch.
      B: examples per mini-batch.
      drawing: 'iid' with replacement, 'reshuffled' at each epoch, or 'ordered': always in the same order.
      own: pytree with a leading axis of clients: what differs between clients, such as a number of steps.

    Raises:
      ValueError: if the update is not affine in the model, or does not have its shape.
    """
    if isinstance(problem, Problem):
        problem = StochasticProblem(problem.A[:, None], problem.c[:, None], None, problem.p)  # pyright: ignore
    n, _, d = problem.c_z.shape
    draws, probability = _mini_batch_sequences(problem, steps, B, drawing)
    update = client_fn if gamma is None else _update_at_rate(client_fn, jnp.asarray(gamma, jnp.float64))

    def mean_over_draws(A_z, c_z, p, *own):
        def affine_update(draw):
            return affine(lambda x: update((A_z[draw], c_z[draw]), x, *own), d)

        if len(draws) > 1:
            maps = jax.lax.map(affine_update, draws, batch_size=4096)
        else:
            maps = jax.tree.map(lambda leaf: leaf[None], affine_update(draws[0]))
        return jnp.einsum("s,sij->ij", p, maps.matrix), p @ maps.offset

    arguments = (problem.A_z, problem.c_z, probability) + (() if own is None else (own,))
    matrices, offsets = jax.jit(jax.vmap(mean_over_draws))(*arguments)
    if matrices.shape != (n, d, d):
        raise ValueError(f"client_fn must return an update of shape {(d,)}, got {offsets.shape[1:]}")
    if not np.isfinite(np.asarray(offsets)).all():
        raise ValueError("client_fn must be affine in x on quadratics (or it has no surrogate), got one that is not")
    hessian = jnp.einsum("n,nij->ij", problem.p, matrices)
    return Surrogate(hessian, problem.p @ offsets, matrices, offsets)


def _update_at_rate(client: ClientFn, gamma: Float[Array, "*K"]) -> ClientFn:
    """The client as a function ``(batches, x, *own) -> update``."""

    def update(batches, x, *own):
        output = client(x, batches, gamma, *own)
        if not isinstance(output, tuple) or len(output) != 2:
            raise ValueError(
                f"client_fn must return (update, loss_before) if gamma is given, got {type(output).__name__}"
            )
        return output[0]

    return update


def _mini_batch_sequences(
    problem: StochasticProblem, steps: int | None, B: int, drawing: Drawing
) -> tuple[Int[Array, "s K B"], Float[Array, "n s"]]:
    """Every sequence of mini-batches, as indices of a client's examples, and its probability for each client."""
    n, m, _ = problem.c_z.shape
    if drawing not in ("iid", "reshuffled", "ordered"):
        raise ValueError(f"drawing must be 'iid', 'reshuffled' or 'ordered', got {drawing!r}")
    if B < 1 or (steps is not None and steps < 1):
        raise ValueError(f"B and steps must be >= 1, got B = {B}, steps = {steps}")
    if drawing == "iid":
        steps = 1 if steps is None else steps
        draws, probabilities = zip(*(batch_sequences(p_z, steps, B) for p_z in problem.p_z), strict=True)
        return draws[0], jnp.stack(probabilities)
    if np.ptp(np.asarray(problem.p_z)) > 1e-12:
        raise ValueError(f"p_z must be uniform for {drawing} mini-batches, which use every example once per epoch")
    if m % B:
        raise ValueError(f"B must divide the {m} examples of a client for {drawing} mini-batches, got {B}")
    steps = m // B if steps is None else steps
    epochs = math.ceil(steps * B / m)
    if drawing == "ordered":
        orders = np.tile(np.arange(m), epochs)[None]
    else:
        if math.factorial(m) ** epochs > 100_000:
            raise ValueError(f"(m!)^epochs = ({m}!)^{epochs} orders are too many to enumerate; at most 100,000")
        epoch_orders = list(itertools.permutations(range(m)))
        orders = np.array([np.concatenate(order) for order in itertools.product(epoch_orders, repeat=epochs)])
    draws = orders[:, : steps * B].reshape(len(orders), steps, B)
    return jnp.asarray(draws), jnp.full((n, len(draws)), 1 / len(draws))


class FixedPoint(NamedTuple):
    """The fixed point of an affine round ``state -> state``, and how fast iterating the round converges to it.

    Attributes:
      state: the fixed point; integer leaves are those that were given.
      radius: the spectral radius: the error shrinks like radius^t, and grows if it is above 1.
      matrix: the Jacobian of the round in the flattened floating-point leaves.
    """

    state: PyTree
    radius: float
    matrix: Float[Array, "s s"]


@float64
def fixed_point_of(round_fn: Callable[[PyTree], PyTree], like: PyTree) -> FixedPoint:
    """Returns the fixed point and the spectral radius of a round of a method with memory (SCAFFOLD, momentum servers).

    Args:
      round_fn: one round, ``state -> state``, affine in the state's floating-point leaves. A lur method gives one by
        ``lambda x: method.round(state._replace(params=x), batches)[0].params``.
      like: any state. Its integer leaves, such as round counters, are held fixed.

    Raises:
      ValueError: if the round is not affine, or has no single fixed point because 1 is an eigenvalue of it, as it is if
        the state contains anything that a round leaves unchanged, such as learning rates.
    """
    leaves, treedef = jax.tree.flatten(like)
    is_float = [jnp.issubdtype(jnp.result_type(leaf), jnp.floating) for leaf in leaves]
    if not any(is_float):
        raise ValueError("like must have floating-point leaves, got a state without any")
    floats = [jnp.asarray(leaf, jnp.float64) for leaf, floating in zip(leaves, is_float, strict=True) if floating]
    flat, unravel = ravel_pytree(floats)

    def state_of(vector: Float[Array, "s"]) -> PyTree:
        values = iter(unravel(vector))
        return treedef.unflatten(
            [next(values) if floating else leaf for leaf, floating in zip(leaves, is_float, strict=True)]
        )

    def flat_round(vector: Float[Array, "s"]) -> Float[Array, "s"]:
        after, after_treedef = jax.tree.flatten(round_fn(state_of(vector)))
        if after_treedef != treedef:
            raise ValueError(f"round_fn must return a state like {treedef}, got {after_treedef}")
        return ravel_pytree([leaf for leaf, floating in zip(after, is_float, strict=True) if floating])[0]

    matrix, offset = jax.jit(lambda: affine(flat_round, flat.size))()
    if not np.isfinite(np.asarray(offset)).all():
        raise ValueError("round_fn must be affine in the state, got one that is not")
    spectrum = np.linalg.eigvals(np.asarray(matrix))
    if np.abs(spectrum - 1).min() <= TOLERANCE:
        raise ValueError("round_fn must have a single fixed point, got one with the eigenvalue 1")
    state = state_of(jnp.linalg.solve(jnp.eye(flat.size) - matrix, offset))
    return FixedPoint(state, float(np.abs(spectrum).max()), matrix)
