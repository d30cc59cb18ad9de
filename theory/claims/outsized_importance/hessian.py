"""Section 5: the spectrum of the surrogate Hessians Q_i A_i."""

from theory.claims.claim import Claim, Trial
from theory.claims.outsized_importance.properties import (
    ANY_RATE,
    LARGER,
    SCALARS,
    STEPS,
    TWO_SCALARS,
    TWO_SLOW,
    TWO_SLOW_SCALARS,
    bound,
    eigenvalue,
    extremes,
    fedavg,
    hessian,
    peak,
    phi,
    power_sums,
    shared_spectrum,
    spectrum,
    traces,
)
from theory.claims.outsized_importance.sgd import unit

CLAIMS = (
    Claim(
        id="L8a",
        label="lem:QA_structure(1)",
        line=519,
        statement=r"an eigenvector of $A_i$ with eigenvalue $\lambda$ is one of $Q_i A_i$ with eigenvalue $s(\lambda)\lambda$",
        trial=(
            Trial(
                ANY_RATE,
                left=lambda xp, I: traces(xp, hessian(xp, I, I.theta)),
                right=lambda xp, I: power_sums(xp, [eigenvalue(I, lam) * lam for lam in xp.eigvalsh(I.A[0])]),
                relation="==",
            ),
        ),
        expected="HOLDS",
        note="For every gamma; tried through the traces of the first two powers.",
    ),
    Claim(
        id="L8b",
        label="lem:QA_structure(2)",
        line=526,
        statement=r"for $\gamma < 1/L_i$: $\lambda_{\max}(Q_i A_i) \leq s(\mu_i) L_i$ and $\lambda_{\min}(Q_i A_i) \geq s(L_i) \mu_i$",
        trial=(
            Trial(
                LARGER,
                left=lambda xp, I: xp.stack(
                    [xp.eigvalsh(hessian(xp, I, I.theta))[-1], eigenvalue(I, spectrum(xp, I)[1]) * spectrum(xp, I)[0]]
                ),
                right=lambda xp, I: xp.stack(
                    [eigenvalue(I, spectrum(xp, I)[0]) * spectrum(xp, I)[1], xp.eigvalsh(hessian(xp, I, I.theta))[0]]
                ),
                relation="<=",
            ),
        ),
        expected="HOLDS",
        assumptions=("0 <= gamma < 1/L_i", "mu_i > 0", "Assumption 0"),
    ),
    Claim(
        id="D5",
        label="eq:phi_alt",
        line=546,
        statement=r"$\phi_{K,\lambda}(\gamma) = \gamma^{-1}(1 - (1-\gamma\lambda)^K) = \sum_{k=1}^K (1-\gamma\lambda)^{k-1}\lambda$",
        trial=(
            Trial(
                SCALARS,
                left=lambda xp, I: 1 - (1 - I.gamma * I.A[0][0, 0]) ** I.K,
                right=lambda xp, I: I.gamma * sum((1 - I.gamma * I.A[0][0, 0]) ** k * I.A[0][0, 0] for k in range(I.K)),
                relation="==",
            ),
        ),
        expected="HOLDS",
        note=r"A polynomial identity, so for every $\gamma$; $\phi_{K,\lambda}(0) = K\lambda$.",
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
            bound("QA"),
        ),
        expected="HOLDS",
        assumptions=("0 <= gamma < 1/L_i",),
        note="Parts (2) and (3) hold for all gamma >= 0 when K is odd.",
    ),
    Claim(
        id="L10",
        label="lem:QA_structure_maml",
        line=575,
        statement=r"for $\gamma < 1/(K L_i)$: $\lambda_{\max}(Q_i(\gamma, \Theta_K)A_i) = (1-\gamma L)^{K-1}L$ and "
        r"$\lambda_{\min} = (1-\gamma\mu)^{K-1}\mu$",
        trial=(
            Trial(
                TWO_SLOW,
                left=lambda xp, I: extremes(xp, hessian(xp, I, unit(I.K))),
                right=lambda xp, I: xp.stack([peak(I, lam) for lam in shared_spectrum(xp, I)[::-1]]),
                relation="==",
            ),
        ),
        expected="TYPO",
        repair="typo",
        corrected=r"$(1-\gamma L_i)^{K-1}L_i$ and $(1-\gamma\mu_i)^{K-1}\mu_i$; with $L$ and $\mu$ they are the bounds of part (3)",
        correction=(
            Trial(
                TWO_SLOW,
                left=lambda xp, I: extremes(xp, hessian(xp, I, unit(I.K))),
                right=lambda xp, I: xp.stack([peak(I, lam) for lam in spectrum(xp, I)[::-1]]),
                relation="==",
            ),
            Trial(
                TWO_SLOW,
                left=lambda xp, I: xp.stack(
                    [extremes(xp, hessian(xp, I, unit(I.K)))[0], peak(I, shared_spectrum(xp, I)[0])]
                ),
                right=lambda xp, I: xp.stack(
                    [peak(I, shared_spectrum(xp, I)[1]), extremes(xp, hessian(xp, I, unit(I.K)))[1]]
                ),
                relation="<=",
            ),
        ),
    ),
    Claim(
        id="L10p",
        label="lem:QA_structure_maml (proof)",
        line=1509,
        statement=r"for a fixed $\gamma < 1/L$, $\lambda \mapsto (1-\gamma\lambda)^{K-1}\lambda$ is increasing on $[\mu, L]$",
        trial=(
            Trial(
                TWO_SCALARS,
                left=lambda xp, I: peak(I, shared_spectrum(xp, I)[0]),
                right=lambda xp, I: peak(I, shared_spectrum(xp, I)[1]),
                relation="<=",
            ),
        ),
        expected="FALSE",
        corrected=r"for $\gamma < 1/(KL)$, as the lemma itself says",
        correction=(
            Trial(
                TWO_SLOW_SCALARS,
                left=lambda xp, I: peak(I, shared_spectrum(xp, I)[0]),
                right=lambda xp, I: peak(I, shared_spectrum(xp, I)[1]),
                relation="<=",
            ),
        ),
    ),
)
