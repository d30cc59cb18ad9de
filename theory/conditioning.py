r"""The condition number of the surrogate loss, from the spectrum of the mean Hessian (Section 5)."""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from theory.precision import float64
from theory.problems import Problem, check_client_rate, constants
from theory.spectrum import phi
from theory.surrogate import Gamma


@float64
def chord_condition_bound(
    problem: Problem, gamma: Gamma, K: int, method: Literal["fedavg", "fomaml"] = "fedavg"
) -> Float[Array, ""]:
    r"""A sharp bound on the condition number of E[Q_i A_i]: :math:`F(b) / \ell(a)` (claim S3, corrected).

    F is a client's eigenvalue, :math:`\phi_{K,\lambda}(\gamma)` for Theta_{1:K} with gamma <= 1/L ("fedavg") and
    :math:`\lambda (1-\gamma\lambda)^{K-1}` for Theta_K with gamma <= 1/(K L) ("fomaml"). It is concave and increases,
    so Jensen's inequality bounds E[F(A_i)] above by F(b) and its chord on [mu, L] below by ell(a), a and b the extreme
    eigenvalues of E[A_i]. Never worse than F(L) / F(mu).
    """
    if method not in ("fedavg", "fomaml"):
        raise ValueError(f"method must be 'fedavg' or 'fomaml', got {method!r}")
    mu, L, *_ = constants(problem)
    check_client_rate(gamma, L, steps=K if method == "fomaml" else 1, closed=True)
    gamma = jnp.asarray(gamma, jnp.float64)

    def F(lam: Array) -> Array:
        return phi(K, lam, gamma) if method == "fedavg" else lam * (1 - gamma * lam) ** (K - 1)

    mean = jnp.linalg.eigvalsh(jnp.einsum("n,nij->ij", problem.p, problem.A))
    width = jnp.where(mu < L, L - mu, 1.0)
    chord = F(mu) + (F(L) - F(mu)) / width * (mean[0] - mu)
    return F(mean[-1]) / chord
