"""Partitions of a dataset among clients, as pure functions of its labels.

Each returns one array of example indices per client; no example belongs to two clients.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, Shaped

Indices = list[Int[np.ndarray, "_"]]
Labels = Shaped[np.ndarray, "n"] | Sequence


def _checked_column(name: str, values: Labels) -> np.ndarray:
    column = np.asarray(values)
    if column.ndim != 1 or not len(column):
        raise ValueError(f"{name} must be one-dimensional and not empty, got shape {column.shape}")
    return column


def _check_count(name: str, value: int, minimum: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise ValueError(f"{name} must be an integer >= {minimum}, got {value!r}")


def _check_concentration(name: str, value: float) -> None:
    if not np.isfinite(value) or value <= 0:
        raise ValueError(f"{name} must be finite and > 0, got {value}")


def log_dirichlet(rng: np.random.Generator, concentration: float, shape: tuple[int, ...]) -> np.ndarray:
    """Return logarithms, up to a constant, of draws from the symmetric Dirichlet distribution along the last axis.

    At small concentrations weights underflow but their logarithms do not, so the remaining weights can be renormalised
    after the large ones are removed. Gamma(a) has the distribution of Gamma(a + 1) U^(1/a).
    """
    return np.log(rng.gamma(concentration + 1, size=shape)) + np.log1p(-rng.random(shape)) / concentration


def _cumulative(log_weights: np.ndarray, available: np.ndarray) -> np.ndarray:
    """Return cumulative probabilities, renormalised over the available entries; zeros if none is available."""
    if not available.any():
        return np.zeros(len(available))
    masked = np.where(available, log_weights, -np.inf)
    weights = np.cumsum(np.exp(masked - masked.max()))
    return weights / weights[-1]


def by_column(column: Labels) -> Indices:
    """Return one client per distinct value of a column (a writer, a role), in the sorted order of the values."""
    values = _checked_column("column", column)
    _, client, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.split(np.argsort(client, kind="stable").astype(np.int64), np.cumsum(counts)[:-1])


def iid(rng: np.random.Generator, n: int, clients: int) -> Indices:
    """Return a random partition of n examples among clients whose sizes differ by at most one."""
    _check_count("n", n)
    _check_count("clients", clients)
    if clients > n:
        raise ValueError(f"clients must be at most n = {n}, one example each, got {clients}")
    return np.array_split(rng.permutation(n).astype(np.int64), clients)


def dirichlet(rng: np.random.Generator, labels: Labels, clients: int, alpha: float) -> Indices:
    """Return a partition in which each label is shared among the clients in proportions drawn from Dirichlet(alpha).

    Args:
      rng: the source of randomness.
      labels: the label of each example.
      clients: the number of clients.
      alpha: the concentration. If it is small, few clients hold a label and a client may have no example; if it is
        large, the partition approaches an iid one.

    Returns:
      The examples of each client; together they are all examples.
    """
    values = _checked_column("labels", labels)
    _check_count("clients", clients)
    _check_concentration("alpha", alpha)
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
    r"""Return the Pachinko allocation over the tree coarse label - fine label - example, as for the paper's CIFAR-100.

    A client draws :math:`p \sim \mathrm{Dirichlet}(\alpha)` over the coarse labels and, for each of them,
    :math:`q_c \sim \mathrm{Dirichlet}(\beta)` over its fine labels. Then, ``per_client`` times, it draws a coarse label
    from p, a fine label from q_c, and an example of that label, uniformly among those that no client has yet. When a
    fine label has no examples left, it is removed and the weights of its siblings are renormalised; likewise for a
    coarse label without fine labels.

    Args:
      rng: the source of randomness.
      coarse: the coarse label of each example.
      fine: the fine label of each example; a fine label has one coarse label.
      clients: the number of clients.
      per_client: the number of examples per client; `clients` times `per_client` is at most the number of examples.
      alpha: the concentration over coarse labels.
      beta: the concentration over the fine labels of a coarse label.

    Returns:
      For each client, its ``per_client`` examples in the order drawn.
    """
    coarse, fine = _checked_column("coarse", coarse), _checked_column("fine", fine)
    if len(coarse) != len(fine):
        raise ValueError(f"coarse and fine must label the same examples, got lengths {len(coarse)} and {len(fine)}")
    _check_count("clients", clients)
    _check_count("per_client", per_client)
    _check_concentration("alpha", alpha)
    _check_concentration("beta", beta)
    if clients * per_client > len(fine):
        raise ValueError(f"clients * per_client must be at most {len(fine)} examples, got {clients} * {per_client}")
    pools = [rng.permutation(pool) for pool in by_column(fine)]
    parents = np.unique(coarse, return_inverse=True)[1]
    parent = np.array([parents[pool[0]] for pool in pools])
    for pool, c in zip(pools, parent, strict=True):
        if (parents[pool] != c).any():
            raise ValueError(f"fine must determine coarse, got two coarse labels for fine label {fine[pool[0]]}")
    children = [np.flatnonzero(parent == c) for c in range(parent.max() + 1)]
    remaining = np.array([len(pool) for pool in pools])

    def available_coarse() -> np.ndarray:
        """Return which coarse labels have examples left."""
        return np.array([remaining[leaves].any() for leaves in children])

    allocation = []
    for _ in range(clients):
        log_p = log_dirichlet(rng, alpha, (len(children),))
        log_q = [log_dirichlet(rng, beta, (len(leaves),)) for leaves in children]
        P = _cumulative(log_p, available_coarse())
        Q = [_cumulative(log_q_c, remaining[leaves] > 0) for log_q_c, leaves in zip(log_q, children, strict=True)]
        drawn = np.empty(per_client, np.int64)
        for k, (u, v) in enumerate(rng.random((per_client, 2))):
            c = int(np.searchsorted(P, u, side="right"))
            leaves = children[c]
            leaf = leaves[int(np.searchsorted(Q[c], v, side="right"))]
            remaining[leaf] -= 1
            drawn[k] = pools[leaf][remaining[leaf]]
            if remaining[leaf] == 0 and remaining[leaves].any():
                Q[c] = _cumulative(log_q[c], remaining[leaves] > 0)
            elif remaining[leaf] == 0:
                P = _cumulative(log_p, available_coarse())
        allocation.append(drawn)
    return allocation
