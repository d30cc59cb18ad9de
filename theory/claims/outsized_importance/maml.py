"""Section 3.1: MAML as a local update method."""

from types import SimpleNamespace
from typing import Any

from theory import exact
from theory.claims.claim import Claim, Finding, Inspection, Trial
from theory.claims.outsized_importance.sgd import client_of, expected_mean_message, mean_surrogate_gradient, unit
from theory.claims.spaces import space, up_to


def descended(xp: Any, I: Any, k: int) -> Any:
    """grad f_i(X_k(x)) = (I - gamma A)^k A (x - c) of the first client, after k steps of gradient descent."""
    return xp.power(xp.eye(I.d) - I.gamma * I.A[0], k) @ (I.A[0] @ (I.x - I.c[0]))


def repeated(xp: Any, I: Any, times: int) -> tuple[Any, Any]:
    """A gradient descent client's mini-batches: its one example, again and again."""
    return xp.stack([I.A[0][None]] * times), xp.stack([I.c[0][None]] * times)


def maml_gradient(xp: Any, I: Any) -> Any:
    """grad m_K(x) by differentiating through the K steps."""
    return xp.maml_gradient(*repeated(xp, I, I.K + 1), I.x, I.gamma, I.K)


def gradient_message(xp: Any, I: Any, k: int) -> Any:
    """g_k of a gradient descent client: InnerLoop with Theta_k, the gradient at X_{k-1}."""
    return xp.inner_loop(*repeated(xp, I, k), I.x, I.gamma, unit(k))


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


def example_gradient(xp: Any, I: Any, z: int) -> Any:
    """grad_x f(X_K(x); z) of one outer example z, after K gradient steps on the client: (I-gA)^K A_z (X_K - c_z)."""
    A, c = client_of(xp, I)
    contraction = xp.power(xp.eye(I.d) - I.gamma * A, I.K)
    return contraction @ (I.A_z[z] @ (c + contraction @ (I.x - c) - I.c_z[z]))


def theta_of(xp: Any, I: Any) -> Any:
    """The instance with Theta_{2K+1}."""
    weights = xp.array(unit(2 * I.K + 1))
    return SimpleNamespace(**{**vars(I), "theta": weights, "K": 2 * I.K + 1})


def _maml_bias(xp: Any) -> list[Finding]:
    """In exact numbers: SGD-MAML's expectation is not Theta_{2K+1}'s, unless the A_z are all the same."""
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


STEPS = space("A c gamma x", tuple({"d": d, "n": 1, "K": K} for d, K in ((1, 1), (2, 2), (3, 4))), edge=up_to(3))
SCALAR = space("A c gamma x", ({"d": 1, "n": 1, "K": 1}, {"d": 1, "n": 1, "K": 3}), edge=up_to(1))
SGD_CLIENTS = space(
    "A_z c_z p_z gamma x",
    ({"d": 1, "m": 2, "K": 1, "B": 1}, {"d": 2, "m": 2, "K": 2, "B": 2}, {"d": 2, "m": 3, "K": 3, "B": 1}),
    edge=up_to(3, 2),
)
OUTER = space("A_z c_z p_z gamma x", ({"d": 1, "m": 2, "K": 1}, {"d": 2, "m": 2, "K": 2}), edge=up_to(1))
SAMPLED = space("A c p gamma x", ({"d": 1, "n": 2, "K": 1, "M": 2},), edge=up_to(1))

CLAIMS = (
    Claim(
        id="T2o",
        label="eq:maml_output",
        line=360,
        statement=r"$\mathbb{E}[q^i(x)] = \nabla m_K(x; z)$",
        trial=(
            Trial(
                OUTER,
                left=lambda xp, I: xp.mean(I.p_z, xp.stack([example_gradient(xp, I, z) for z in range(I.m)])),
                right=lambda xp, I: example_gradient(xp, I, 0),
                relation="==",
            ),
        ),
        expected="TYPO",
        repair="typo",
        corrected=r"$\mathbb{E}[q^i(x)] = \nabla m_K^i(x)$: the expectation over $z$, and the superscript $i$",
        correction=(
            Trial(
                OUTER,
                left=lambda xp, I: xp.mean(I.p_z, xp.stack([example_gradient(xp, I, z) for z in range(I.m)])),
                right=lambda xp, I: (
                    xp.power(xp.eye(I.d) - I.gamma * client_of(xp, I)[0], 2 * I.K)
                    @ (client_of(xp, I)[0] @ (I.x - client_of(xp, I)[1]))
                ),
                relation="==",
            ),
        ),
    ),
    Claim(
        id="T2s",
        label="eq:maml_server_update",
        line=364,
        statement=r"$q(x) = \sum_{i \in I} q^i(x)$, and $\mathbb{E}[q(x)] = \nabla\tilde f(x, \gamma, \Theta_{2K+1})$",
        trial=(
            Trial(
                SAMPLED,
                left=lambda xp, I: expected_mean_message(xp, theta_of(xp, I)) * I.M,
                right=lambda xp, I: mean_surrogate_gradient(xp, theta_of(xp, I)),
                relation="==",
            ),
        ),
        expected="TYPO",
        repair="typo",
        corrected=r"$q(x) = \frac1M \sum_{i \in I} q^i(x)$: the prose says that the server averages",
        correction=(
            Trial(
                SAMPLED,
                left=lambda xp, I: expected_mean_message(xp, theta_of(xp, I)),
                right=lambda xp, I: mean_surrogate_gradient(xp, theta_of(xp, I)),
                relation="==",
            ),
        ),
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
                left=lambda xp, I: xp.stack([maml_gradient(xp, I), gradient_message(xp, I, 2 * I.K + 1)]),
                right=lambda xp, I: xp.stack([descended(xp, I, 2 * I.K)] * 2),
                relation="==",
            ),
        ),
        expected="HOLDS",
        assumptions=("clients take full gradient steps",),
        note="For every real gamma.",
    ),
    Claim(
        id="T2w",
        label="Section 3.1",
        line=377,
        statement=r"the gradient of the loss after $K$ steps, with respect to $x$, is the gradient of the loss after "
        r"$K + 1$ additional steps",
        trial=(Trial(SCALAR, left=maml_gradient, right=lambda xp, I: descended(xp, I, 2 * I.K + 1), relation="=="),),
        expected="FALSE",
        corrected=r"after $K$ additional steps: $\nabla_x f_i(X_K(x)) = \nabla f_i(X_{2K}(x)) = g_{2K+1}$",
        correction=(Trial(STEPS, left=maml_gradient, right=lambda xp, I: descended(xp, I, 2 * I.K), relation="=="),),
        note="Off by one: it is the (K+1)-th additional gradient, taken after K additional steps.",
    ),
    Claim(
        id="T2b",
        label="Section 3.1",
        line=383,
        statement="with SGD clients the product of Hessian and gradient estimates is biased and the correspondence "
        "breaks down",
        trial=(
            Trial(SGD_CLIENTS, left=expected_maml, right=predicted_maml, relation="=="),
            Inspection(_maml_bias),
        ),
        expected="HOLDS",
        note=r"The bias is of order $\gamma^2/B$ and zero iff $A_z = A_i$ almost surely; its closed form is tried.",
    ),
    Claim(
        id="T2p",
        label="thm:maml (proof)",
        line=1374,
        statement=r"$\nabla f_i(X_K) = (I - \gamma A_i)^{K+1}$",
        trial=(
            Trial(
                SCALAR,
                left=lambda xp, I: gradient_message(xp, I, I.K + 1)[0],
                right=lambda xp, I: (1 - I.gamma * I.A[0][0, 0]) ** (I.K + 1),
                relation="==",
            ),
        ),
        expected="FALSE",
        corrected=r"$\nabla f_i(X_K) = (I - \gamma A_i)^K A_i (x - c_i)$, and "
        r"$\nabla m_K = (I - \gamma A_i)^K (I - \gamma A_i)^K A_i (x - c_i)$",
        correction=(
            Trial(
                STEPS,
                left=lambda xp, I: xp.stack([gradient_message(xp, I, I.K + 1), maml_gradient(xp, I)]),
                right=lambda xp, I: xp.stack([descended(xp, I, I.K), descended(xp, I, 2 * I.K)]),
                relation="==",
            ),
        ),
        note="A matrix cannot equal a gradient but for d = 1, where it is tried.",
    ),
)
