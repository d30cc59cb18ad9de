"""Section 3: LocalUpdate as SGD on a surrogate loss, and MAML."""

from typing import Any

from theory import exact
from theory.claims.claim import Claim, Finding, Inspection, Trial
from theory.claims.spaces import space, up_to


def client_of(xp: Any, I: Any) -> tuple[Any, Any]:
    """A_i = E[A_z] and c_i = A_i^{-1} E[A_z c_z] of a client with examples A_z, c_z."""
    A = xp.mean(I.p_z, I.A_z)
    return A, xp.solve(A, xp.mean(I.p_z, xp.stack([I.A_z[z] @ I.c_z[z] for z in range(I.m)])))


def quadratic(A: Any, c: Any, x: Any) -> Any:
    """(x - c)^T A (x - c) / 2."""
    return (x - c) @ A @ (x - c) / 2


def client_loss(xp: Any, I: Any, x: Any) -> Any:
    """f_i(x) = E_z[f(x; z)]."""
    return xp.mean(I.p_z, xp.stack([quadratic(I.A_z[z], I.c_z[z], x) for z in range(I.m)]))


def offset(xp: Any, I: Any, factor: Any) -> Any:
    """E[c_z^T A_z c_z] / 2 - factor c_i^T A_i c_i; tau_i has factor 1/2, the printed proof 1."""
    A, c = client_of(xp, I)
    second = xp.mean(I.p_z, xp.stack([I.c_z[z] @ I.A_z[z] @ I.c_z[z] for z in range(I.m)]))
    return second / 2 - factor * (c @ A @ c)


def expected_message(xp: Any, I: Any, theta: Any) -> Any:
    """E[InnerLoop(i, x, gamma, Theta)], by enumerating every sequence of mini-batches."""
    draws, probability = xp.batch_sequences(I.p_z, len(theta), I.B)
    return xp.expectation(probability, lambda draw: xp.inner_loop(I.A_z[draw], I.c_z[draw], I.x, I.gamma, theta), draws)


def unit(k: int) -> tuple[int, ...]:
    """Theta_k."""
    return (0,) * (k - 1) + (1,)


def surrogate_gradient(xp: Any, I: Any) -> Any:
    """Q_i grad f_i(x)."""
    A, c = client_of(xp, I)
    return xp.distortion(A, I.gamma, I.theta) @ (A @ (I.x - c))


EXAMPLES = space(
    "A_z c_z p_z gamma theta x",
    (
        {"d": 1, "m": 2, "K": 2, "B": 1},
        {"d": 2, "m": 2, "K": 2, "B": 2},
        {"d": 2, "m": 3, "K": 3, "B": 1},
    ),
    edge=up_to(3),
)
SMALL = space("A_z c_z p_z gamma x", ({"d": 1, "m": 1}, {"d": 2, "m": 3}))
SAMPLED = space(
    "A c p gamma theta x", ({"d": 1, "n": 2, "K": 2, "M": 2}, {"d": 2, "n": 3, "K": 2, "M": 3}), edge=up_to(2)
)


def expected_mean_message(xp: Any, I: Any) -> Any:
    """E[q_t] over M clients drawn iid from P, each a gradient descent client; every draw enumerated."""
    draws, probability = xp.batch_sequences(I.p, 1, I.M)
    messages = xp.stack(
        [
            xp.inner_loop(xp.stack([I.A[i][None]] * I.K), xp.stack([I.c[i][None]] * I.K), I.x, I.gamma, I.theta)
            for i in range(I.n)
        ]
    )
    return xp.expectation(probability, lambda draw: messages[draw[0]].sum(0) / I.M, draws)


def mean_surrogate_gradient(xp: Any, I: Any) -> Any:
    """grad f~(x) = E_i[Q_i A_i (x - c_i)]."""
    Q = xp.distortion(I.A, I.gamma, I.theta)
    return xp.mean(I.p, xp.stack([Q[i] @ (I.A[i] @ (I.x - I.c[i])) for i in range(I.n)]))


DISTORTED = space("A c gamma theta x", tuple({"d": d, "n": 1, "K": K} for d, K in ((1, 2), (2, 3))), edge=up_to(2))
SCALAR = space("A c gamma theta x", ({"d": 1, "n": 1, "K": 1},), edge=up_to(1))
TWO_EXAMPLES = space("A_z c_z gamma x", ({"d": 1, "m": 2}, {"d": 2, "m": 2}))


def surrogate_form(xp: Any, I: Any, x: Any) -> Any:
    """(x - c)^T Q A (x - c) of the first client."""
    return (x - I.c[0]) @ (xp.distortion(I.A[0], I.gamma, I.theta) @ (I.A[0] @ (x - I.c[0])))


def change(xp: Any, I: Any, of: Any) -> Any:
    """of(x + c/2) - of(x - c/2)."""
    return of(I.x + I.c[0] / 2) - of(I.x - I.c[0] / 2)


def predicted_change(xp: Any, I: Any) -> Any:
    """c^T Q A (x - c): what the gradient of Theorem 1 says of that difference."""
    return I.c[0] @ (xp.distortion(I.A[0], I.gamma, I.theta) @ (I.A[0] @ (I.x - I.c[0])))


def example_gradient(I: Any, z: int) -> Any:
    """The gradient of example z at x."""
    return I.A_z[z] @ (I.x - I.c_z[z])


def first_gradient(xp: Any, I: Any) -> Any:
    """E[g_1]: either of two examples, equally likely."""
    return (example_gradient(I, 0) + example_gradient(I, 1)) / 2


def second_reshuffled_gradient(xp: Any, I: Any) -> Any:
    """E[g_2] over the two orders of one epoch, each by InnerLoop with Theta_2."""
    orders = [
        xp.inner_loop(I.A_z[order][:, None], I.c_z[order][:, None], I.x, I.gamma, (0, 1))
        for order in (slice(None), slice(None, None, -1))
    ]
    return (orders[0] + orders[1]) / 2


def adam_drift(x: Any) -> Any:
    """E[q / (|q| + 2)] for clients A = 1 with c = 0 (2/3) and c = 5 (1/3), M = 1: Adam with b1 = b2 = 0, eps = 2."""
    messages = [(exact.rational("2/3"), x), (exact.rational("1/3"), x - 5)]
    return exact.total([p * q / (abs(q) + 2) for p, q in messages])


def _adaptive_server(xp: Any) -> list[Finding]:
    """The surrogate minimiser is 5/3; Adam's mean step vanishes at 1 and not there."""
    at_minimiser, at_one = adam_drift(exact.rational("5/3")), adam_drift(exact.rational(1))
    what = (
        "P = (2/3: A = 1, c = 0; 1/3: A = 1, c = 5), K = M = 1, server Adam (b1 = b2 = 0, eps = 2): mean step "
        f"{at_minimiser} at the surrogate minimiser 5/3, {at_one} at x = 1"
    )
    one_client = (
        "full participation of one client with these two as its examples, B = K = 1: the same mean step "
        f"{at_minimiser} at 5/3, because its mini-batches are random"
    )
    return [Finding(at_minimiser == 0, float(at_minimiser), found) for found in (what, one_client)]


def _linear_servers(xp: Any) -> list[Finding]:
    """SGD's and momentum's mean step vanishes at 5/3; without randomness all servers end at the minimiser."""
    mean = exact.rational("2/3") * exact.rational("5/3") + exact.rational("1/3") * (exact.rational("5/3") - 5)
    findings = [Finding(mean == 0, abs(float(mean)), f"SGD and momentum: mean step {mean} at 5/3")]
    for server in ("sgd", "momentum", "adam", "yogi"):
        gap = xp.server_limit_gap(server)
        findings.append(
            Finding(gap < 1e-8, gap, f"{server}, full participation, full gradients: {gap:.1e} from the minimiser")
        )
    return findings


CLAIMS = (
    Claim(
        id="L1",
        label="lem:f_i_loss",
        line=253,
        statement=r"$f_i(x) = \frac12 \|A_i^{1/2}(x - c_i)\|^2 + \tau_i$ for a constant $\tau_i$",
        trial=(
            Trial(
                SMALL,
                left=lambda xp, I: client_loss(xp, I, I.x) - client_loss(xp, I, 0 * I.x),
                right=lambda xp, I: quadratic(*client_of(xp, I), I.x) - quadratic(*client_of(xp, I), 0 * I.x),
                relation="==",
            ),
        ),
        expected="HOLDS",
        assumptions=("A_i invertible",),
    ),
    Claim(
        id="L1p",
        label="lem:f_i_loss (proof)",
        line=1327,
        statement=r"$\tau_i = -c_i^\top A_i c_i + \frac12 \mathbb{E}[c_z^\top A_z c_z]$",
        trial=(
            Trial(
                SMALL,
                left=lambda xp, I: client_loss(xp, I, I.x) - quadratic(*client_of(xp, I), I.x),
                right=lambda xp, I: offset(xp, I, 1),
                relation="==",
            ),
        ),
        expected="FALSE",
        corrected=r"$\tau_i = \frac12 \mathbb{E}[c_z^\top A_z c_z] - \frac12 c_i^\top A_i c_i$",
        correction=(
            Trial(
                SMALL,
                left=lambda xp, I: client_loss(xp, I, I.x) - quadratic(*client_of(xp, I), I.x),
                right=lambda xp, I: offset(xp, I, xp.array("1/2")[()]),
                relation="==",
            ),
        ),
    ),
    Claim(
        id="L2",
        label="lem:grad_recurrence",
        line=300,
        statement=r"$\mathbb{E}[g_{k+1}] = (I - \gamma A_i)\,\mathbb{E}[g_k]$",
        trial=(
            Trial(
                EXAMPLES,
                left=lambda xp, I: xp.stack([expected_message(xp, I, unit(k + 1)) for k in range(1, I.K)]),
                right=lambda xp, I: xp.stack(
                    [
                        (xp.eye(I.d) - I.gamma * client_of(xp, I)[0]) @ expected_message(xp, I, unit(k))
                        for k in range(1, I.K)
                    ]
                ),
                relation="==",
            ),
        ),
        expected="HOLDS",
        assumptions=("S_k independent of S_1, ..., S_{k-1}",),
        note="For every real gamma; invertibility of A_i is only needed for c_i to exist.",
    ),
    Claim(
        id="T1",
        label="thm:sgd_objective",
        line=322,
        statement=r"$\mathbb{E}[\mathrm{InnerLoop}(i, x, \gamma, \Theta)] = \nabla\tilde f_i(x, \gamma, \Theta) "
        r"= Q_i(\gamma, \Theta)\nabla f_i(x)$",
        trial=(
            Trial(
                EXAMPLES, left=lambda xp, I: expected_message(xp, I, I.theta), right=surrogate_gradient, relation="=="
            ),
            Inspection(lambda xp: xp.monte_carlo_theorem_1()),
        ),
        expected="HOLDS",
        assumptions=("A_i invertible",),
        note="With the square that eq:surrogate_i lacks; for every real gamma.",
    ),
    Claim(
        id="T1b",
        label="Section 3",
        line=341,
        statement=r"$\mathbb{E}[q_t] = \nabla\tilde f(x_t, \gamma, \Theta)$",
        trial=(Trial(SAMPLED, left=expected_mean_message, right=mean_surrogate_gradient, relation="=="),),
        expected="HOLDS",
        assumptions=("every sampled client is marginally distributed as P",),
        note="So for iid sampling, or without replacement from a uniform P. Without replacement from P = (3/4, 1/4), "
        "M = 2 gives (q_1 + q_2)/2 instead of 3/4 q_1 + 1/4 q_2.",
    ),
    Claim(
        id="D3",
        label="eq:Q_matrix",
        line=310,
        statement=r"$Q_i(\gamma, \Theta) := \sum_{k=1}^{K(\Theta)} \theta_k (I - \gamma A_i)^{k-1}$",
        trial=(
            Trial(
                DISTORTED,
                left=lambda xp, I: xp.distortion(I.A[0], I.gamma, I.theta),
                right=lambda xp, I: sum(I.theta[k] * xp.power(xp.eye(I.d) - I.gamma * I.A[0], k) for k in range(I.K)),
                relation="==",
            ),
        ),
        expected="DEFINITION",
        definition=True,
        note=r"Printed with $K(\theta)$ for $K(\Theta)$.",
    ),
    Claim(
        id="D4",
        label="eq:surrogate_i",
        line=314,
        statement=r"$\tilde f_i(x, \gamma, \Theta) := \frac12 \|(Q_i A_i)^{1/2}(x - c_i)\|$",
        trial=(
            Trial(
                SCALAR,
                left=lambda xp, I: change(xp, I, lambda x: xp.sqrt(surrogate_form(xp, I, x)) / 2),
                right=lambda xp, I: predicted_change(xp, I),
                relation="==",
            ),
        ),
        expected="TYPO",
        repair="typo",
        assumptions=("Q_i A_i positive semidefinite, for the root",),
        corrected=r"$\tilde f_i = \frac12 (x - c_i)^\top Q_i A_i (x - c_i)$: the square is missing",
        correction=(
            Trial(
                DISTORTED,
                left=lambda xp, I: change(xp, I, lambda x: surrogate_form(xp, I, x) / 2),
                right=lambda xp, I: predicted_change(xp, I),
                relation="==",
            ),
        ),
        note=r"Tried by its gradient, which Theorem 1 says is $Q_i A_i (x - c_i)$: "
        r"$\tilde f(x + c/2) - \tilde f(x - c/2)$ of a quadratic is its slope at $x$ along $c$.",
    ),
    Claim(
        id="L2r",
        label="Section 2.2 (epochs)",
        line=232,
        statement=r"the results extend easily to epochs of mini-batch SGD over the client's finite dataset",
        trial=(
            Trial(
                TWO_EXAMPLES,
                left=second_reshuffled_gradient,
                right=lambda xp, I: (xp.eye(I.d) - I.gamma * (I.A_z[0] + I.A_z[1]) / 2) @ first_gradient(xp, I),
                relation="==",
            ),
        ),
        expected="FALSE",
        corrected=r"for two examples and one epoch, $\mathbb{E}[g_2] = (I - \gamma A_i)\,\mathbb{E}[g_1] - "
        r"\frac\gamma4 (A_2 - A_1)(\nabla f(x; z_1) - \nabla f(x; z_2))$, and the client's surrogate minimiser is no longer $c_i$",
        correction=(
            Trial(
                TWO_EXAMPLES,
                left=second_reshuffled_gradient,
                right=lambda xp, I: (
                    (xp.eye(I.d) - I.gamma * (I.A_z[0] + I.A_z[1]) / 2) @ first_gradient(xp, I)
                    - I.gamma / 4 * (I.A_z[1] - I.A_z[0]) @ (example_gradient(I, 0) - example_gradient(I, 1))
                ),
                relation="==",
            ),
        ),
        note="A judgement on a loose sentence: without replacement, Lemma grad_recurrence itself fails.",
    ),
    Claim(
        id="T1c",
        label="Section 3 (outer optimizers)",
        line=346,
        statement="the outer optimizer impacts the speed of convergence, not the point that LocalUpdate converges to",
        trial=(Inspection(_adaptive_server),),
        expected="FALSE",
        corrected="true of servers that are linear in $q_t$ (SGD, momentum) or whose scaling uses earlier rounds "
        r"only, and of every server if $q_t$ is not random: full participation with full gradients. Where clients or "
        r"mini-batches are sampled, an adaptive server stops where $\mathbb{E}[D(q)q] = 0$, not where $\mathbb{E}[q] = 0$",
        correction=(Inspection(_linear_servers),),
    ),
)
