"""Which client gets which example: partitions of a dataset, as pure functions on its labels.

Each returns one array of example indices per client; no example goes to two clients.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, Shaped

Indices = list[Int[np.ndarray, "_"]]
Labels = Shaped[np.ndarray, "n"] | Sequence


def _column(name: str, values: Labels) -> np.ndarray:
    column = np.asarray(values)
    if column.ndim != 1 or not len(column):
        raise ValueError(f"{name} must be one-dimensional and not empty, got shape {column.shape}")
    return column


def _count(name: str, value: int, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")


def _concentration(name: str, value: float) -> None:
    if not np.isfinite(value) or value <= 0:
        raise ValueError(f"{name} must be finite and > 0, got {value}")


def log_dirichlet(rng: np.random.Generator, concentration: float, shape: tuple[int, ...]) -> np.ndarray:
    """Logarithms, up to a constant, of draws from the symmetric Dirichlet along the last axis.

    Weights as small as concentration 0.1 makes them underflow; their logarithms do not, so that what is
    left can be renormalised after the large weights are gone. Gamma(a) is Gamma(a + 1) U^(1/a) in law.
    """
    return np.log(rng.gamma(concentration + 1, size=shape)) + np.log1p(-rng.random(shape)) / concentration


def _cumulative(log_weights: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """Cumulative probabilities, renormalised over what is alive; zeros if nothing is."""
    if not alive.any():
        return np.zeros(len(alive))
    live = np.where(alive, log_weights, -np.inf)
    weights = np.cumsum(np.exp(live - live.max()))
    return weights / weights[-1]


def by_column(column: Labels) -> Indices:
    """One client per distinct value (a writer, a role), in the order of the sorted values."""
    values = _column("column", column)
    _, client, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.split(np.argsort(client, kind="stable").astype(np.int64), np.cumsum(counts)[:-1])


def iid(rng: np.random.Generator, n: int, clients: int) -> Indices:
    """All n examples at random, sizes equal up to one."""
    _count("n", n)
    _count("clients", clients)
    if clients > n:
        raise ValueError(f"clients must be at most n = {n}, one example each, got {clients}")
    return np.array_split(rng.permutation(n).astype(np.int64), clients)


def dirichlet(rng: np.random.Generator, labels: Labels, clients: int, alpha: float) -> Indices:
    """All examples, each label's shared out in proportions drawn from Dirichlet(alpha) over the clients.

    Small alpha: few clients hold a label, and a client may be left without any example. Large alpha: iid.
    """
    values = _column("labels", labels)
    _count("clients", clients)
    _concentration("alpha", alpha)
    shares: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for examples in by_column(values):
        log_p = log_dirichlet(rng, alpha, (clients,))
        p = np.exp(log_p - log_p.max())
        cuts = np.rint(np.cumsum(p / p.sum())[:-1] * len(examples)).astype(np.int64)
        for share, part in zip(shares, np.split(rng.permutation(examples), cuts), strict=True):
            share.append(part)
    return [rng.permutation(np.concatenate(share)) for share in shares]


def pachinko(
    rng: np.random.Generator,
    coarse: Labels,
    fine: Labels,
    clients: int,
    per_client: int,
    alpha: float = 0.1,
    beta: float = 10.0,
) -> Indices:
    r"""Pachinko allocation over the tree coarse label - fine label - example, as for the paper's CIFAR-100.

    A client draws :math:`p \sim \mathrm{Dirichlet}(\alpha)` over the coarse labels and, for each of them,
    :math:`q_c \sim \mathrm{Dirichlet}(\beta)` over its fine labels; then ``per_client`` times a coarse label
    from p, a fine one from q_c and an example of it, uniformly among those that no client has yet. A fine
    label without examples left is removed and its siblings' weights are renormalised; so is a coarse label
    without fine ones.

    Args:
      coarse, fine: the labels of each example; a fine label has one coarse label.
      clients, per_client: how many clients, and examples each; their product is at most the number of examples.
      alpha, beta: concentrations over coarse labels and over the fine labels of one.

    Returns:
      For each client its ``per_client`` examples in the order drawn.
    """
    coarse, fine = _column("coarse", coarse), _column("fine", fine)
    if len(coarse) != len(fine):
        raise ValueError(f"coarse and fine must label the same examples, got lengths {len(coarse)} and {len(fine)}")
    _count("clients", clients)
    _count("per_client", per_client)
    _concentration("alpha", alpha)
    _concentration("beta", beta)
    if clients * per_client > len(fine):
        raise ValueError(f"clients * per_client must be at most {len(fine)} examples, got {clients} * {per_client}")
    pools = [rng.permutation(pool) for pool in by_column(fine)]
    parents = np.unique(coarse, return_inverse=True)[1]
    parent = np.array([parents[pool[0]] for pool in pools])
    for pool, c in zip(pools, parent, strict=True):
        if (parents[pool] != c).any():
            raise ValueError(f"fine must determine coarse, got two coarse labels for fine label {fine[pool[0]]}")
    children = [np.flatnonzero(parent == c) for c in range(parent.max() + 1)]
    left = np.array([len(pool) for pool in pools])

    def alive() -> np.ndarray:
        """Which coarse labels have examples left."""
        return np.array([left[leaves].any() for leaves in children])

    allocation = []
    for _ in range(clients):
        log_p = log_dirichlet(rng, alpha, (len(children),))
        log_q = [log_dirichlet(rng, beta, (len(leaves),)) for leaves in children]
        P = _cumulative(log_p, alive())
        Q = [_cumulative(log_q_c, left[leaves] > 0) for log_q_c, leaves in zip(log_q, children, strict=True)]
        drawn = np.empty(per_client, np.int64)
        for k, (u, v) in enumerate(rng.random((per_client, 2))):
            c = int(np.searchsorted(P, u, side="right"))
            leaves = children[c]
            leaf = leaves[int(np.searchsorted(Q[c], v, side="right"))]
            left[leaf] -= 1
            drawn[k] = pools[leaf][left[leaf]]
            if left[leaf] == 0 and left[leaves].any():
                Q[c] = _cumulative(log_q[c], left[leaves] > 0)
            elif left[leaf] == 0:
                P = _cumulative(log_p, alive())
        allocation.append(drawn)
    return allocation
