"""Section 7, the lemmas: the noise of LocalUpdate's updates, and one step of descent.

Left sides are exact. Where the noise of single examples matters, every mini-batch and every choice of clients is
enumerated with the implementation's InnerLoop; elsewhere the first two moments of x_t are carried from round to round
(`theory.claims.outsized_importance.moments`).
"""

from types import SimpleNamespace
from typing import Any

from theory import exact
from theory.claims.claim import Claim, Finding, Inspection, Trial
from theory.claims.outsized_importance.moments import (
    Surrogate,
    apply_each,
    averaging_factor,
    center_spread,
    extent,
    in_unit,
    positive,
    second_moments,
    share,
    sigma_star,
    squared,
    surrogate,
)
from theory.claims.outsized_importance.properties import fedavg, phi
from theory.claims.outsized_importance.sgd import client_of, quadratic
from theory.claims.spaces import space, up_to
from theory.spectrum import geometric_sum

ONE_ROUND = space(  # step: eta in units of the largest allowed
    "A c p gamma x",
    ({"d": 1, "n": 2, "K": 1, "M": 1, "B": 1},),
    legal=in_unit,
    extra={"step": share, "noise": positive},
)
PLANE = ONE_ROUND._replace(dims=({"d": 2, "n": 2, "K": 2, "M": 1, "B": 1},))


def descent(which: str) -> Trial:
    """E||x_{t+1} - x_gamma^*||^2 against a right side of Lemma descent_step: as printed, sampled or full."""
    full = which == "full"

    def rate(I: Any, s: Surrogate) -> Any:
        largest = {"printed": s.mu / s.L**2, "sampled": 1 / (2 * s.L), "full": 2 / (s.L + s.mu)}
        return I.step * largest[which]

    def left(xp: Any, I: Any) -> Any:
        s = surrogate(xp, I)
        return second_moments(xp, I, s, xp.stack([rate(I, s)]), full)[0]

    def right(xp: Any, I: Any) -> Any:
        s = surrogate(xp, I)
        eta = rate(I, s)
        start = (1 - eta * s.mu) ** (2 if full else 1) * squared(I.x)
        if which == "sampled":
            return start + 2 * eta**2 * sigma_star(xp, I, s)
        return start + eta**2 * I.K * I.noise * averaging_factor(xp, I, full) / I.B

    return Trial(ONE_ROUND if which == "printed" else PLANE, left, right, "<=")


def _heterogeneity(xp: Any, I: Any) -> Any:
    return xp.mean(I.p, (surrogate(xp, I).h_i ** 2).sum(-1))


SAMPLED, FULL = descent("sampled"), descent("full")
HETEROGENEITY = Trial(
    ONE_ROUND._replace(dims=({"d": 1, "n": 2, "K": 2, "M": 1, "B": 1},)),
    left=lambda xp, I: _heterogeneity(xp, I) / center_spread(xp, I),
    right=lambda xp, I: surrogate(xp, I).L ** 2,
    relation="<=",
)

# --- the variance of an update, by enumeration ---

EXAMPLES = "A c p c_z gamma x"
TINY = {"d": 1, "n": 2, "m": 2, "K": 2, "B": 1, "M": 1}
WIDE = space(EXAMPLES, (TINY,), edge=up_to(4))
DRAWS = space(EXAMPLES, (TINY, {"d": 2, "n": 2, "m": 2, "K": 2, "B": 1, "M": 2}), edge=up_to(3))
ONE_CLIENT = space("A c c_z gamma x", ({"d": 1, "n": 1, "m": 2, "K": 2, "B": 1},))
STEPS = space("A c c_z gamma x", tuple({"d": d, "n": 1, "m": 2, "K": 3, "B": 1} for d in (1, 2)), edge=up_to(3))


def example_probabilities(xp: Any, I: Any) -> Any:
    """Probabilities of a client's examples, which are equally likely."""
    return xp.array([f"1/{I.m}"] * I.m)


def gradients(xp: Any, I: Any, i: int) -> Any:
    """A_i(c_z - c) for every example z: the error of its gradient, at every x (c_iz = c_i + c_z - E c_z)."""
    return xp.stack([I.A[i] @ (I.c_z[z] - xp.mean(example_probabilities(xp, I), I.c_z)) for z in range(I.m)])


def G2(xp: Any, I: Any) -> Any:
    """G^2 of Assumption 3: the largest E_z||grad f(x; z) - grad f_i(x)||^2."""
    return xp.maximum(*(xp.mean(example_probabilities(xp, I), (gradients(xp, I, i) ** 2).sum(-1)) for i in range(I.n)))


def updates(xp: Any, I: Any, i: int, theta: Any) -> tuple[Any, Any]:
    """Every update that client i can send, with its probability."""
    draws, probability = xp.batch_sequences(example_probabilities(xp, I), len(theta), I.B)
    c = I.c[i] + I.c_z - xp.mean(example_probabilities(xp, I), I.c_z)[None]
    A = xp.stack([xp.stack([I.A[i]] * I.B)] * len(theta))
    return xp.each(lambda draw: xp.inner_loop(A, c[draw], I.x, I.gamma, theta), draws), probability


def variance(xp: Any, I: Any) -> Any:
    """E||q_gamma(x) - grad f~_gamma(x)||^2, every choice of M clients and of their mini-batches enumerated."""
    sent = [updates(xp, I, i, fedavg(I)) for i in range(I.n)]
    q = xp.concatenate([atoms for atoms, _ in sent])
    mass = xp.concatenate([I.p[i] * probability for i, (_, probability) in enumerate(sent)])
    mean = xp.mean(mass, q)
    draws, probability = xp.batch_sequences(mass, 1, I.M)
    return xp.expectation(probability, lambda draw: squared(q[draw[0]].sum(0) / I.M - mean), draws)


def client_variance(xp: Any, I: Any, i: int) -> Any:
    """V_i = sum_{j<K} tr((I - gamma A_i)^j C_i (I - gamma A_i)^j) / B."""
    noise, total = gradients(xp, I, i), 0
    for _ in range(I.K):
        total = total + xp.mean(example_probabilities(xp, I), (noise**2).sum(-1))
        noise = noise - I.gamma * (noise @ I.A[i])
    return total / I.B


def client_variances(xp: Any, I: Any) -> Any:
    """V_i of every client."""
    return xp.stack([client_variance(xp, I, i) for i in range(I.n)])


def decomposed(xp: Any, I: Any) -> Any:
    """(1/M)[E_i V_i + Var_i(Q_i A_i (x - c_i))]."""
    Q = xp.distortion(I.A, I.gamma, fedavg(I))
    sent = apply_each(Q @ I.A, I.x - I.c)
    between = ((sent - xp.mean(I.p, sent)) ** 2).sum(-1)
    return xp.mean(I.p, client_variances(xp, I) + between) / I.M


def _growth(xp: Any, I: Any) -> Any:
    """sum_{j<K} rho^{2j}, rho = max(|1 - gamma mu|, |1 - gamma L|)."""
    mu, L = extent(xp, I.A)
    return geometric_sum(xp.maximum((1 - I.gamma * mu) ** 2, (1 - I.gamma * L) ** 2), I.K)


def _beyond_two_over_L(xp: Any) -> list[Finding]:
    """In exact numbers: one client, gamma = 3 > 2/L, is enough to break the printed bound."""
    I = SimpleNamespace(
        A=exact.array([[["1"]]]), c=exact.array([["0"]]), p=exact.array(["1"]), c_z=exact.array([["1"], ["-1"]]),
        gamma=exact.rational(3), x=exact.array(["0"]), d=1, n=1, m=2, K=2, B=1, M=1,
    )  # fmt: skip
    value, bound = variance(exact, I), I.K * G2(exact, I)
    what = f"one client, A = 1, c_z = +-1, K = 2, gamma = 3: variance {value}, K G^2 = {bound}"
    return [Finding(value > bound and value == client_variance(exact, I, 0), 0.0, what)]


def _deviation(xp: Any, I: Any) -> Any:
    """E||s_2||^2, s_2 = g_2 - E[g_2]."""
    g, probability = updates(xp, I, 0, (0, 1))
    mean = xp.mean(probability, g)
    return xp.mean(probability, xp.stack([squared(v - mean) for v in g]))


def _deviations(xp: Any, I: Any) -> Any:
    """q - E[q] for every sequence of mini-batches, and E||q - E q||^2."""
    q, probability = updates(xp, I, 0, fedavg(I))
    deviations = q - xp.mean(probability, q)[None]
    return xp.concatenate([deviations.ravel(), xp.stack([xp.mean(probability, (deviations**2).sum(-1))])])


def _increments(xp: Any, I: Any) -> Any:
    """sum_k (I - gamma A)^{K-k} xi_k for every sequence, and sum_k E||(I - gamma A)^{K-k} xi_k||^2."""
    draws, _ = xp.batch_sequences(example_probabilities(xp, I), I.K, I.B)
    xi = -gradients(xp, I, 0)
    step = xp.eye(I.d) - I.gamma * I.A[0]
    propagated = [xi @ xp.power(step, I.K - 1 - k) for k in range(I.K)]
    sums = xp.each(lambda draw: sum(propagated[k][draw[k]].sum(0) / I.B for k in range(I.K)), draws)
    total = sum(xp.mean(example_probabilities(xp, I), (v**2).sum(-1)) for v in propagated) / I.B
    return xp.concatenate([sums.ravel(), xp.stack([total])])


# --- Assumption 3 ---

RANDOM_HESSIANS = space("A_z c_z p_z x", ({"d": 1, "m": 2},))
ANY_HESSIANS = space("A_z c_z p_z x", ({"d": 1, "m": 2}, {"d": 2, "m": 3}))
ONE_HESSIAN = space("A c_z p_z x", ({"d": 1, "n": 1, "m": 2}, {"d": 2, "n": 1, "m": 3}))


def gradient_variance(xp: Any, I: Any, x: Any) -> Any:
    """E_z||grad f(x; z) - grad f_i(x)||^2."""
    g = xp.stack([I.A_z[z] @ (x - I.c_z[z]) for z in range(I.m)])
    return xp.mean(I.p_z, xp.stack([squared(v - xp.mean(I.p_z, g)) for v in g]))


def _same_hessian(xp: Any, I: Any) -> Any:
    return SimpleNamespace(A_z=xp.stack([I.A[0]] * I.m), c_z=I.c_z, p_z=I.p_z, m=I.m)


def _far(xp: Any, I: Any) -> Any:
    """The noise at c_i + x and c_i - x together."""
    c = client_of(xp, I)[1]
    return gradient_variance(xp, I, c + I.x) + gradient_variance(xp, I, c - I.x)


def _grown(xp: Any, I: Any) -> Any:
    """Twice the noise at c_i and twice E||(A_z - A_i) x||^2."""
    A, c = client_of(xp, I)
    spread = xp.mean(I.p_z, xp.stack([squared((A_z - A) @ I.x) for A_z in I.A_z]))
    return 2 * gradient_variance(xp, I, c) + 2 * spread


# --- the surrogate itself ---

ONE_LOSS, LOSSES = (space("A c p gamma x", ({"d": d, "n": d, "K": K},)) for d, K in ((1, 2), (2, 5)))


def losses(xp: Any, I: Any, gamma: Any) -> tuple[Any, Any]:
    """f(x), without the offsets tau_i, and f~_gamma(x)."""
    Q = xp.distortion(I.A, gamma, fedavg(I))
    return tuple(
        xp.mean(I.p, xp.stack([quadratic(H[i], I.c[i], I.x) for i in range(I.n)]))
        for H in (I.A, [Q[i] @ I.A[i] for i in range(I.n)])
    )


def _between(xp: Any, I: Any) -> tuple[Any, Any]:
    """(1 - (K-1) gamma L / 2) f <= f~ / K <= f."""
    f, surrogate_f = losses(xp, I, I.gamma)
    return xp.stack([(1 - (I.K - 1) * I.gamma * extent(xp, I.A)[1] / 2) * f, surrogate_f / I.K]), xp.stack(
        [surrogate_f / I.K, f]
    )


def _not_uniform(xp: Any) -> list[Finding]:
    """In exact numbers: sup_x |f~_gamma / K - f| is infinite for every gamma > 0: it is n at gamma = 1/n, x = 2n."""
    findings = []
    for n in (10, 1000, 10**6):
        I = SimpleNamespace(
            A=exact.array([[["1"]]]), c=exact.array([["0"]]), p=exact.array(["1"]), x=exact.array([2 * n]), n=1, K=2
        )
        f, surrogate_f = losses(exact, I, exact.rational(f"1/{n}"))
        gap = f - surrogate_f / 2
        findings.append(Finding(gap == n, 0.0, f"A = 1, c = 0, K = 2, gamma = 1/{n}, x = {2 * n}: f - f~/2 = {gap}"))
    return findings


def hessian_range(edge: Any, *dims: dict[str, int]) -> Trial:
    """mu_gamma <= lambda_min(E[Q_i A_i]) and lambda_max(E[Q_i A_i]) <= L_gamma."""

    def sides(xp: Any, I: Any) -> tuple[Any, Any]:
        mu, L = extent(xp, I.A)
        Q = xp.distortion(I.A, I.gamma, fedavg(I))
        eigenvalues = xp.eigvalsh(xp.mean(I.p, xp.stack([Q[i] @ I.A[i] for i in range(I.n)])))
        low, high = phi(I.K, mu, I.gamma), phi(I.K, L, I.gamma)
        return xp.stack([low, eigenvalues[-1]]), xp.stack([eigenvalues[0], high])

    return Trial(space("A p gamma", dims, edge), lambda xp, I: sides(xp, I)[0], lambda xp, I: sides(xp, I)[1], "<=")


CLAIMS = (
    Claim(
        id="S4",
        label="Section 7.1",
        line=779,
        statement=r"as $\gamma \to 0$, $\tilde f_\gamma$ converges to $f$, uniformly on $\mathbb{R}^d$",
        trial=(
            Trial(
                ONE_LOSS,
                left=lambda xp, I: losses(xp, I, 0 * I.gamma)[1],
                right=lambda xp, I: losses(xp, I, 0 * I.gamma)[0],
                relation="==",
            ),
        ),
        expected="FALSE",
        corrected=r"$(1 - (K-1)\gamma L/2)\, f(x) \le \tilde f_\gamma(x)/K \le f(x)$ for $0 \le \gamma \le 1/L$: the limit is "
        r"$K f$, and uniform on bounded sets or relative to $f$, not on $\mathbb{R}^d$",
        correction=(
            Trial(LOSSES, lambda xp, I: _between(xp, I)[0], lambda xp, I: _between(xp, I)[1], "<="),
            Inspection(_not_uniform),
        ),
        note="f without the offsets tau_i. False twice: the limit lacks a factor K, and f - f~/K is of order "
        "gamma ||x||^2, unbounded for every gamma > 0.",
    ),
    Claim(
        id="A3a",
        label="assm3",
        line=790,
        statement=r"$\mathbb{E}_z\|\nabla f(x; z) - \nabla f_i(x)\|^2 \le G^2$ for all $x$: the noise at $x$ is at most that "
        r"at $c_i$",
        trial=(
            Trial(
                RANDOM_HESSIANS,
                left=lambda xp, I: gradient_variance(xp, I, I.x),
                right=lambda xp, I: gradient_variance(xp, I, client_of(xp, I)[1]),
                relation="<=",
            ),
        ),
        expected="NEEDS",
        repair="assumption",
        corrected=r"of quadratics exactly those with $A_z = A_i$ almost surely satisfy it, with "
        r"$G^2 = \mathbb{E}\|A_i(c_z - c_i)\|^2$",
        correction=(
            Trial(
                ONE_HESSIAN,
                left=lambda xp, I: gradient_variance(xp, _same_hessian(xp, I), I.x),
                right=lambda xp, I: xp.mean(
                    I.p_z, xp.stack([squared(I.A[0] @ (c - xp.mean(I.p_z, I.c_z))) for c in I.c_z])
                ),
                relation="==",
            ),
            Trial(ANY_HESSIANS, _far, _grown, "=="),
        ),
        note="The second trial of the correction: the noise grows like E||(A_z - A_i)(x - c_i)||^2. So least squares "
        "with varying features is excluded.",
    ),
    Claim(
        id="L17",
        label="lem:var_bound",
        line=795,
        statement=r"for all $\gamma \ge 0$, $\mathbb{E}\|q_\gamma(x) - \nabla\tilde f_\gamma(x)\|^2 \le KG^2/(MB)$",
        trial=(Trial(WIDE, variance, lambda xp, I: I.K * G2(xp, I) / (I.M * I.B), "<="),),
        expected="FALSE",
        corrected=r"$\mathbb{E}\|q - \nabla\tilde f\|^2 = \frac1M[\mathbb{E}_i V_i + \mathrm{Var}_i(Q_iA_i(x-c_i))]$, "
        r"$V_i \le \frac{G^2}{B}\sum_{j<K}\rho^{2j}$, $\rho = \max(|1-\gamma\mu|, |1-\gamma L|)$; with full participation "
        r"it is at most $\frac{KG^2}{B}\sum_i p_i^2$ for $\gamma \le 2/L$",
        correction=(
            Trial(DRAWS, variance, decomposed, "=="),
            Trial(
                space(EXAMPLES, ({"d": 2, "n": 2, "m": 2, "K": 2, "B": 1},), edge=up_to(2)),
                left=lambda xp, I: xp.total(I.p * I.p * client_variances(xp, I)) / G2(xp, I),
                right=lambda xp, I: I.K * xp.total(I.p * I.p) / I.B,
                relation="<=",
            ),
            Trial(
                space(EXAMPLES, ({"d": 2, "n": 1, "m": 2, "K": 3, "B": 1},), edge=up_to(4)),
                left=lambda xp, I: client_variance(xp, I, 0) / G2(xp, I),
                right=lambda xp, I: _growth(xp, I) / I.B,
                relation="<=",
                pursue=False,
            ),
            Inspection(_beyond_two_over_L),
        ),
        note="False twice: the variance of client sampling is missing, and gamma > 2/L breaks it for one client.",
    ),
    Claim(
        id="L17p",
        label="lem:var_bound (proof)",
        line=2124,
        statement=r"$s_k = g_k - \mathbb{E}[g_k]$ are martingale differences, $\mathbb{E}\|s_k\|^2 \le G^2/B$",
        trial=(Trial(ONE_CLIENT, _deviation, lambda xp, I: G2(xp, I) / I.B, "<="),),
        expected="FALSE",
        corrected=r"$q - \mathbb{E}q = \sum_k (I-\gamma A_i)^{K-k}\xi_k$ with $\xi_k = g_k - \mathbb{E}[g_k|S_{:k-1}]$, whose "
        r"terms are uncorrelated",
        correction=(Trial(STEPS, _deviations, _increments, "=="),),
        note="The s_k are negatively correlated, so the sum is within K G^2/B for gamma <= 2/L all the same. Misprints: "
        "sum_k E||s_{1:k}||^2 should be sum_k E||s_k||^2; a square is missing two lines on.",
    ),
    Claim(
        id="L18",
        label="lem:ft_params",
        line=804,
        statement=r"$\tilde f_\gamma$ is $\phi_{K,\mu}(\gamma)$-strongly convex and $\phi_{K,L}(\gamma)$-smooth",
        trial=(hessian_range(up_to(3), {"d": 1, "n": 2, "K": 2}),),
        expected="NEEDS",
        repair="assumption",
        corrected=r"for $0 \le \gamma \le 1/L$, or any $\gamma \ge 0$ if $K$ is odd",
        correction=(
            hessian_range(up_to(1), {"d": 2, "n": 2, "K": 2}),
            hessian_range(up_to(5), {"d": 1, "n": 2, "K": 3}),
        ),
    ),
    Claim(
        id="L19",
        label="lem:descent_step",
        line=819,
        statement=r"$\eta_t \le \mu_\gamma/L_\gamma^2$ implies $\mathbb{E}\|x_{t+1}-x_\gamma^*\|^2 \le "
        r"(1-\eta_t\mu_\gamma)\mathbb{E}\|x_t-x_\gamma^*\|^2 + \eta_t^2\frac{KG^2}{MB}$",
        trial=(descent("printed"),),
        expected="FALSE",
        assumptions=("0 <= gamma <= 1/L", "additive gradient noise"),
        corrected=r"clients sampled: $\eta \le \frac{1}{2L_\gamma}$ implies $\mathbb{E}\|x_{t+1}-x_\gamma^*\|^2 \le "
        r"(1-\eta\mu_\gamma)\|x_t-x_\gamma^*\|^2 + 2\eta^2\sigma_*^2$, $\sigma_*^2 = \frac1M"
        r"(\mathbb{E}_i\|Q_iA_i(x_\gamma^*-c_i)\|^2 + \mathbb{E}_iV_i) \le \frac1M(L_\gamma^2\sigma_c^2 + KG^2/B)$; "
        r"full participation: as printed, with $\sum_i p_i^2$ for $1/M$, for $\eta \le 1/L_\gamma$, and with "
        r"$(1-\eta\mu_\gamma)^2$ for $\eta \le 2/(L_\gamma+\mu_\gamma)$",
        correction=(SAMPLED._replace(pursue=False), FULL._replace(pursue=False), HETEROGENEITY),
        note="The printed proof uses lem:var_bound, which leaves out client sampling. The two repairs are pursued under "
        "S5, which they settle.",
    ),
)
