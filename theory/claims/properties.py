"""Section 5: spectral properties of the distortion Q_i and of Q_i A_i."""

from typing import Any

from theory.claims.claim import Claim, Trial
from theory.claims.sgd import unit
from theory.claims.spaces import space
from theory.spectrum import geometric_sum


def spectrum(xp: Any, I: Any) -> tuple[Any, Any]:
    """mu_i and L_i of the first client."""
    eigenvalues = xp.eigvalsh(I.A[0])
    return eigenvalues[0], eigenvalues[-1]


def extremes(xp: Any, matrix: Any) -> Any:
    """The largest and the smallest eigenvalue."""
    eigenvalues = xp.eigvalsh(matrix)
    return xp.stack([eigenvalues[-1], eigenvalues[0]])


def fedavg(I: Any) -> tuple[int, ...]:
    """Theta_{1:K}."""
    return (1,) * I.K


def phi(K: int, lam: Any, gamma: Any) -> Any:
    """phi_{K,lambda}(gamma) as the geometric sum of eq:phi_alt."""
    return lam * geometric_sum(1 - gamma * lam, K)


def hessian(xp: Any, I: Any, theta: Any) -> Any:
    """Q A of the first client."""
    return xp.distortion(I.A[0], I.gamma, theta) @ I.A[0]


def _powers(xp: Any, I: Any, exponent: int) -> Any:
    mu, L = spectrum(xp, I)
    return xp.stack([(1 - I.gamma * mu) ** exponent, (1 - I.gamma * L) ** exponent])


def _is_scaled_identity(gamma: Any) -> Trial:
    return Trial(
        WEIGHTS if gamma == 0 else ONE_STEP,
        left=lambda xp, I: xp.distortion(I.A[0], I.gamma * 0 if gamma == 0 else I.gamma, I.theta),
        right=lambda xp, I: xp.total(I.theta) * xp.eye(I.d),
        relation="==",
    )


SINGLE = tuple({"d": d, "n": 1, "K": K} for d, K in ((1, 1), (1, 2), (2, 3), (3, 8)))
ONE_STEP = space("A gamma theta", ({"d": 2, "n": 1, "K": 1},))
WEIGHTS = space("A gamma theta", SINGLE)
LARGER = space("A gamma theta", SINGLE[2:])
STEPS = space("A gamma", SINGLE)
SHARED = space("A gamma", tuple({"d": d, "n": n, "K": K} for d, n, K in ((1, 2, 2), (2, 2, 5))))


def _bound(which: str) -> Trial:
    """Assumption 1's bounds on every client: lambda_max(Q_i) <= s(mu), s(L) <= lambda_min(Q_i), or of Q_i A_i."""

    def sides(xp: Any, I: Any) -> tuple[Any, Any]:
        eigenvalues = xp.eigvalsh(I.A)
        mu, L = xp.minimum(*eigenvalues[:, 0]), xp.maximum(*eigenvalues[:, -1])
        Q = xp.distortion(I.A, I.gamma, fedavg(I))
        if which == "Q":
            low, high = phi(I.K, L, I.gamma) / L, phi(I.K, mu, I.gamma) / mu
        else:
            low, high, Q = (
                phi(I.K, mu, I.gamma),
                phi(I.K, L, I.gamma),
                xp.stack([q @ a for q, a in zip(Q, I.A, strict=True)]),
            )
        found = [xp.eigvalsh(q) for q in Q]
        return (
            xp.stack([f[-1] for f in found] + [low] * I.n),
            xp.stack([high] * I.n + [f[0] for f in found]),
        )

    return Trial(SHARED, lambda xp, I: sides(xp, I)[0], lambda xp, I: sides(xp, I)[1], "<=")


CLAIMS = (
    Claim(
        id="L3",
        label="lem:Q_special_case",
        line=454,
        statement=r"if $\gamma = 0$ or $K(\Theta) = 1$ then $Q_i = aI$, $a = \sum_k \theta_k$, and "
        r"$\tilde f_i = a f_i$",
        trial=(_is_scaled_identity(0), _is_scaled_identity("any")),
        expected="HOLDS",
    ),
    Claim(
        id="L4",
        label="lem:Q_structure(1)",
        line=460,
        statement=r"for $\gamma < 1/L_i$, $Q_i(\gamma, \Theta)$ is symmetric and positive definite",
        trial=(
            Trial(
                WEIGHTS,
                left=lambda xp, I: xp.distortion(I.A[0], I.gamma, I.theta),
                right=lambda xp, I: xp.distortion(I.A[0], I.gamma, I.theta).T,
                relation="==",
            ),
            Trial(
                LARGER,
                left=lambda xp, I: xp.total(I.theta) - xp.eigvalsh(xp.distortion(I.A[0], I.gamma, I.theta))[0],
                right=lambda xp, I: xp.total(I.theta),
                relation="<=",
            ),
        ),
        expected="HOLDS",
        assumptions=("0 <= gamma < 1/L_i", "Assumption 0"),
        note="In the proof, I - gamma A_i should be positive; a product of two positive definite matrices is so "
        "because these commute.",
    ),
    Claim(
        id="L5",
        label="lem:Q_structure_fomaml",
        line=482,
        statement=r"$\lambda_{\max}(Q_i(\gamma, \Theta_K)) = (1-\gamma\mu_i)^K$, "
        r"$\lambda_{\min}(Q_i(\gamma, \Theta_K)) = (1-\gamma L_i)^K$",
        trial=(
            Trial(
                STEPS,
                left=lambda xp, I: extremes(xp, xp.distortion(I.A[0], I.gamma, unit(I.K))),
                right=lambda xp, I: _powers(xp, I, I.K),
                relation="==",
            ),
        ),
        expected="FALSE",
        corrected=r"the exponents are $K - 1$, in the global bounds too",
        correction=(
            Trial(
                STEPS,
                left=lambda xp, I: extremes(xp, xp.distortion(I.A[0], I.gamma, unit(I.K))),
                right=lambda xp, I: _powers(xp, I, I.K - 1),
                relation="==",
            ),
        ),
    ),
    Claim(
        id="L6",
        label="lem:Q_structure_fedavg",
        line=496,
        statement=r"$\lambda_{\max}(Q_i(\gamma, \Theta_{1:K})) = \frac{1-(1-\gamma\mu_i)^K}{\gamma\mu_i}$, "
        r"$\lambda_{\min}(Q_i(\gamma, \Theta_{1:K})) = \frac{1-(1-\gamma L_i)^K}{\gamma L_i}$, "
        r"and the same with $\mu$, $L$ as bounds",
        trial=(
            Trial(
                STEPS,
                left=lambda xp, I: extremes(xp, xp.distortion(I.A[0], I.gamma, fedavg(I))),
                right=lambda xp, I: xp.stack([phi(I.K, lam, I.gamma) / lam for lam in spectrum(xp, I)]),
                relation="==",
            ),
            _bound("Q"),
        ),
        expected="HOLDS",
        assumptions=("0 < gamma < 1/L_i",),
    ),
    Claim(
        id="L7",
        label="lem:QA_fedavg",
        line=511,
        statement=r"$Q_i(\gamma, \Theta_{1:K}) = (I - (I - \gamma A_i))(\gamma A_i)^{-1}$",
        trial=(
            Trial(
                STEPS,
                left=lambda xp, I: xp.distortion(I.A[0], I.gamma, fedavg(I)),
                right=lambda xp, I: (I.gamma * I.A[0]) @ xp.inverse(I.gamma * I.A[0]),
                relation="==",
            ),
        ),
        expected="FALSE",
        corrected=r"$Q_i(\gamma, \Theta_{1:K}) = (I - (I - \gamma A_i)^K)(\gamma A_i)^{-1}$: the power $K$ is missing",
        correction=(
            Trial(
                STEPS,
                left=lambda xp, I: xp.distortion(I.A[0], I.gamma, fedavg(I)) @ (I.gamma * I.A[0]),
                right=lambda xp, I: xp.eye(I.d) - xp.power(xp.eye(I.d) - I.gamma * I.A[0], I.K),
                relation="==",
            ),
        ),
    ),
    Claim(
        id="L9",
        label="lem:QA_structure_fedavg",
        line=552,
        statement=r"$Q_i(\gamma, \Theta_{1:K})A_i$ has eigenvalues $\phi_{K,\lambda}(\gamma)$, the largest "
        r"$\phi_{K,L_i}$ and the smallest $\phi_{K,\mu_i}$, within $[\phi_{K,\mu}, \phi_{K,L}]$",
        trial=(
            Trial(
                STEPS,
                left=lambda xp, I: xp.eigvalsh(hessian(xp, I, fedavg(I))),
                right=lambda xp, I: xp.stack([phi(I.K, lam, I.gamma) for lam in xp.eigvalsh(I.A[0])]),
                relation="==",
            ),
            _bound("QA"),
        ),
        expected="HOLDS",
        assumptions=("0 <= gamma < 1/L_i",),
        note="Parts (2) and (3) hold for all gamma >= 0 when K is odd.",
    ),
)
