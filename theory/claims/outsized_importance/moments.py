"""The first two moments of LocalUpdate's iterates, in any arithmetic, for the claims of Section 7.

Gradient noise is additive with covariance G^2 e_1 e_1^T / B, the kind that Assumption 3 allows (A3a); `noise` is G^2.
`x` is the start relative to the surrogate minimiser, x_1 - x_gamma^*. `theory.moments` has the same recursion in jax;
this one also runs on fractions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from theory.claims.outsized_importance.properties import phi


def extent(xp: Any, A: Any) -> tuple[Any, Any]:
    """mu and L of all clients; closed forms for d <= 2, which compile faster than a general eigenvalue routine."""
    if A.shape[-1] == 1:
        low = high = A[:, 0, 0]
    elif A.shape[-1] == 2:
        middle = [(a[0, 0] + a[1, 1]) / 2 for a in A]
        radius = [xp.sqrt(((a[0, 0] - a[1, 1]) / 2) ** 2 + a[0, 1] ** 2) for a in A]
        low, high = ([m + sign * r for m, r in zip(middle, radius, strict=True)] for sign in (-1, 1))
    else:
        eigenvalues = xp.eigvalsh(A)
        low, high = eigenvalues[:, 0], eigenvalues[:, -1]
    return xp.minimum(*low), xp.maximum(*high)


def trace(S: Any) -> Any:
    """tr S."""
    return sum(S[i, i] for i in range(len(S)))


def outer(a: Any, b: Any) -> Any:
    """a b^T."""
    return a[:, None] * b[None, :]


def squared(v: Any) -> Any:
    """||v||^2."""
    return v @ v


def center_spread(xp: Any, I: Any) -> Any:
    """sigma_c^2."""
    return xp.mean(I.p, xp.stack([squared(c - xp.mean(I.p, I.c)) for c in I.c]))


def apply_each(matrices: Any, vectors: Any) -> Any:
    """M_i v_i for every i."""
    return (matrices @ vectors[..., None])[..., 0]


def solve_small(xp: Any, A: Any, b: Any) -> Any:
    """A^{-1} b, by Cramer's rule for d <= 2."""
    if len(b) == 1:
        return b / A[0]
    if len(b) == 2:
        adjugate = xp.stack([A[1, 1] * b[0] - A[0, 1] * b[1], A[0, 0] * b[1] - A[1, 0] * b[0]])
        return adjugate / (A[0, 0] * A[1, 1] - A[0, 1] * A[1, 0])
    return xp.solve(A, b)


def outers(vectors: Any) -> Any:
    """v_i v_i^T for every i."""
    return vectors[:, :, None] * vectors[:, None, :]


class Surrogate(NamedTuple):
    """What a round does to x - x_gamma^*.

    Attributes:
      mu: mu_gamma.
      L: L_gamma.
      H_i: client Hessians Q_i A_i.
      H: their mean E[H_i].
      h_i: H_i (x_gamma^* - c_i).
      x: x_gamma^*.
      C_i: the covariance that gradient noise gives the update of client i.
    """

    mu: Any
    L: Any
    H_i: Any
    H: Any
    h_i: Any
    x: Any
    C_i: Any


def surrogate(xp: Any, I: Any) -> Surrogate:
    """The surrogate of Theta_{1:K} at an instance, computed once for both sides of a claim."""
    if not hasattr(I, "surrogate"):
        I.surrogate = _surrogate(xp, I)
    return I.surrogate


def _surrogate(xp: Any, I: Any) -> Surrogate:
    mu, L = extent(xp, I.A)
    step = xp.eye(I.d) - I.gamma * I.A
    H_i, term = I.A, I.A
    v = xp.stack([xp.eye(I.d)[0]] * I.n)
    C_i = outers(v)
    for _ in range(I.K - 1):
        term, v = term @ step, apply_each(step, v)
        H_i, C_i = H_i + term, C_i + outers(v)
    H = xp.mean(I.p, H_i)
    x = solve_small(xp, H, xp.mean(I.p, apply_each(H_i, I.c)))
    h_i = apply_each(H_i, x - I.c)
    return Surrogate(phi(I.K, mu, I.gamma), phi(I.K, L, I.gamma), H_i, H, h_i, x, I.noise * C_i / I.B)


def second_moments(xp: Any, I: Any, s: Surrogate, etas: Any, full: bool = False, about: Any = None) -> Any:
    """E||x_t - x_gamma^*||^2 for t = 2, 3, ..., one for each of the array etas: M clients drawn iid, or all of them.

    `about`: x_gamma^* - x* for E||x_t - x*||^2 instead.
    """
    constant = xp.mean(I.p * I.p, s.C_i) if full else xp.mean(I.p, s.C_i + outers(s.h_i)) / I.M

    def one_round(state: Any, rate: Any) -> Any:
        (m, S), (eta,) = state, rate
        HS = s.H @ S
        HSH = HS @ s.H
        square = HSH + constant
        if not full:
            crossed = (s.H_i @ m)[:, :, None] * s.h_i[:, None, :]
            each = xp.mean(I.p, s.H_i @ S @ s.H_i + crossed + crossed.swapaxes(1, 2))
            square = square + (each - HSH) / I.M
        S = S - eta * (HS + S @ s.H) + eta**2 * square
        m = m - eta * (s.H @ m)
        return (m, S), trace(S) if about is None else trace(S) + 2 * (m @ about) + squared(about)

    return xp.scan(one_round, (I.x, outer(I.x, I.x)), (etas,))


def sigma_star(xp: Any, I: Any, s: Surrogate) -> Any:
    """sigma_*^2 = (1/M)(E_i||Q_i A_i (x_gamma^* - c_i)||^2 + E_i V_i), E||q||^2 at x_gamma^*."""
    return trace(xp.mean(I.p, outers(s.h_i) + s.C_i)) / I.M


def averaging_factor(xp: Any, I: Any, full: bool) -> Any:
    """1/M, or sum_i p_i^2 with full participation: the factor by which averaging reduces the clients' noise."""
    return xp.total(I.p * I.p) if full else xp.array("1")[()] / I.M


def integers(xp: Any, first: int, last: int) -> Any:
    """first, ..., last as numbers."""
    return xp.array(list(range(first, last + 1)))


def positive(raw: Any, built: Any, dims: Any) -> Any:
    """A positive number."""
    return jnp.exp(raw)


def share(raw: Any, built: Any, dims: Any) -> Any:
    """A number in (0, 1)."""
    return jax.nn.sigmoid(raw)


def in_unit(xp: Any, I: Any) -> bool:
    """0 < step <= 1: eta within its range; noise >= 0."""
    return bool(I.step > 0) and bool(I.step <= 1) and bool(I.noise >= 0)
