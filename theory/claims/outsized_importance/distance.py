"""Section 6, first half: how far the surrogate's minimiser x*(gamma, Theta) is from x*.

Distances and bounds are those of `theory.claims.outsized_importance.distance_bounds`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from theory.claims.claim import Claim, Side, Trial
from theory.claims.fields import function, made_by, rate
from theory.claims.outsized_importance.distance_bounds import (
    centred,
    chi,
    condition_number,
    constants,
    displacement,
    drop,
    fedavg_distance_bound,
    hessian_and_drop,
    hessians,
    heterogeneity_distance_bound,
    instance_optimal_bound,
    minimizer,
    minimizer_distance_bound,
    minimizer_distance_bound_sharp,
    one_shot_bound,
    shift,
    spectrum,
    spread,
)
from theory.claims.outsized_importance.properties import fedavg
from theory.claims.spaces import space


def distance(theta: Callable[[Any], Sequence[Any]]) -> Side:
    """||x*(gamma, Theta) - x*||."""
    return lambda xp, I: xp.norm(shift(xp, I, 0 * I.gamma, I.gamma, theta(I)))


def from_average(xp: Any, I: Any, K: int) -> Any:
    """x*(gamma, Theta_{1:K}) - c; K = 1: x* - c."""
    return minimizer(xp, I.p, hessians(xp, I, I.gamma, (1,) * K), centred(xp, I))


def largest(A: Any) -> Any:
    """L of clients that are being built."""
    return jnp.linalg.eigvalsh(A).max()


def two_unequal_clients(raw: Any, built: dict[str, Any], dims: dict[str, int]) -> Any:
    """Two clients with d = 1, A_1 = 1 and A_2 > 1.01: as L/mu -> 1, rounding errors dominate the ratio."""
    return jnp.stack([1 + 0 * raw, 1.01 + jnp.exp(raw)])[:, None, None]


def surrogate(xp: Any, I: Any, x: Any, H: Any) -> Any:
    """E[(x - c_i)^T H_i (x - c_i)] / 2."""
    return xp.mean(I.p, xp.stack([(x - c_i) @ H_i @ (x - c_i) for H_i, c_i in zip(H, I.c, strict=True)])) / 2


def _minimized(xp: Any, I: Any) -> Any:
    """f~(x) - f~(x*(gamma, Theta)) by its quadratic form, and x*(gamma, Theta) by InnerLoop and by `displacement`."""
    H = hessians(xp, I, I.gamma, I.theta)
    x_gamma = minimizer(xp, I.p, H, I.c)
    gap = I.x - x_gamma
    excess = surrogate(xp, I, I.x, H) - surrogate(xp, I, x_gamma, H)
    return xp.concatenate([xp.stack([excess]), xp.mean(I.p, H) @ gap, x_gamma - minimizer(xp, I.p, I.A, I.c)])


def _predicted(xp: Any, I: Any) -> Any:
    H = hessians(xp, I, I.gamma, I.theta)
    gap = I.x - minimizer(xp, I.p, H, I.c)
    batches = [(xp.stack([A_i[None]] * I.K), xp.stack([c_i[None]] * I.K)) for A_i, c_i in zip(I.A, I.c, strict=True)]
    update = xp.mean(I.p, xp.stack([xp.inner_loop(*batch, I.x, I.gamma, I.theta) for batch in batches]))
    form = gap @ xp.mean(I.p, H) @ gap / 2
    return xp.concatenate([xp.stack([form]), update, -shift(xp, I, 0 * I.gamma, I.gamma, I.theta)])


def _asymptote(xp: Any, I: Any, weight: Callable[[Any], Any]) -> Any:
    """E[(x - c_i)^T weight(A_i) (x - c_i)]."""
    return 2 * surrogate(xp, I, I.x, xp.stack([weight(A_i) for A_i in I.A]))


def _remainder(xp: Any, I: Any) -> Any:
    return _asymptote(xp, I, lambda A: xp.power(xp.eye(I.d) - I.gamma * A, I.K))


def _scaled_surrogate(xp: Any, I: Any) -> Any:
    return 2 * I.gamma * surrogate(xp, I, I.x, hessians(xp, I, I.gamma, fedavg(I)))


def _average_distance(xp: Any, I: Any) -> Any:
    return _asymptote(xp, I, lambda A: xp.eye(I.d))


def _surrogate_and_remainder(xp: Any, I: Any) -> Any:
    return xp.stack([_scaled_surrogate(xp, I), _remainder(xp, I)])


def _limit_and_rate(xp: Any, I: Any) -> Any:
    """E||x - c_i||^2 and (1 - gamma mu)^K of it."""
    whole = _average_distance(xp, I)
    return xp.stack([whole, (1 - I.gamma * spectrum(xp, I)[0]) ** I.K * whole])


def _printed_bound(xp: Any, I: Any) -> Any:
    """Theorem optima_distance in its own letters."""
    mu, L, sigma_A, sigma_c = constants(xp, I)
    progress = chi(I.theta, I.gamma, L)
    return L * sigma_c / mu * (1 + sigma_A / mu) * (1 - progress) / progress


def _flattened(xp: Any, I: Any) -> Any:
    """(phi_{K,L} / phi_{K,mu}) / (L / mu), at most 1 (Lemma cond_number): Theorem 4's bound over Theorem 3's."""
    mu, L = spectrum(xp, I)
    return condition_number(mu, L, I.gamma, I.K) * mu / L


def _bias(xp: Any, I: Any) -> Any:
    """tau Q_i A_i of the first client, tau = 1/K."""
    return xp.distortion(I.A[0], I.gamma, fedavg(I)) @ I.A[0] / I.K


TWO = {"d": 1, "n": 2, "K": 2}
POINT = space("A c p gamma x", (TWO, {"d": 2, "n": 2, "K": 5}))
MINIMA = space("A c p gamma theta x", (TWO, {"d": 2, "n": 3, "K": 3}))
WEIGHTED = space("A c p gamma theta", ({"d": 2, "n": 2, "K": 2},))
WEIGHTED_LINE = space("A c p gamma theta", (TWO,))
UNEQUAL = space(
    "c p theta",
    (TWO,),
    extra={"A": made_by(two_unequal_clients, "symmetric"), "gamma": rate()},
    legal=lambda xp, I: spectrum(xp, I)[0] > 0,
)
FEDAVG = space("A c p gamma", (TWO, {"d": 1, "n": 2, "K": 5}))
FEDAVG_LINE = space("A c p gamma", (TWO,))
FEDAVG_PLANE = space("A c p gamma", ({"d": 2, "n": 2, "K": 2},))
THREE = space(
    "A c gamma",
    ({"d": 1, "n": 3, "K": 2},),
    extra={"p": function(lambda xp, I: xp.array(["1/3"] * 3))},
)
ONE_CLIENT = space("A gamma", ({"d": 1, "n": 1, "K": 1},))
BIASED = space("A gamma", ({"d": 1, "n": 2, "K": 2}, {"d": 2, "n": 1, "K": 5}))

CLAIMS = (
    Claim(
        id="L11",
        label="lem:asymptotic",
        line=655,
        statement=r"for $0 < \gamma < 1/L$, $\tilde f(x, \gamma, \Theta_{1:K}) \le \frac{1}{2\gamma} "
        r"\mathbb{E}\|x - c_i\|^2$, which is the limit as $K \to \infty$ and has its minimum at $c$",
        trial=(
            Trial(POINT, _surrogate_and_remainder, _limit_and_rate),
            Trial(
                POINT,
                left=lambda xp, I: _average_distance(xp, I) - _scaled_surrogate(xp, I),
                right=_remainder,
                relation="==",
            ),
            Trial(
                MINIMA,
                left=lambda xp, I: _average_distance(xp, I) - spread(xp, I),
                right=lambda xp, I: xp.total((I.x - xp.mean(I.p, I.c)) ** 2),
                relation="==",
            ),
        ),
        expected="HOLDS",
        assumptions=("0 < gamma <= 1/L", "Assumptions 0 to 2"),
        note="The gap is $\\frac{1}{2\\gamma}\\mathbb{E}\\|(I - \\gamma A_i)^{K/2}(x - c_i)\\|^2$, at most "
        "$(1 - \\gamma\\mu)^K$ of the limit, which is tried too. The limit holds for all gamma < 2/L. The display at "
        "line 1590 lacks the factor $1/\\gamma$.",
    ),
    Claim(
        id="L11b",
        label="Section 6",
        line=667,
        statement=r"varying $K$ changes the distance by a fixed amount only, and the worst surrogate is the average "
        r"distance to the client optimisers: $\|x^*(\gamma, \Theta_{1:K}) - x^*\| \le \|c - x^*\|$",
        trial=(
            Trial(
                THREE,
                left=distance(fedavg),
                right=lambda xp, I: xp.norm(from_average(xp, I, 1)),
                relation="<=",
            ),
        ),
        expected="FALSE",
        corrected=r"with $B(t) = \frac12(\sqrt t - 1/\sqrt t)$ and $\tilde\kappa_K = \phi_{K,L}/\phi_{K,\mu}$: "
        r"$\|x^*(\gamma, \Theta_{1:K}) - c\| \le \sigma_c B(\tilde\kappa_K)$, which falls to 0 as $K \to \infty$, and "
        r"$\|x^*(\gamma, \Theta_{1:K}) - x^*\| \le \sigma_c (B(L/\mu) + B(\tilde\kappa_K))$",
        correction=(
            Trial(
                FEDAVG_LINE,
                lambda xp, I: xp.norm(from_average(xp, I, I.K)),
                lambda xp, I: one_shot_bound(xp, I, I.K),
            ),
            Trial(
                FEDAVG_PLANE,
                distance(fedavg),
                lambda xp, I: one_shot_bound(xp, I, 1) + one_shot_bound(xp, I, I.K),
            ),
        ),
        note="Where x* = c the one-shot average is the best surrogate, and every finite K is worse. The distance is "
        "not monotone in K either. That it changes by a bounded amount is true, uniformly in K and gamma.",
    ),
    Claim(
        id="L12",
        label="lem:opt_point",
        line=1522,
        statement=r"$x^*(\gamma, \Theta) = \mathbb{E}[\tilde A_i]^{-1}\mathbb{E}[\tilde A_i c_i]$",
        trial=(Trial(MINIMA, left=_minimized, right=_predicted, relation="=="),),
        expected="HOLDS",
        assumptions=("E[Q_i A_i] positive definite, as for 0 <= gamma < 1/L",),
        note="Tried with lur's InnerLoop: its mean over clients is the surrogate's gradient at this minimiser. The same "
        "trial checks $x^* - x^*(\\gamma, \\Theta) = \\mathbb{E}[W_i(c_i - c)]$, on which the trials below rest.",
    ),
    Claim(
        id="L13",
        label="lemma:expect_inverse",
        line=1547,
        statement=r"$\mathbb{E}[A_i]^{-1} \preceq \mathbb{E}[A_i^{-1}]$",
        trial=(
            Trial(
                space("A p x", ({"d": 1, "n": 2}, {"d": 2, "n": 2})),
                lambda xp, I: I.x @ xp.solve(xp.mean(I.p, I.A), I.x),
                lambda xp, I: I.x @ xp.mean(I.p, xp.stack([xp.inverse(A_i) for A_i in I.A])) @ I.x,
            ),
        ),
        expected="HOLDS",
        assumptions=("A_i positive definite",),
    ),
    Claim(
        id="L15",
        label="lem:frac_sum",
        line=2020,
        statement=r"if $a_i/b_i \le c$ for positive $a_i$, $b_i$, then $\sum_i a_i / \sum_i b_i \le c$",
        trial=(
            Trial(
                space("p theta", ({"n": 2, "K": 2}, {"n": 5, "K": 5}, {"n": 20, "K": 20}), grow=""),
                left=lambda xp, I: xp.total(I.p) / xp.total(I.theta),
                right=lambda xp, I: xp.maximum(*(I.p / I.theta)),
                relation="<=",
            ),
        ),
        expected="HOLDS",
        note="Tried with c = max a_i / b_i and sum a_i = 1, to which it scales. The printed induction uses the case n = 2 to "
        "prove it; directly, sum a_i <= c sum b_i.",
    ),
    Claim(
        id="L16",
        label="lem:cond_number",
        line=2048,
        statement=r"for $\gamma \in [0, 1/L]$ and $K \ge 1$, $\frac{\phi_{K,L}(\gamma)}{\phi_{K,\mu}(\gamma)} \le "
        r"\frac{L}{\mu}$",
        trial=(
            Trial(
                space("A gamma", (TWO, {"d": 1, "n": 2, "K": 20})),
                lambda xp, I: condition_number(*spectrum(xp, I), I.gamma, I.K),
                lambda xp, I: spectrum(xp, I)[1] / spectrum(xp, I)[0],
            ),
        ),
        expected="HOLDS",
    ),
    Claim(
        id="T3",
        label="thm:optima_distance",
        line=671,
        statement=r"for $\gamma < 1/L$, $\|x^*(\gamma, \Theta) - x^*\| \le \frac{L\sigma_c}{\mu}"
        r"\left(1 + \frac{\sigma_A}{\mu}\right)\frac{1 - \chi(\gamma, \Theta)}{\chi(\gamma, \Theta)}$",
        trial=(
            Trial(
                WEIGHTED,
                distance(lambda I: I.theta),
                lambda xp, I: minimizer_distance_bound(constants(xp, I), I.gamma, I.theta),
            ),
            Trial(
                WEIGHTED_LINE,
                left=lambda xp, I: minimizer_distance_bound(constants(xp, I), I.gamma, I.theta),
                right=_printed_bound,
                relation="==",
            ),
        ),
        expected="HOLDS",
        assumptions=("0 <= gamma < 1/L", "Assumptions 0 to 2"),
        corrected=r"sharper: $\frac12 \frac{1 - \chi_\mu}{\chi_\mu}$ in the place of $\frac{1 - \chi}{\chi}$, "
        r"$\chi_\mu = \sum_k \theta_k(1-\gamma L)^{k-1} / \sum_k \theta_k(1-\gamma\mu)^{k-1}$; and the best bound that "
        r"knows $A_i$, $P$ and $\sigma_c$ is $\sigma_c\|\mathbb{E}[W_iW_i^\top]\|^{1/2}$, "
        r"$W_i = \tilde A^{-1}\tilde A_i - A^{-1}A_i$",
        correction=(
            Trial(
                UNEQUAL,
                distance(lambda I: I.theta),
                lambda xp, I: minimizer_distance_bound_sharp(constants(xp, I), I.gamma, I.theta),
            ),
            Trial(
                WEIGHTED_LINE,
                distance(lambda I: I.theta),
                lambda xp, I: instance_optimal_bound(xp, I, displacement(xp, I, 0 * I.gamma, I.gamma, I.theta)),
            ),
        ),
        note="The sharper bound is approached as L/mu -> 1, the instance-optimal one is attained by $c_i - c \\propto "
        "W_i^\\top u$.",
    ),
    Claim(
        id="T4",
        label="thm:optima_distance_fedavg",
        line=689,
        statement=r"for $\gamma < 1/L$, $\|x^*(\gamma, \Theta_{1:K}) - x^*\| \le \sigma_c"
        r"\left(1 + \frac{\sigma_A}{\mu}\right)\frac{LK - \phi_{K,L}(\gamma)}{\phi_{K,\mu}(\gamma)}$, tighter than "
        r"Theorem optima_distance",
        trial=(
            Trial(
                FEDAVG,
                distance(fedavg),
                lambda xp, I: fedavg_distance_bound(constants(xp, I), I.gamma, I.K),
            ),
            Trial(
                FEDAVG_LINE,
                left=lambda xp, I: _flattened(xp, I) * minimizer_distance_bound(constants(xp, I), I.gamma, fedavg(I)),
                right=lambda xp, I: fedavg_distance_bound(constants(xp, I), I.gamma, I.K),
                relation="==",
            ),
        ),
        expected="HOLDS",
        assumptions=("0 <= gamma < 1/L", "Assumptions 0 to 2"),
        corrected=r"also $\sigma_c\sigma_A \frac{K}{\phi_{K,\mu}}\left(1 - \frac{\phi_{K,L}}{KL}\right)"
        r"\left(2 + \frac{L}{\mu}\right)$, which vanishes with $\sigma_A$ as the distance does",
        correction=(
            Trial(
                FEDAVG_LINE,
                distance(fedavg),
                lambda xp, I: heterogeneity_distance_bound(constants(xp, I), I.gamma, I.K),
            ),
        ),
        note="In the proof, tau = K should be 1/K.",
    ),
    Claim(
        id="T4a",
        label="lem:diff_qa_a",
        line=1722,
        statement=r"$\|\tau Q_i(\gamma, \Theta_{1:K})A_i - I\| \le \frac{KL - \phi_{K,L}(\gamma)}{K}$",
        trial=(
            Trial(
                ONE_CLIENT,
                left=lambda xp, I: xp.operator_norm(_bias(xp, I) - xp.eye(I.d)),
                right=lambda xp, I: drop(fedavg(I), spectrum(xp, I)[1], 0 * I.gamma, I.gamma) / I.K,
                relation="<=",
            ),
        ),
        expected="FALSE",
        corrected=r"$\|\tau Q_i(\gamma, \Theta_{1:K})A_i - A_i\| \le \frac{KL - \phi_{K,L}(\gamma)}{K}$",
        correction=(
            Trial(
                BIASED,
                left=lambda xp, I: I.A[0] - _bias(xp, I),
                right=lambda xp, I: hessian_and_drop(xp, I.A[0], fedavg(I), 0 * I.gamma, I.gamma)[1] / I.K,
                relation="==",
            ),
            Trial(
                BIASED,
                lambda xp, I: xp.operator_norm(hessian_and_drop(xp, I.A[0], fedavg(I), 0 * I.gamma, I.gamma)[1]),
                lambda xp, I: drop(fedavg(I), spectrum(xp, I)[1], 0 * I.gamma, I.gamma),
            ),
        ),
        note="Line 1743, too: $KI - Q_iA_i$ should be $KA_i - Q_iA_i$.",
    ),
)
