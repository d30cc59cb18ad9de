"""Section 2 and Appendix A: the algorithm family and its special cases."""

import random
from typing import Any

from theory import exact
from theory.claims.claim import Claim, Finding, Inspection, Trial
from theory.claims.fields import positive
from theory.claims.spaces import space, up_to


def _steps_of_theta(xp: Any) -> list[Finding]:
    """K(Theta) against a brute-force reading of the definition, zeros and trailing zeros included."""
    generator = random.Random(0)
    cases = [[0, 0, 0], [0, 0, 0, 1], [1], [1, 0, 2, 0]]
    cases += [[generator.choice([0, 0, 0.5, 1]) for _ in range(generator.randint(1, 9))] for _ in range(200)]
    findings = []
    for theta in cases:
        expected = max((k for k, value in enumerate(theta, start=1) if value > 0), default=0)
        steps = xp.steps(theta)
        findings.append(Finding(steps == expected, abs(steps - expected), f"K({theta}) = {steps}"))
    return findings


def _local_models(xp: Any, I: Any) -> list[Any]:
    """x^i after K steps of gradient descent from x: c_i + (I - gamma A_i)^K (x - c_i)."""
    return [I.c[i] + xp.power(xp.eye(I.d) - I.gamma * I.A[i], I.K) @ (I.x - I.c[i]) for i in range(I.n)]


def _message(xp: Any, I: Any, x: Any = None) -> Any:
    """q: the mean of InnerLoop(i, x, gamma, Theta_{1:K}) over all clients."""
    x = I.x if x is None else x
    batches = [(xp.stack([I.A[i][None]] * I.K), xp.stack([I.c[i][None]] * I.K)) for i in range(I.n)]
    return xp.mean(I.p, xp.stack([xp.inner_loop(A, c, x, I.gamma, (1,) * I.K) for A, c in batches]))


def _interpolated(xp: Any, I: Any) -> Any:
    """Two rounds of Reptile: x + eta_delta (mean of the local models - x), every client stepping on its own gradient."""
    x = I.x
    for _ in range(2):
        local = []
        for i in range(I.n):
            y = x
            for _ in range(I.K):
                y = y - I.gamma * (I.A[i] @ (y - I.c[i]))
            local.append(y)
        x = x + I.eta_delta * (xp.mean(I.p, xp.stack(local)) - x)
    return x


def _locally_updated(xp: Any, I: Any) -> Any:
    """Two rounds of LocalUpdate with eta = eta_delta gamma."""
    x = I.x
    for _ in range(2):
        x = x - I.eta_delta * I.gamma * _message(xp, I, x)
    return x


DIMS = ({"d": 1, "n": 2, "K": 1}, {"d": 1, "n": 2, "K": 3}, {"d": 2, "n": 3, "K": 4})
CLIENTS = space("A c p gamma x", DIMS, edge=up_to(3))

REPTILE = space("A c p gamma x", ({"d": 1, "n": 1, "K": 3}, *DIMS), edge=up_to(3), extra={"eta_delta": positive()})
SCALAR = space("A c x", ({"d": 1, "n": 1},))


def _real_root(xp: Any) -> list[Finding]:
    """Whether A^{1/2} is real: for A = 1, and for A = -1, which is symmetric too."""
    findings = []
    for entry in ("1", "-1"):
        value = exact.rational(entry)
        real = bool(value >= 0)
        findings.append(Finding(real, 0.0, f"A_z = {entry}: A_z^(1/2) is {exact.sqrt(value) if real else 'not real'}"))
    return findings


CLAIMS = (
    Claim(
        id="D1",
        label="eq:quadratic_loss",
        line=132,
        statement=r"$f(x; z) := \frac12\|A_z^{1/2}(x - c_z)\|^2$ for symmetric $A_z$",
        trial=(Inspection(_real_root),),
        expected="NEEDS",
        repair="assumption",
        corrected=r"$A_z$ positive semidefinite, or write $\frac12 (x-c_z)^\top A_z (x-c_z)$, which needs symmetry only",
        correction=(
            Trial(
                SCALAR,
                left=lambda xp, I: (xp.sqrt(I.A[0][0, 0]) * (I.x[0] - I.c[0][0])) ** 2 / 2,
                right=lambda xp, I: (I.x - I.c[0]) @ I.A[0] @ (I.x - I.c[0]) / 2,
                relation="==",
            ),
        ),
        note="Line 264 calls each $A_z$ positive definite, which is nowhere assumed; least squares has $A_z = aa^\\top$, which is "
        "only semidefinite. Only $A_i \\succ 0$ is needed.",
    ),
    Claim(
        id="D2",
        label="K(Theta)",
        line=159,
        statement=r"$K(\Theta) = \max\{i : \theta_i > 0\}$",
        trial=(Inspection(_steps_of_theta),),
        expected="HOLDS",
        corrected=r"$K(0) := 0$, the maximum of nothing, which Assumption 0 excludes",
    ),
    Claim(
        id="A1",
        label="sec:special_cases",
        line=1285,
        statement=r"FedAvg and local SGD, $x_{t+1} = \frac1M \sum_i x_t^i$, are LocalUpdate with "
        r"$\Theta_{1:K}$ and $\eta = \gamma$",
        trial=(
            Trial(
                CLIENTS,
                left=lambda xp, I: xp.mean(I.p, xp.stack(_local_models(xp, I))),
                right=lambda xp, I: I.x - I.gamma * _message(xp, I),
                relation="==",
            ),
        ),
        expected="HOLDS",
        note="The display at line 1299 lacks a pair of parentheses around $x_t - (x_t - \\gamma\\sum_k g_k)$.",
    ),
    Claim(
        id="A2",
        label="sec:local_update_algs",
        line=223,
        statement=r"with $\gamma \neq \eta$, LocalUpdate with $\Theta_{1:K}$ recovers Reptile, generalised FedAvg and "
        r"(one client) Lookahead",
        trial=(
            Trial(
                REPTILE,
                left=_interpolated,
                right=_locally_updated,
                relation="==",
            ),
        ),
        expected="HOLDS",
        corrected=r"with $\eta = \eta_\Delta \gamma$ and $\gamma > 0$: at $\gamma = 0$ methods that average model "
        r"deltas stand still, LocalUpdate does not",
        note="Tried over two rounds, for one client (Lookahead) and several.",
    ),
)
