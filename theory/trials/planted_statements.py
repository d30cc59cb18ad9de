"""True statements of linear algebra and of local updates, each beside a false one that is hard to tell from it.

They stand where the planted errors of the paper's claims do not reach: sides of either sign, statements that fail only
for many local steps, for a large condition number, in two dimensions or more, or for matrices that do not commute.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from theory.claims.claim import Side, Space, Trial
from theory.claims.fields import function, symmetric
from theory.claims.outsized_importance.distance_bounds import constants, rate_distance_bound_linear
from theory.claims.outsized_importance.distance_rates import drift, two_rates
from theory.claims.outsized_importance.properties import phi
from theory.claims.spaces import space, up_to


class Statement(NamedTuple):
    """A true statement and a false one.

    Attributes:
      kind: what makes the false one hard to refute.
      error: how it differs from the true one, in words.
      true: the true one.
      false: the false one.
    """

    kind: str
    error: str
    true: Trial
    false: Trial


LINE, PLANE = {"d": 1, "n": 2, "K": 2}, {"d": 2, "n": 2, "K": 3}
CLIENTS = space("A c p gamma x", (LINE, PLANE))
SCALARS = space("A gamma", ({"d": 1, "n": 2, "K": 2}, {"d": 1, "n": 2, "K": 3}))
HALF = space("A gamma", ({"d": 1, "n": 2, "K": 2}, {"d": 1, "n": 2, "K": 3}), edge=up_to(1, 2))
PAIR = space("A x", ({"d": 2, "n": 2}, {"d": 3, "n": 2}))
POINT = space("A x", ({"d": 1, "n": 2}, {"d": 2, "n": 2}))
ANY_SIGN = space("x", ({"d": 1}, {"d": 2}), extra={"S": symmetric(), "s": function(lambda xp, I: I.x @ I.S @ I.x)})


def _extent(xp: Any, A: Any) -> tuple[Any, Any]:
    eigenvalues = xp.eigvalsh(A).ravel()
    return xp.minimum(*eigenvalues), xp.maximum(*eigenvalues)


def _trace(A: Any) -> Any:
    return sum(A[i, i] for i in range(len(A)))


def _condition(xp: Any, A: Any) -> Any:
    mu, L = _extent(xp, A)
    return L / mu


def _square(v: Any) -> Any:
    return v @ v


def _spread(xp: Any, I: Any, centre: Any) -> Any:
    return xp.mean(I.p, xp.stack([_square(c - centre) for c in I.c]))


def _minimizer(xp: Any, p: Any, I: Any) -> Any:
    return xp.solve(xp.mean(p, I.A), xp.mean(p, xp.stack([a @ c for a, c in zip(I.A, I.c, strict=True)])))


def _message(xp: Any, I: Any, c: Sequence[Any]) -> Any:
    """E[Q_i A_i (x - c_i)] with Theta_{1:K}."""
    Q = xp.distortion(I.A, I.gamma, (1,) * I.K)
    return xp.mean(I.p, xp.stack([Q[i] @ (I.A[i] @ (I.x - c[i])) for i in range(I.n)]))


def _by_inner_loops(xp: Any, I: Any) -> Any:
    batches = [(xp.stack([I.A[i][None]] * I.K), xp.stack([I.c[i][None]] * I.K)) for i in range(I.n)]
    return xp.mean(I.p, xp.stack([xp.inner_loop(A, c, I.x, I.gamma, (1,) * I.K) for A, c in batches]))


def _le(kind: str, error: str, instances: Space, left: Side, true: Side, false: Side) -> Statement:
    return Statement(kind, error, Trial(instances, left, true), Trial(instances, left, false))


def _eq(kind: str, error: str, instances: Space, left: Side, true: Side, false: Side) -> Statement:
    return Statement(kind, error, Trial(instances, left, true, "=="), Trial(instances, left, false, "=="))


def _number(value: str) -> Side:
    return lambda xp, I: xp.array([value])[0]


SIGNED = (
    _le("signed", "-2 x^2 <= -3 x^2", CLIENTS,
        lambda xp, I: -2 * _square(I.x), lambda xp, I: -_square(I.x), lambda xp, I: -3 * _square(I.x)),
    _le("signed", "-|S| |x|^2 times 9/10", ANY_SIGN, lambda xp, I: -I.s,
        lambda xp, I: xp.operator_norm(I.S) * _square(I.x),
        lambda xp, I: 9 * xp.operator_norm(I.S) * _square(I.x) / 10),
    _le("signed", "a quadratic form is not negative", ANY_SIGN, lambda xp, I: -I.s,
        lambda xp, I: -xp.eigvalsh(I.S)[0] * _square(I.x), lambda xp, I: 0 * I.s),
    _le("signed", "1/2 for 9/20 in Cauchy's inequality", CLIENTS,
        lambda xp, I: 20 * (I.c[0] @ I.A[0] @ I.x) - 10 * (I.c[0] @ I.A[0] @ I.c[0] + I.x @ I.A[0] @ I.x),
        _number("0"), lambda xp, I: -(I.c[0] @ I.A[0] @ I.c[0] + I.x @ I.A[0] @ I.x)),
    _le("signed", "a bound of -1", CLIENTS, lambda xp, I: -xp.norm(I.x), _number("0"), _number("-1")),
    _le("signed", "a bound of 0 for a difference", CLIENTS,
        lambda xp, I: xp.norm(I.x - I.c[0]) - xp.norm(I.x) - xp.norm(I.c[0]), _number("0"),
        lambda xp, I: -xp.norm(I.c[0])),
)  # fmt: skip

LARGE_K = (
    _le("large K", "10^{-(K-1)} is 1/1000", SCALARS, lambda xp, I: xp.array([f"1/{10 ** (I.K - 1)}"])[0],
        lambda xp, I: (1 - 9 * I.gamma * _extent(xp, I.A)[1] / 10) ** (I.K - 1),
        lambda xp, I: 1000 * (1 - 9 * I.gamma * _extent(xp, I.A)[1] / 10) ** (I.K - 1) / 10 ** (I.K - 1)),
    _le("large K", "phi <= 20 L for K L", SCALARS, lambda xp, I: phi(I.K, _extent(xp, I.A)[1], I.gamma),
        lambda xp, I: I.K * _extent(xp, I.A)[1], lambda xp, I: 20 * _extent(xp, I.A)[1]),
    _le("large K", "1000 for 2^{K-1}", HALF,
        lambda xp, I: ((1 - I.gamma * _extent(xp, I.A)[0]) / (1 - I.gamma * _extent(xp, I.A)[1])) ** (I.K - 1),
        lambda xp, I: 2 ** (I.K - 1), _number("1000")),
    _le("large K", "30 gamma mu for K gamma mu", SCALARS,
        lambda xp, I: 1 - (1 - I.gamma * _extent(xp, I.A)[0]) ** I.K,
        lambda xp, I: I.K * I.gamma * _extent(xp, I.A)[0], lambda xp, I: 30 * I.gamma * _extent(xp, I.A)[0]),
    _le("large K", "a constant 2 for K (cor:distance_optima_gamma)",
        two_rates("A c p", {"d": 1, "n": 2, "K": 2}, {"d": 1, "n": 2, "K": 3}), drift,
        lambda xp, I: I.K * rate_distance_bound_linear(constants(xp, I), I.gamma1, I.gamma2) / 2,
        lambda xp, I: rate_distance_bound_linear(constants(xp, I), I.gamma1, I.gamma2)),
    _le("large K", "the spread of K steps within 50", CLIENTS,
        lambda xp, I: xp.operator_norm(xp.distortion(I.A[0], I.gamma, (1,) * I.K)), lambda xp, I: I.K, _number("50")),
)  # fmt: skip

LARGE_KAPPA = (
    _le("large kappa", "L / mu <= 5000", PAIR, lambda xp, I: _condition(xp, I.A[0]),
        lambda xp, I: _trace(I.A[0]) / _extent(xp, I.A[0])[0], _number("5000")),
    _le("large kappa", "Kantorovich's constant is 2000", PAIR,
        lambda xp, I: _extent(xp, I.A[0])[1] / _extent(xp, I.A[0])[0] + 2,
        lambda xp, I: 4 * (_condition(xp, I.A[0]) + 1) ** 2 / (4 * _condition(xp, I.A[0])), _number("8000")),
    _le("large kappa", "phi_L <= 100000 phi_mu", SCALARS,
        lambda xp, I: phi(I.K, _extent(xp, I.A)[1], I.gamma),
        lambda xp, I: _condition(xp, I.A) * phi(I.K, _extent(xp, I.A)[0], I.gamma),
        lambda xp, I: 100_000 * phi(I.K, _extent(xp, I.A)[0], I.gamma)),
    _le("large kappa", "tr A tr A^-1 <= 10^6", POINT, lambda xp, I: _trace(I.A[0]) * _trace(xp.inverse(I.A[0])),
        lambda xp, I: I.d**2 * _condition(xp, I.A[0]), _number("1000000")),
    _le("large kappa", "E[A_i]'s condition number <= 10^7", CLIENTS,
        lambda xp, I: _condition(xp, xp.mean(I.p, I.A)), lambda xp, I: _condition(xp, I.A), _number("10000000")),
)  # fmt: skip

TWO_DIMENSIONS = (
    _le("d >= 2", "lambda_min(A - B) <= lambda_min(A) - lambda_max(B)", POINT,
        lambda xp, I: xp.eigvalsh(I.A[0] - I.A[1])[0],
        lambda xp, I: xp.eigvalsh(I.A[0])[0] - xp.eigvalsh(I.A[1])[0],
        lambda xp, I: xp.eigvalsh(I.A[0])[0] - xp.eigvalsh(I.A[1])[-1]),
    _eq("d >= 2", "the trace is the largest eigenvalue", POINT, lambda xp, I: _trace(I.A[0]),
        lambda xp, I: xp.total(xp.eigvalsh(I.A[0])), lambda xp, I: xp.eigvalsh(I.A[0])[-1]),
    _eq("d >= 2", "A^-1 entry by entry", POINT, lambda xp, I: xp.inverse(I.A[0])[0, 0] * I.A[0][0, 0],
        lambda xp, I: xp.solve(I.A[0], xp.eye(I.d))[0, 0] * I.A[0][0, 0], lambda xp, I: xp.eye(I.d)[0, 0]),
    _le("d >= 2", "Cauchy's inequality reversed", CLIENTS,
        lambda xp, I: (I.c[0] @ I.c[0]) * (I.x @ I.x) - (I.c[0] @ I.x) ** 2,
        lambda xp, I: (I.c[0] @ I.c[0]) * (I.x @ I.x), lambda xp, I: 0 * I.gamma),
    _eq("d >= 2", "x A x is tr A |x|^2", POINT, lambda xp, I: I.x @ I.A[0] @ I.x,
        lambda xp, I: _trace(I.x[:, None] * (I.A[0] @ I.x)[None, :]), lambda xp, I: _trace(I.A[0]) * _square(I.x)),
    _le("d >= 2", "tr(A) <= lambda_max for d lambda_max", POINT, lambda xp, I: _trace(I.A[0]),
        lambda xp, I: I.d * xp.eigvalsh(I.A[0])[-1], lambda xp, I: 11 * xp.eigvalsh(I.A[0])[-1] / 10),
)  # fmt: skip

NON_COMMUTING = (
    _eq("non-commuting", "A B = B A", PAIR, lambda xp, I: I.A[0] @ I.A[1],
        lambda xp, I: (I.A[1] @ I.A[0]).T, lambda xp, I: I.A[1] @ I.A[0]),
    _le("non-commuting", "A B + B A is positive", PAIR, lambda xp, I: -(I.x @ I.A[0] @ I.A[1] @ I.x),
        lambda xp, I: xp.norm(I.A[0] @ I.x) * xp.norm(I.A[1] @ I.x), lambda xp, I: 0 * I.x[0]),
    _eq("non-commuting", "tr ABAB = tr A^2 B^2", PAIR, lambda xp, I: _trace(I.A[0] @ I.A[1] @ I.A[0] @ I.A[1]),
        lambda xp, I: _trace(I.A[1] @ I.A[0] @ I.A[1] @ I.A[0]),
        lambda xp, I: _trace(I.A[0] @ I.A[0] @ I.A[1] @ I.A[1])),
    _eq("non-commuting", "(A + B)^2 = A^2 + 2 A B + B^2", PAIR, lambda xp, I: xp.power(I.A[0] + I.A[1], 2),
        lambda xp, I: I.A[0] @ I.A[0] + I.A[0] @ I.A[1] + I.A[1] @ I.A[0] + I.A[1] @ I.A[1],
        lambda xp, I: I.A[0] @ I.A[0] + 2 * I.A[0] @ I.A[1] + I.A[1] @ I.A[1]),
    _le("non-commuting", "A >= B gives A^2 >= B^2", PAIR,
        lambda xp, I: -(I.x @ (I.A[0] + I.A[1]) @ (I.A[0] + I.A[1]) @ I.x - I.x @ I.A[0] @ I.A[0] @ I.x),
        lambda xp, I: _square(I.A[0] @ I.x), lambda xp, I: 0 * I.x[0]),
)  # fmt: skip

OFF_BY_ONE = (
    _eq("off by one", "K + 1 for K local steps", CLIENTS, _by_inner_loops, lambda xp, I: _message(xp, I, I.c),
        lambda xp, I: (I.K + 1) * _message(xp, I, I.c) / I.K),
    _eq("off by one", "(I - gamma A)^{K-1} for the power K", CLIENTS,
        lambda xp, I: xp.distortion(I.A[0], I.gamma, (1,) * I.K) @ (I.gamma * I.A[0]),
        lambda xp, I: xp.eye(I.d) - xp.power(xp.eye(I.d) - I.gamma * I.A[0], I.K),
        lambda xp, I: xp.eye(I.d) - xp.power(xp.eye(I.d) - I.gamma * I.A[0], I.K - 1)),
    _le("off by one", "phi_K <= (K - 1) L", SCALARS, lambda xp, I: phi(I.K, _extent(xp, I.A)[1], I.gamma),
        lambda xp, I: I.K * _extent(xp, I.A)[1], lambda xp, I: (I.K - 1) * _extent(xp, I.A)[1]),
    _le("off by one", "K for (K - 1)/2 as constant", SCALARS,
        lambda xp, I: I.K * _extent(xp, I.A)[1] - phi(I.K, _extent(xp, I.A)[1], I.gamma),
        lambda xp, I: I.K * (I.K - 1) * I.gamma * _extent(xp, I.A)[1] ** 2 / 2,
        lambda xp, I: (I.K - 1) * (I.K - 1) * I.gamma * _extent(xp, I.A)[1] ** 2 / 2),
)  # fmt: skip

WRONG_VARIABLE = (
    _eq("wrong variable", "equal weights for p", CLIENTS, lambda xp, I: _minimizer(xp, I.p, I),
        lambda xp, I: xp.inverse(xp.mean(I.p, I.A)) @ xp.mean(I.p, (I.A @ I.c[..., None])[..., 0]),
        lambda xp, I: _minimizer(xp, xp.array([f"1/{I.n}"] * I.n), I)),
    _eq("wrong variable", "c_1 for c_i", CLIENTS, _by_inner_loops, lambda xp, I: _message(xp, I, I.c),
        lambda xp, I: _message(xp, I, [I.c[0]] * I.n)),
    _le("wrong variable", "c_1 for the mean in sigma_c", CLIENTS,
        lambda xp, I: _spread(xp, I, xp.mean(I.p, I.c)), lambda xp, I: _spread(xp, I, I.c[0]),
        lambda xp, I: _spread(xp, I, I.x) - _square(I.x - I.c[0])),
    _eq("wrong variable", "x for c in Pythagoras", CLIENTS, lambda xp, I: _spread(xp, I, I.x),
        lambda xp, I: _spread(xp, I, xp.mean(I.p, I.c)) + _square(I.x - xp.mean(I.p, I.c)),
        lambda xp, I: _spread(xp, I, xp.mean(I.p, I.c)) + _square(I.x - I.c[0])),
    _le("wrong variable", "mu for L in phi", SCALARS, lambda xp, I: phi(I.K, _extent(xp, I.A)[1], I.gamma),
        lambda xp, I: I.K * _extent(xp, I.A)[1], lambda xp, I: I.K * _extent(xp, I.A)[0]),
    _le("wrong variable", "E[A]^2 for E[A^2]", CLIENTS, lambda xp, I: _square(xp.mean(I.p, I.A) @ I.x),
        lambda xp, I: xp.mean(I.p, xp.stack([_square(A @ I.x) for A in I.A])), lambda xp, I: _square(I.A[0] @ I.x)),
)  # fmt: skip

STATEMENTS = (
    *SIGNED,
    *LARGE_K,
    *LARGE_KAPPA,
    *TWO_DIMENSIONS,
    *NON_COMMUTING,
    *OFF_BY_ONE,
    *WRONG_VARIABLE,
)
