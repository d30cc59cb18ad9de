r"""Quadratic problems: clients :math:`f_i(x) = \tfrac12 (x-c_i)^\top A_i (x-c_i)` with weights p (Section 3).

`Problem` holds the clients. `StochasticProblem` holds the examples they are made of:
client i draws z with probability p_z, and (Lemma 1)

.. math:: A_i = \mathbb{E}_z[A_z], \qquad c_i = A_i^{-1}\,\mathbb{E}_z[A_z c_z], \qquad
          f_i(x) = \tfrac12 (x-c_i)^\top A_i (x-c_i) + \tau_i.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from theory.precision import float64


def is_concrete(*values: Any) -> bool:
    """Whether no value is being traced, so that all of them can be inspected."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def check_symmetric(name: str, A: Any) -> None:
    """Refuses anything but a symmetric matrix or a stack of them."""
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ValueError(f"{name} must be square matrices (..., d, d), got shape {A.shape}")
    if is_concrete(A):
        A = np.asarray(A)
        if not np.isfinite(A).all():
            raise ValueError(f"{name} must be finite, got a NaN or an infinity")
        gap = np.abs(A - np.swapaxes(A, -1, -2)).max(initial=0.0)
        if gap > 1e-12 * max(np.abs(A).max(initial=0.0), np.finfo(float).tiny):
            raise ValueError(f"{name} must be symmetric, got ||A - A^T||_max = {gap:.3g}")


def check_positive_definite(name: str, A: Any) -> None:
    """Refuses matrices that are not positive definite, unless they are being traced."""
    if is_concrete(A):
        least = np.linalg.eigvalsh(np.asarray(A)).min()
        if not least > 0:
            raise ValueError(f"{name} must be positive definite, got the eigenvalue {least:.6g}")


def check_weights(name: str, p: Any) -> None:
    """Refuses anything but probabilities along the last axis."""
    if is_concrete(p):
        p = np.asarray(p)
        if not (np.isfinite(p).all() and (p >= 0).all()):
            raise ValueError(f"{name} must be nonnegative probabilities, got {p}")
        if np.abs(p.sum(-1) - 1).max() > 1e-9:
            raise ValueError(f"{name} must sum to 1, got {p.sum(-1)}")


def check_client_rate(gamma: Any, L: Any, steps: int = 1, closed: bool = False) -> None:
    """Refuses gamma outside [0, 1/(steps L)), where the paper's bounds hold; `closed` allows gamma = 1/(steps L)."""
    if is_concrete(gamma, L):
        product = np.asarray(gamma) * np.asarray(L) * steps
        below = product <= 1 + 1e-12 if closed else product < 1
        if not ((np.asarray(gamma) >= 0) & below).all():
            limit = f"1/({steps} L)" if steps != 1 else "1/L"
            raise ValueError(f"gamma must be >= 0 and {'<=' if closed else '<'} {limit}, got gamma = {gamma}, L = {L}")


def check_curvatures(mu: Any, L: Any) -> None:
    """Refuses mu and L that violate 0 < mu <= L (Assumption 1)."""
    if is_concrete(mu, L) and not ((np.asarray(mu) > 0) & (np.asarray(mu) <= np.asarray(L))).all():
        raise ValueError(f"mu and L must satisfy 0 < mu <= L (Assumption 1), got mu = {mu}, L = {L}")


class _Pytree:
    """A frozen dataclass as a pytree; rebuilding it from its leaves skips the checks."""

    def tree_flatten(self):
        return tuple(vars(self).values()), tuple(vars(self))

    @classmethod
    def tree_unflatten(cls, names, leaves):
        self = object.__new__(cls)
        for name, leaf in zip(names, leaves, strict=True):
            object.__setattr__(self, name, leaf)
        return self


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class Problem(_Pytree):
    """Clients with quadratic losses f_i.

    Attributes:
      A: symmetric matrices A_i.
      c: minimisers c_i.
      p: client probabilities; uniform by default.
    """

    A: Float[Array, "n d d"]
    c: Float[Array, "n d"]
    p: Float[Array, "n"] = None  # pyright: ignore[reportAssignmentType]

    def __post_init__(self):
        with jax.enable_x64(True):
            A, c = jnp.asarray(self.A, jnp.float64), jnp.asarray(self.c, jnp.float64)
            if A.ndim != 3 or A.shape[0] == 0:
                raise ValueError(f"A must have shape (n, d, d) with n >= 1, got {A.shape}")
            check_symmetric("A", A)
            n, d, _ = A.shape
            if c.shape != (n, d):
                raise ValueError(f"c must have shape {(n, d)} to go with A, got {c.shape}")
            p = jnp.full((n,), 1 / n) if self.p is None else jnp.asarray(self.p, jnp.float64)
            if p.shape != (n,):
                raise ValueError(f"p must have shape {(n,)} to go with A, got {p.shape}")
            if is_concrete(c) and not np.isfinite(np.asarray(c)).all():
                raise ValueError("c must be finite, got a NaN or an infinity")
            check_weights("p", p)
            for name, value in (("A", A), ("c", c), ("p", p)):
                object.__setattr__(self, name, value)


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class StochasticProblem(_Pytree):
    """Clients with finitely many examples each.

    Attributes:
      A_z: symmetric matrices of the examples.
      c_z: minimisers of the examples.
      p_z: probabilities of a client's examples; uniform by default.
      p: client probabilities; uniform by default.
    """

    A_z: Float[Array, "n m d d"]
    c_z: Float[Array, "n m d"]
    p_z: Float[Array, "n m"] = None  # pyright: ignore[reportAssignmentType]
    p: Float[Array, "n"] = None  # pyright: ignore[reportAssignmentType]

    def __post_init__(self):
        with jax.enable_x64(True):
            A, c = jnp.asarray(self.A_z, jnp.float64), jnp.asarray(self.c_z, jnp.float64)
            if A.ndim != 4 or 0 in A.shape[:2]:
                raise ValueError(f"A_z must have shape (n, m, d, d) with n, m >= 1, got {A.shape}")
            check_symmetric("A_z", A)
            n, m, d, _ = A.shape
            if c.shape != (n, m, d):
                raise ValueError(f"c_z must have shape {(n, m, d)} to go with A_z, got {c.shape}")
            p_z = jnp.full((n, m), 1 / m) if self.p_z is None else jnp.asarray(self.p_z, jnp.float64)
            p = jnp.full((n,), 1 / n) if self.p is None else jnp.asarray(self.p, jnp.float64)
            if p_z.shape != (n, m) or p.shape != (n,):
                raise ValueError(f"p_z and p must have shapes {(n, m)} and {(n,)}, got {p_z.shape} and {p.shape}")
            check_weights("p_z", p_z)
            check_weights("p", p)
            for name, value in (("A_z", A), ("c_z", c), ("p_z", p_z), ("p", p)):
                object.__setattr__(self, name, value)

    @property
    def problem(self) -> Problem:
        """The clients' A_i and c_i (Lemma 1). Every A_i must be invertible."""
        return mean_problem(self)


@float64
def mean_problem(stochastic: StochasticProblem) -> Problem:
    """A_i = E[A_z] and c_i = A_i^{-1} E[A_z c_z]."""
    A = jnp.einsum("nm,nmij->nij", stochastic.p_z, stochastic.A_z)
    if is_concrete(A) and not (np.abs(np.linalg.eigvalsh(np.asarray(A))).min() > 0):
        raise ValueError("every A_i = E[A_z] must be invertible for c_i to exist, got a singular one")
    b = jnp.einsum("nm,nmij,nmj->ni", stochastic.p_z, stochastic.A_z, stochastic.c_z)
    return Problem(A, jnp.linalg.solve(A, b[..., None])[..., 0], stochastic.p)


@float64
def loss_offset(stochastic: StochasticProblem) -> Float[Array, "n"]:
    r""":math:`\tau_i = \tfrac12 E[c_z^\top A_z c_z] - \tfrac12 c_i^\top A_i c_i` (the printed proof lacks a half)."""
    problem = mean_problem(stochastic)
    second = jnp.einsum("nm,nmi,nmij,nmj->n", stochastic.p_z, stochastic.c_z, stochastic.A_z, stochastic.c_z)
    return 0.5 * second - 0.5 * jnp.einsum("ni,nij,nj->n", problem.c, problem.A, problem.c)


@float64
def client_losses(problem: Problem, x: Float[ArrayLike, "d"]) -> Float[Array, "n"]:
    """Returns f_i(x) for every client, without the offsets tau_i."""
    gap = jnp.asarray(x, jnp.float64) - problem.c
    return 0.5 * jnp.einsum("ni,nij,nj->n", gap, problem.A, gap)


@float64
def loss(problem: Problem, x: Float[ArrayLike, "d"]) -> Float[Array, ""]:
    """f(x) = E_i[f_i(x)]."""
    return problem.p @ client_losses(problem, x)


class Constants(NamedTuple):
    """The tightest constants of Assumptions 1 and 2.

    Attributes:
      mu: the smallest eigenvalue of all A_i.
      L: the largest eigenvalue of all A_i.
      sigma_A: root mean square of ||A_i - E[A_i]||.
      sigma_c: root mean square of ||c_i - E[c_i]||.
    """

    mu: Float[Array, ""]
    L: Float[Array, ""]
    sigma_A: Float[Array, ""]
    sigma_c: Float[Array, ""]


@float64
def constants(problem: Problem) -> Constants:
    """mu, L, sigma_A, sigma_c. Needs every A_i positive definite (Assumption 1)."""
    check_positive_definite("A", problem.A)
    spectrum = jnp.linalg.eigvalsh(problem.A)
    A, c = jnp.einsum("n,nij->ij", problem.p, problem.A), problem.p @ problem.c
    spread_A = jnp.abs(jnp.linalg.eigvalsh(problem.A - A)).max(-1)
    return Constants(
        mu=spectrum.min(),
        L=spectrum.max(),
        sigma_A=jnp.sqrt(problem.p @ spread_A**2),
        sigma_c=jnp.sqrt(problem.p @ jnp.sum((problem.c - c) ** 2, -1)),
    )
