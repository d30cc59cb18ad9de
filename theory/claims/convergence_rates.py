"""Section 7, the theorems: how fast LocalUpdate converges with fixed and with decaying rates.

Left sides are exact, from the recursion of the first two moments. The printed theorems leave out the variance of client
sampling; every repair is tried with clients drawn iid (sigma_*^2) and with all of them taking part.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp

from theory.claims.claim import Claim, Space, Trial
from theory.claims.convergence import FULL as FULL_DESCENT
from theory.claims.convergence import G2, ONE_ROUND, SAMPLED, variance
from theory.claims.moments import (
    Surrogate,
    act,
    center_spread,
    extent,
    positive,
    second_moments,
    share,
    sigma_star,
    squared,
    surrogate,
)
from theory.claims.properties import fedavg, hessian, phi
from theory.claims.spaces import space
from theory.spectrum import geometric_sum

# --- fixed gamma ---

SMALLEST = {"d": 1, "n": 2, "K": 1, "M": 1, "B": 1}
LONG = {"d": 1, "n": 2, "K": 2, "M": 2, "B": 1}
FLAT = {"d": 2, "n": 2, "K": 2, "M": 1, "B": 1}


def _nonnegative(xp: Any, I: Any) -> bool:
    return bool(I.slack >= 0) and bool(I.noise >= 0)


def steps(*dims: dict[str, int]) -> Space:
    """Instances for a constant eta, `step` times the largest allowed, and t rounds."""
    return ONE_ROUND._replace(dims=dims)


def decays(*dims: dict[str, int]) -> Space:
    """Instances for eta_t = (2/mu_gamma)/(b + t), where b is `slack` more than the least allowed."""
    return space("A c p gamma x", dims, legal=_nonnegative, extra={"slack": positive, "noise": positive})


def messages_averaged(xp: Any, I: Any, full: bool) -> Any:
    """1/M, or sum_i p_i^2 with full participation: what averaging leaves of the clients' own noise."""
    return xp.total(I.p * I.p) if full else xp.array("1")[()] / I.M


def _sides(sides: Callable[[Any, Any], tuple[Any, Any]], over: Space) -> Trial:
    return Trial(over, lambda xp, I: sides(xp, I)[0], lambda xp, I: sides(xp, I)[1], "<=")


def fixed_server(which: str, over: Space) -> Trial:
    """Theorem 6, as printed, or repaired for clients sampled or all taking part: every t up to I.t at once."""
    full = which == "full"

    def sides(xp: Any, I: Any) -> tuple[Any, Any]:
        s = surrogate(xp, I)
        eta = I.step * {"printed": s.mu / s.L**2, "sampled": 1 / (2 * s.L), "full": 1 / s.L}[which]
        if which == "sampled":
            variance = 2 * eta * sigma_star(xp, I, s) / s.mu
        else:
            variance = eta * I.K * I.noise * messages_averaged(xp, I, full) / (s.mu * I.B)
        decayed = xp.stack([(1 - eta * s.mu) ** t for t in range(1, I.t + 1)])
        return second_moments(xp, I, s, [eta] * I.t, full), decayed * squared(I.x) + variance

    return _sides(sides, over)


def schedule(I: Any, s: Surrogate, which: str) -> tuple[Any, list[Any]]:
    """b_gamma and eta_1, ..., eta_{t-1}: b >= 2 kappa^2 as printed, 4 kappa sampled, 2 kappa with all clients."""
    kappa = s.L / s.mu
    b = {"printed": 2 * kappa**2, "sampled": 4 * kappa, "full": 2 * kappa}[which] + I.slack
    return b, [2 / (s.mu * (b + t)) for t in range(1, I.t)]


def decaying_server(which: str, over: Space) -> Trial:
    """Theorem 7: E||x_t - x_gamma^*||^2 <= nu / (b + t) for t = 2, ..., I.t."""

    def sides(xp: Any, I: Any) -> tuple[Any, Any]:
        s = surrogate(xp, I)
        b, etas = schedule(I, s, which)
        if which == "sampled":
            variance = 8 * sigma_star(xp, I, s) / s.mu**2
        else:
            variance = 4 * I.K * I.noise * messages_averaged(xp, I, which == "full") / (s.mu**2 * I.B)
        nu = xp.maximum(variance, (b + 1) * squared(I.x))
        return second_moments(xp, I, s, etas, which == "full"), nu / xp.stack([b + t for t in range(2, I.t + 1)])

    return _sides(sides, over)


def true_minimizer(which: str, over: Space) -> Trial:
    """Corollary 6: E||x_t - x*||^2, with the least eps that gamma allows, 1 - exp(-gamma K L)."""

    def sides(xp: Any, I: Any) -> tuple[Any, Any]:
        s = surrogate(xp, I)
        b, etas = schedule(I, s, which)
        mu, L = extent(xp, I.A)
        grown = xp.exp(I.gamma * I.K * L)  # 1 / (1 - eps)
        own = grown**2 * I.noise / (mu**2 * I.K * I.B)
        if which == "sampled":
            variance = 8 * (own + (L / mu) ** 2 * center_spread(xp, I)) / I.M
        else:
            variance = 4 * own * messages_averaged(xp, I, which == "full")
        nu = xp.maximum(variance, (b + 1) * squared(I.x))
        mean_A = xp.mean(I.p, I.A)
        sigma_A = xp.sqrt(xp.mean(I.p, xp.stack([xp.operator_norm(A - mean_A) ** 2 for A in I.A])))
        bias = 2 * center_spread(xp, I) * ((1 + sigma_A / mu) * L / mu * (grown - 1)) ** 2
        gap = s.x - xp.solve(mean_A, xp.mean(I.p, act(I.A, I.c)))
        errors, mean = [], I.x
        for eta in etas:
            mean = mean - eta * (s.H @ mean)
            errors.append(2 * (mean @ gap) + squared(gap))
        left = second_moments(xp, I, s, etas, which == "full") + xp.stack(errors)
        return left, 2 * nu / xp.stack([b + t for t in range(2, I.t + 1)]) + bias

    return _sides(sides, over)


# --- decaying gamma: scalars, all rounds at once ---

RUNS = "A c p x"


def runs(*dims: dict[str, int]) -> Space:
    """Scalar clients and gradient noise; `x` is x_1 - x_1^*."""
    return space(RUNS, dims, legal=lambda xp, I: bool(I.noise >= 0), extra={"noise": positive})


def rates(xp: Any, I: Any, slower: bool) -> tuple[Any, Any, Any, Any]:
    """mu, L, the times b + t and gamma_t for t = 1, ..., I.t; printed, or gamma_t = 1/(K L (b + t))."""
    mu, L = extent(xp, I.A)
    time = xp.stack([3 * (L / mu) ** 2 + t for t in range(1, I.t + 1)])
    if slower:
        return mu, L, time, 1 / (I.K * L * time)
    cap = xp.log(xp.array("2")[()]) / (I.K * mu)
    return mu, L, time, xp.stack([xp.minimum(1 / (L * hat), cap) for hat in time])


def decaying_errors(xp: Any, I: Any, slower: bool, full: bool) -> Any:
    """E(x_t - x*)^2 for t = 1, ..., I.t, d = 1."""
    mu, _, time, gamma = rates(xp, I, slower)
    a, c = I.A[:, 0, 0], I.c[:, 0]
    h = a[None] * geometric_sum(1 - gamma[:, None] * a[None], I.K)  # (t, n)
    before = gamma[:-1]  # the rounds that lead to x_2, ..., x_t
    own = I.noise / I.B * geometric_sum((1 - before[:, None] * a[None]) ** 2, I.K)
    eta = 3 / (mu * geometric_sum(1 - before * mu, I.K) * time[:-1])
    star = (I.p * a) @ c / (I.p @ a)
    H, pull = h @ I.p, h * (star - c)[None]
    drift = pull @ I.p
    m = I.x[0] - drift[0] / H[0]  # x_1^* - x* = -E[h_i(x* - c_i)] / E[h_i]
    S = m**2
    errors = [S]
    for t in range(I.t - 1):
        together = H[t] ** 2 * S + 2 * H[t] * drift[t] * m + drift[t] ** 2
        if full:
            square = together + (I.p * I.p) @ own[t]
        else:
            each = I.p @ (h[t] ** 2 * S + 2 * h[t] * pull[t] * m + pull[t] ** 2 + own[t])
            square = together + (each - together) / I.M
        S = S - 2 * eta[t] * (H[t] * S + drift[t] * m) + eta[t] ** 2 * square
        m = m - eta[t] * (H[t] * m + drift[t])
        errors.append(S)
    return xp.stack(errors)


def decaying_bound(xp: Any, I: Any, slower: bool, full: bool) -> Any:
    """(2 nu + m^2 sigma_c^2/12) / (b + t): m = K - 1, or 1 with the slower schedule."""
    mu, L, time, _ = rates(xp, I, slower)
    spread = center_spread(xp, I)
    variance = (12 if slower else 18) * I.noise / (mu**2 * I.K * I.B) * messages_averaged(xp, I, full)
    if not full:
        variance = variance + 27 * (L / mu) ** 2 * spread / (2 * I.M)
    nu = xp.maximum(variance, time[0] * squared(I.x))
    return (2 * nu + (1 if slower else I.K - 1) ** 2 * spread / 12) / time


def decaying(slower: bool, full: bool, **dims: int) -> Trial:
    """Theorem 8 repaired, (A) with the printed gamma_t or (B) with the slower one."""
    return Trial(
        runs({"d": 1, "n": 2, **dims}),
        left=lambda xp, I: decaying_errors(xp, I, slower, full),
        right=lambda xp, I: decaying_bound(xp, I, slower, full),
        relation="<=",
    )


def printed_bound(xp: Any, I: Any) -> Any:
    """(2 nu + 16 sigma_c^2 kappa^2) / (b + t)."""
    mu, L, time, _ = rates(xp, I, slower=False)
    nu = xp.maximum(18 * I.noise / (mu**2 * I.K * I.M * I.B), time[0] * squared(I.x))
    return (2 * nu + 16 * center_spread(xp, I) * (L / mu) ** 2) / time


# --- sentences ---


def condition(xp: Any, I: Any) -> Any:
    """The condition number of f~_gamma for one client."""
    eigenvalues = xp.eigvalsh(hessian(xp, I, fedavg(I)))
    return eigenvalues[-1] / eigenvalues[0]


def least_b(xp: Any, I: Any) -> Any:
    """2 L_gamma^2 / mu_gamma^2."""
    mu, L = extent(xp, I.A)
    return 2 * (phi(I.K, L, I.gamma) / phi(I.K, mu, I.gamma)) ** 2


def _square_of_mu_t(xp: Any, I: Any, mu_t: Any) -> tuple[Any, Any]:
    """9K/mu_t^2 and 18/(mu^2 K), what is left of xi_t without the common factor G^2/(MB)."""
    return 9 * I.K / mu_t**2, 18 / (I.mu**2 * I.K)


def _flattened(xp: Any, I: Any) -> tuple[Any, Any]:
    """mu_gamma and L_gamma of the numbers mu, L."""
    return phi(I.K, I.mu, I.gamma), phi(I.K, I.L, I.gamma)


HALVED = space(
    "",
    ({"K": 1},),
    legal=lambda xp, I: bool(I.mu > 0) and bool(I.slack >= 0),
    extra={"mu": positive, "slack": positive},
)
CAPPED = space(
    "",
    ({"K": 1000},),
    legal=lambda xp, I: bool(I.gamma > 0) and bool(I.K * I.mu * I.gamma <= xp.log(xp.array("2")[()])),
    extra={
        "mu": positive,
        "gamma": lambda raw, built, dims: share(raw, built, dims) * jnp.log(2) / (dims["K"] * built["mu"]),
    },
)
MODERATE = space(
    "",
    ({"K": 2},),
    legal=lambda xp, I: (
        bool(I.mu > 0) and bool(10 * I.gamma * I.mu >= 1) and bool(I.gamma * I.L <= 1) and bool(I.mu <= I.L)
    ),
    extra={
        "mu": positive,
        "L": lambda raw, built, dims: built["mu"] * (1 + 9 * share(raw, built, dims)),
        "gamma": lambda raw, built, dims: (
            1 / (10 * built["mu"]) + share(raw, built, dims) * (1 / built["L"] - 1 / (10 * built["mu"]))
        ),
    },
)
ANY_RATE = space(
    "",
    ({"K": 5},),
    legal=lambda xp, I: bool(I.mu > 0) and bool(I.gamma > 0) and bool(I.gamma * I.L <= 1) and bool(I.mu <= I.L),
    extra={
        "mu": positive,
        "L": lambda raw, built, dims: built["mu"] * (1 + positive(raw, built, dims)),
        "gamma": lambda raw, built, dims: share(raw, built, dims) / built["L"],
    },
)
SMALLER = space(
    "A gamma",
    ({"d": 1, "n": 1, "K": 2}, {"d": 1, "n": 1, "K": 10}),
    legal=lambda xp, I: bool(I.gamma_smaller >= 0) and bool(I.gamma_smaller <= I.gamma),
    extra={"gamma_smaller": lambda raw, built, dims: share(raw, built, dims) * built["gamma"]},
)
CURVATURES = space("A gamma", tuple({"d": 2, "n": 1, "K": K} for K in (1, 3)))
BATCHES = space("A c p c_z gamma x", tuple({"d": d, "n": 1, "m": 2, "K": 2, "B": 1, "M": 2} for d in (1, 2)))


def mini_batch(xp: Any, I: Any) -> Any:
    """At gamma = 0: Var(q/K) by enumeration, and Theorem 7's variance term."""
    at_zero = SimpleNamespace(**{**vars(I), "gamma": 0 * I.gamma})
    mu = extent(xp, I.A)[0]
    term = 4 * I.K * G2(xp, I) / (phi(I.K, mu, 0 * I.gamma) ** 2 * I.M * I.B)
    return xp.stack([variance(xp, at_zero) / I.K**2, term])


def beta_1(xp: Any, I: Any) -> Any:
    """mu^2 beta_1 = G^2/(KMB), the variance of a mini-batch of K B on M clients, and 4 beta_1."""
    mean_of_all = G2(xp, I) / (I.K * I.M * I.B)
    return xp.stack([mean_of_all, 4 * mean_of_all / extent(xp, I.A)[0] ** 2])


CLAIMS = (
    Claim(
        id="T6",
        label="thm:fix_client_fix_server",
        line=836,
        statement=r"$\eta \le \mu_\gamma/L_\gamma^2$ implies $\mathbb{E}\|x_{t+1}-x_\gamma^*\|^2 \le "
        r"(1-\eta\mu_\gamma)^t\|x_1-x_\gamma^*\|^2 + \frac{\eta KG^2}{\mu_\gamma MB}$",
        trial=(fixed_server("printed", steps({**SMALLEST, "t": 1})),),
        expected="FALSE",
        assumptions=("0 <= gamma <= 1/L", "additive gradient noise"),
        corrected=r"clients sampled: $\eta \le \frac{1}{2L_\gamma}$ and the last term $2\eta\sigma_*^2/\mu_\gamma$; full "
        r"participation: $\eta \le 1/L_\gamma$ and the last term $\frac{\eta KG^2}{\mu_\gamma B}\sum_i p_i^2$",
        correction=(
            fixed_server("sampled", steps({**FLAT, "t": 3})),
            fixed_server("sampled", steps({**LONG, "t": 20})),
            fixed_server("full", steps({**FLAT, "t": 3})),
        ),
        note="From the surrogate minimiser without gradient noise, the printed right side is 0.",
    ),
    Claim(
        id="T7",
        label="thm:fix_client_decay_server",
        line=849,
        statement=r"$\eta_t = \frac{2/\mu_\gamma}{b_\gamma+t}$, $b_\gamma \ge 2L_\gamma^2/\mu_\gamma^2$ implies "
        r"$\mathbb{E}\|x_t-x_\gamma^*\|^2 \le \frac{\nu_\gamma}{b_\gamma+t}$, $\nu_\gamma = \max\{\frac{4KG^2}"
        r"{\mu_\gamma^2MB}, (b_\gamma+1)\|x_1-x_\gamma^*\|^2\}$",
        trial=(decaying_server("printed", decays({**SMALLEST, "t": 2})),),
        expected="FALSE",
        assumptions=("0 <= gamma <= 1/L", "additive gradient noise"),
        corrected=r"clients sampled: $b_\gamma \ge 4L_\gamma/\mu_\gamma$, $\nu_\gamma = \max\{8\sigma_*^2/\mu_\gamma^2, "
        r"(b_\gamma+1)\|x_1-x_\gamma^*\|^2\}$; full participation: $b_\gamma \ge 2L_\gamma/\mu_\gamma$ and $\sum_i p_i^2$ "
        r"for $1/M$",
        correction=(
            decaying_server("sampled", decays({**FLAT, "t": 4})),
            decaying_server("sampled", decays({**LONG, "t": 20})),
            decaying_server("full", decays({**FLAT, "t": 4})),
        ),
    ),
    Claim(
        id="T7b",
        label="Section 7.1",
        line=892,
        statement=r"$b_\gamma$ is twice the condition number of $\tilde f_\gamma$",
        trial=(Trial(CURVATURES, least_b, lambda xp, I: 2 * condition(xp, I), "=="),),
        expected="FALSE",
        corrected="twice the square of the condition number; four times it in the repaired theorem",
        correction=(Trial(CURVATURES, least_b, lambda xp, I: 2 * condition(xp, I) ** 2, "=="),),
        note="One client, where L_gamma/mu_gamma is the condition number, not a bound on it.",
    ),
    Claim(
        id="C6",
        label="cor:fix_client_decay_server",
        line=866,
        statement=r"$\gamma \le \frac{\ln(1/(1-\epsilon))}{KL}$ implies $\mathbb{E}\|x_t-x^*\|^2 \le \frac{2\nu_\gamma}"
        r"{b_\gamma+t} + 2\sigma_c^2(1+\frac{\sigma_A}{\mu})^2\frac{L^2}{\mu^2}\frac{\epsilon^2}{(1-\epsilon)^2}$, "
        r"$\nu_\gamma \le \max\{\frac{4G^2}{(1-\epsilon)^2\mu^2KMB}, (b_\gamma+1)\|x_1-x_\gamma^*\|^2\}$",
        trial=(true_minimizer("printed", decays({**SMALLEST, "t": 2})),),
        expected="FALSE",
        assumptions=("eps <= 1 - exp(-K)", "additive gradient noise"),
        corrected=r"clients sampled: $b_\gamma \ge 4L_\gamma/\mu_\gamma$, $\nu_\gamma = \max\{\frac8M(\frac{G^2}{(1-\epsilon)^2"
        r"\mu^2KB} + \kappa^2\sigma_c^2), (b_\gamma+1)\|x_1-x_\gamma^*\|^2\}$; full participation: "
        r"$b_\gamma \ge 2L_\gamma/\mu_\gamma$ and $\sum_i p_i^2$ for $1/M$",
        correction=(
            true_minimizer("sampled", decays({**LONG, "t": 8})),
            true_minimizer("full", decays({**LONG, "t": 8})),
        ),
        note="Tried with the least eps. sigma_a should be sigma_A, and beta_2 (line 880) lacks a square.",
    ),
    Claim(
        id="T8",
        label="thm:convergence_overall",
        line=902,
        statement=r"$\gamma_t = \min\{\frac{1}{L(b+t)}, \frac{\ln 2}{K\mu}\}$, $\eta_t = \frac{3/\mu_t}{b+t}$, $b = 3\kappa^2$ "
        r"implies $\mathbb{E}\|x_t-x^*\|^2 \le \frac{2\nu + 16\sigma_c^2\kappa^2}{b+t}$, $\nu = \max\{\frac{18G^2}{\mu^2KMB}, "
        r"(b+1)\|x_1-x_1^*\|^2\}$",
        trial=(
            Trial(
                runs({"d": 1, "n": 2, "K": 10_000, "M": 1, "B": 1, "t": 1}),
                left=lambda xp, I: decaying_errors(xp, I, slower=False, full=False),
                right=printed_bound,
                relation="<=",
            ),
        ),
        expected="FALSE",
        assumptions=("additive gradient noise",),
        corrected=r"(A) $\frac{2\nu + (K-1)^2\sigma_c^2/12}{b+t}$ with $\nu = \max\{\frac1M(\frac{27}2\kappa^2\sigma_c^2 + "
        r"\frac{18G^2}{\mu^2KB}), (b+1)\|x_1-x_1^*\|^2\}$; (B) with $\gamma_t = \frac{1}{KL(b+t)}$, "
        r"$\frac{2\nu + \sigma_c^2/12}{b+t}$ with $12G^2$ for $18G^2$: no constant grows with $K$. Full participation: "
        r"without $\frac{27}2\kappa^2\sigma_c^2$ and with $\sum_i p_i^2$ for $1/M$",
        correction=(
            decaying(slower=False, full=False, K=3, M=1, B=1, t=8),
            decaying(slower=True, full=False, K=2000, M=1, B=1, t=8),
            decaying(slower=False, full=True, K=1000, M=1, B=1, t=4),
        ),
        note="False for large K under every participation scheme (already at t = 1, before anyone is sampled): the bias "
        "of x_t^* grows with K, the right side does not. Proved as printed for K <= 14 with full participation, K <= 6 "
        "with M >= 2 clients sampled and K <= 3 with one.",
    ),
    Claim(
        id="T8n",
        label="thm:convergence_overall (proof)",
        line=2312,
        statement=r"$\mu_t \ge K\mu/2$ gives $\frac{9KG^2}{\mu_t^2MB} \le \frac{18G^2}{\mu^2KMB}$, so $\xi_t \le 0$",
        trial=(
            Trial(
                HALVED,
                left=lambda xp, I: _square_of_mu_t(xp, I, I.K * I.mu * (1 + I.slack) / 2)[0],
                right=lambda xp, I: _square_of_mu_t(xp, I, I.K * I.mu)[1],
                relation="<=",
            ),
        ),
        expected="FALSE",
        corrected=r"$\gamma_t \le \frac{\ln 2}{K\mu}$ gives $\mu_t \ge \frac{K\mu}{2\ln 2}$ and $9(2\ln 2)^2 < 18$",
        correction=(
            Trial(
                CAPPED,
                left=lambda xp, I: _square_of_mu_t(xp, I, phi(I.K, I.mu, I.gamma))[0],
                right=lambda xp, I: _square_of_mu_t(xp, I, I.mu)[1],
                relation="<=",
            ),
        ),
        note="The derivation is false, mu_t >= K mu/2 only gives 36 for 18; its conclusion xi_t <= 0 holds by the repair.",
    ),
    Claim(
        id="S5",
        label="Section 7.1",
        line=832,
        statement=r"conjecture: $\eta_t \le \mu_\gamma/L_\gamma^2$ in the descent lemma can be relaxed",
        trial=(FULL_DESCENT, SAMPLED),
        expected="HOLDS",
        assumptions=("0 <= gamma <= 1/L", "additive gradient noise"),
        note="For quadratics: to 1/L_gamma with full participation, to 1/(2 L_gamma) with clients sampled (and the "
        "variance 2 eta^2 sigma_*^2).",
    ),
    Claim(
        id="S6",
        label="Section 7.1",
        line=832,
        statement=r"when $\gamma$ is moderately large with respect to $\mu$, $\mu_\gamma \approx L_\gamma$: "
        r"$\gamma\mu \ge 1/10$ gives $L_\gamma \le 2\mu_\gamma$",
        trial=(
            Trial(
                MODERATE,
                left=lambda xp, I: _flattened(xp, I)[1],
                right=lambda xp, I: 2 * _flattened(xp, I)[0],
                relation="<=",
            ),
        ),
        expected="NEEDS",
        assumptions=("gamma <= 1/L",),
        repair="assumption",
        corrected=r"when $K\gamma\mu \gg 1$: $L_\gamma(1 - e^{-K\gamma\mu}) \le \mu_\gamma \le L_\gamma$",
        correction=(
            Trial(
                ANY_RATE,
                left=lambda xp, I: _flattened(xp, I)[1] * (1 - xp.exp(-I.K * I.gamma * I.mu)),
                right=lambda xp, I: _flattened(xp, I)[0],
                relation="<=",
            ),
        ),
        note="With gamma <= 1/L that takes K far above kappa.",
    ),
    Claim(
        id="S7",
        label="Section 7.1",
        line=890,
        statement=r"at $\epsilon = 0$, $\beta_1 = \frac{G^2}{\mu^2KMB}$ is the term of mini-batch SGD with batches of size "
        r"$KB$ on $M$ clients",
        trial=(Trial(BATCHES, mini_batch, beta_1, "=="),),
        expected="HOLDS",
        assumptions=("homogeneous clients", "additive gradient noise"),
        note="Up to the factor 4 that O(.) hides. With heterogeneous clients both lack kappa^2 sigma_c^2/M, which "
        "shrinks neither with K nor with B.",
    ),
    Claim(
        id="S8",
        label="Section 8.2",
        line=995,
        statement=r"choosing a smaller $\gamma$ increases $L_\gamma$",
        trial=(
            Trial(
                SMALLER,
                left=lambda xp, I: phi(I.K, I.A[0, 0, 0], I.gamma),
                right=lambda xp, I: phi(I.K, I.A[0, 0, 0], I.gamma_smaller),
                relation="<=",
            ),
        ),
        expected="HOLDS",
        assumptions=("0 <= gamma <= 1/L",),
    ),
)
