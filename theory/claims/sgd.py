"""Section 3: LocalUpdate as SGD on a surrogate loss, and MAML."""

from types import SimpleNamespace
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


def descended(xp: Any, I: Any, k: int) -> Any:
    """grad f_i(X_k(x)) = (I - gamma A)^k A (x - c) of the first client, after k steps of gradient descent."""
    return xp.power(xp.eye(I.d) - I.gamma * I.A[0], k) @ (I.A[0] @ (I.x - I.c[0]))


def repeated(xp: Any, I: Any, times: int) -> tuple[Any, Any]:
    """A gradient descent client's mini-batches: its one example, again and again."""
    return xp.stack([I.A[0][None]] * times), xp.stack([I.c[0][None]] * times)


def maml_gradient(xp: Any, I: Any) -> Any:
    """grad m_K(x) by differentiating through the K steps."""
    return xp.maml_gradient(*repeated(xp, I, I.K + 1), I.x, I.gamma, I.K)


def maml_twice(xp: Any, I: Any) -> Any:
    """The MAML gradient and the Theta_{2K+1} message of the same client."""
    A, c = repeated(xp, I, 2 * I.K + 1)
    return xp.stack([maml_gradient(xp, I), xp.inner_loop(A, c, I.x, I.gamma, unit(2 * I.K + 1))])


def expected_maml(xp: Any, I: Any) -> Any:
    """E[grad m_K(x)] of an SGD client: mini-batches enumerated, the outer loss on the whole client."""
    A, c = client_of(xp, I)
    draws, probability = xp.batch_sequences(I.p_z, I.K, I.B)

    def gradient(draw):
        # the outer example (A_i, c_i) has the client's mean gradient; B copies keep the batch axis
        A_outer, c_outer = xp.stack([A] * I.B), xp.stack([c] * I.B)
        A_all = xp.concatenate([I.A_z[draw], A_outer[None]])
        c_all = xp.concatenate([I.c_z[draw], c_outer[None]])
        return xp.maml_gradient(A_all, c_all, I.x, I.gamma, I.K)

    return xp.expectation(probability, gradient, draws)


def predicted_maml(xp: Any, I: Any) -> Any:
    """T^K(A)(x-c) - (gamma^2/B) sum_k (I-gamma A)^{k-1} E[A_z T^{K-k}(A) A_z (c_z - c)] (see `theory.maml`)."""
    A, c = client_of(xp, I)
    powers = [A]
    for _ in range(I.K):
        M = powers[-1]
        spread = xp.mean(I.p_z, xp.stack([I.A_z[z] @ M @ I.A_z[z] for z in range(I.m)]))
        AMA = A @ M @ A
        powers.append(M - I.gamma * (A @ M + M @ A) + I.gamma**2 * (AMA + (spread - AMA) / I.B))
    gradient = powers[I.K] @ (I.x - c)
    for k in range(1, I.K + 1):
        pull = xp.mean(
            I.p_z, xp.stack([I.A_z[z] @ (powers[I.K - k] @ (I.A_z[z] @ (I.c_z[z] - c))) for z in range(I.m)])
        )
        gradient = gradient - I.gamma**2 / I.B * xp.power(xp.eye(I.d) - I.gamma * A, k - 1) @ pull
    return gradient


def _maml_bias(xp: Any) -> list[Finding]:
    """In exact numbers: SGD-MAML's expectation is not Theta_{2K+1}'s, and vanishes with the spread of A_z."""
    findings = []
    for A_z, biased in ((["1", "3"], True), (["2", "2"], False)):
        I = SimpleNamespace(
            A_z=exact.array([[[a]] for a in A_z]), c_z=exact.array([["0"], ["2"]]), p_z=exact.array(["1/2", "1/2"]),
            x=exact.array(["1"]), gamma=exact.rational("1/4"), d=1, m=2, K=1, B=1,
        )  # fmt: skip
        A, c = client_of(exact, I)
        deterministic = exact.power(exact.eye(1) - I.gamma * A, 2) @ A @ (I.x - c)
        bias = (expected_maml(exact, I) - deterministic)[0]
        findings.append(Finding((bias != 0) == biased, 0.0, f"A_z = {', '.join(A_z)}: bias {bias}"))
    return findings


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
STEPS = space("A c gamma x", tuple({"d": d, "n": 1, "K": K} for d, K in ((1, 1), (2, 2), (3, 4))), edge=up_to(3))
SGD_MAML = space(
    "A_z c_z p_z gamma x",
    ({"d": 1, "m": 2, "K": 1, "B": 1}, {"d": 2, "m": 2, "K": 2, "B": 2}, {"d": 2, "m": 3, "K": 3, "B": 1}),
    edge=up_to(3, 2),
)
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
        id="T2",
        label="thm:maml",
        line=372,
        statement=r"$\nabla m_K^i(x) = \mathbb{E}[\mathrm{InnerLoop}(x, \gamma, \Theta_{2K+1})] "
        r"= \nabla\tilde f_i(x, \gamma, \Theta_{2K+1})$ for gradient descent clients",
        trial=(
            Trial(
                STEPS,
                left=maml_twice,
                right=lambda xp, I: xp.stack([descended(xp, I, 2 * I.K)] * 2),
                relation="==",
            ),
        ),
        expected="HOLDS",
        assumptions=("clients take full gradient steps",),
        note="For every real gamma.",
    ),
    Claim(
        id="T2b",
        label="Section 3.1",
        line=383,
        statement="with SGD clients the product of Hessian and gradient estimates is biased and the correspondence "
        "breaks down",
        trial=(
            Trial(SGD_MAML, left=expected_maml, right=predicted_maml, relation="=="),
            Inspection(_maml_bias),
        ),
        expected="HOLDS",
        note="The bias is of order gamma^2 / B and zero iff A_z = A_i almost surely; the trial checks its closed form.",
    ),
)
