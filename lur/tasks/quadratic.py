r"""`quadratic`: clients :math:`f_i(x) = \tfrac12 \mathbb{E}_z (x-c_z)^\top A_z (x-c_z)`: theory meets training.

`task(A, c)` takes the matrices and centres of any problem, `theory.Problem` included; without them a random one
of moderate condition is made. Clients are sampled uniformly, so weights p other than 1/N are refused.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from lur.data.store import Store
from lur.data.writer import in_memory
from lur.tasks.task import Outcomes, Settings, Task

SETTINGS = Settings(10, 10, 1, 0.1, 0.1)


def store_of(A: Any, c: Any) -> Store:
    """Clients' quadratics as a store: A (N, d, d) and c (N, d), or (N, n, d, d) and (N, n, d) with n examples each."""
    A, c = np.asarray(A), np.asarray(c)
    if A.ndim == 3:
        A, c = A[:, None], c[:, None]
    if A.ndim != 4 or A.shape[:-1] != c.shape or A.shape[-1] != A.shape[-2]:
        raise ValueError(f"A and c must be (N, [n,] d, d) and (N, [n,] d), got {A.shape} and {c.shape}")
    return in_memory(
        ((f"{i}", {"A": A[i], "c": c[i]}) for i in range(len(A))), {"dataset": "quadratic", "generated": True}
    )


def random_problem(clients: int, d: int, heterogeneity: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random positive definite A_i with eigenvalues in [0.1, 1], and centres that spread with the dial."""
    rng = np.random.default_rng([seed, 4])
    bases, _ = np.linalg.qr(rng.normal(size=(clients, d, d)))
    common = 0.55
    eigenvalues = common + min(heterogeneity, 1.0) * (10 ** rng.uniform(-1, 0, size=(clients, d)) - common)
    A = np.einsum("nij,nj,nkj->nik", bases, eigenvalues, bases)
    return (A + A.swapaxes(1, 2)) / 2, 1 + heterogeneity * rng.normal(size=(clients, d))


def task(
    A: Any = None,
    c: Any = None,
    p: Any = None,
    *,
    clients: int | None = None,
    heterogeneity: float = 1.0,
    seed: int = 0,
    dtype: Any = jnp.float32,
    d: int = 20,
) -> Task:
    """The task of a given problem, or of a random one of dimension d."""
    if A is None:
        A, c = random_problem(100 if clients is None else clients, d, heterogeneity, seed)
    if p is not None and not np.allclose(p, 1 / len(np.asarray(p)), rtol=1e-12):
        raise ValueError("p must be uniform: training samples every client alike; repeat clients to weigh them")
    store = store_of(A, c)
    dimension = np.shape(A)[-1]

    def plain(examples: Mapping[str, Any]) -> dict[str, Any]:
        return {name: examples[name].astype(dtype) for name in ("A", "c")}

    def outcomes(x: Any, batch: Mapping[str, Any]) -> Outcomes:
        gap = x - batch["c"]
        loss = jnp.einsum("bi,bij,bj->b", gap, batch["A"], gap) / 2
        return Outcomes(loss, jnp.zeros_like(loss), jnp.zeros_like(loss))

    return Task(
        "quadratic",
        store,
        lambda key: jnp.zeros(dimension, dtype),
        lambda key, z: plain(z),
        plain,
        outcomes,
        SETTINGS.fitting(store),
    )
