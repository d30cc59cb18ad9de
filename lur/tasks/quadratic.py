r"""`quadratic`: clients :math:`f_i(x) = \tfrac12 \mathbb{E}_z (x-c_z)^\top A_z (x-c_z)`, which `theory` solves exactly.

`task(A, c)` takes the matrices and centres of any problem, such as a `theory.Problem`; without them the problem is
random and moderately conditioned. Training samples clients uniformly, so weights p other than 1/N are an error.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from lur.data.store import Store
from lur.data.writer import in_memory
from lur.tasks.task import Outcomes, Settings, Task

SETTINGS = Settings(clients_per_round=10, local_steps=10, batch_size=1, client_lr=0.1, server_lr=0.1)
CLIENTS = 100
"""The number of clients of a random problem by default."""


def quadratic_store(A: Any, c: Any) -> Store:
    """Return clients' quadratics as a store.

    Args:
      A: the matrices, of shape (N, d, d), or (N, n, d, d) with n examples per client.
      c: the centres, of shape (N, d), or (N, n, d).
    """
    A, c = np.asarray(A), np.asarray(c)
    if A.ndim == 3:
        A, c = A[:, None], c[:, None]
    if A.ndim != 4 or A.shape[:-1] != c.shape or A.shape[-1] != A.shape[-2]:
        raise ValueError(f"A and c must be (N, [n,] d, d) and (N, [n,] d), got {A.shape} and {c.shape}")
    return in_memory(
        ((f"{i}", {"A": A[i], "c": c[i]}) for i in range(len(A))), {"dataset": "quadratic", "generated": True}
    )


def random_problem(
    clients: int, d: int, heterogeneity: float, seed: int
) -> tuple[Float[np.ndarray, "N d d"], Float[np.ndarray, "N d"]]:
    """Return random positive definite matrices with eigenvalues in [0.1, 1], and random centres.

    Heterogeneity 0 gives every client the matrix 0.55 I and the centre (1, ..., 1). The centres spread in proportion
    to the heterogeneity, the eigenvalues up to heterogeneity 1.
    """
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
    """Return the task of a given problem, or of a random one.

    Args:
      A: the clients' matrices, see `quadratic_store`; None for a random problem.
      c: the clients' centres.
      p: the clients' weights; they must be equal.
      clients: the number of clients of a random problem.
      heterogeneity: the heterogeneity of a random problem.
      seed: the seed of a random problem.
      dtype: the dtype of the parameters.
      d: the dimension of a random problem.
    """
    if A is None:
        A, c = random_problem(CLIENTS if clients is None else clients, d, heterogeneity, seed)
    if p is not None and not np.allclose(p, 1 / len(np.asarray(p)), rtol=1e-12):
        raise ValueError("p must be uniform, because training samples clients uniformly; repeat clients to weigh them")
    store = quadratic_store(A, c)
    dimension = np.shape(A)[-1]

    def eval_view(examples: Mapping[str, Any]) -> dict[str, Any]:
        return {name: examples[name].astype(dtype) for name in ("A", "c")}

    def outcomes(x: Any, batch: Mapping[str, Any]) -> Outcomes:
        gap = x - batch["c"]
        loss = jnp.einsum("bi,bij,bj->b", gap, batch["A"], gap) / 2
        return Outcomes(loss, jnp.zeros_like(loss), jnp.zeros_like(loss))

    return Task(
        "quadratic",
        store,
        init=lambda key: jnp.zeros(dimension, dtype),
        view=lambda key, examples: eval_view(examples),
        eval_view=eval_view,
        outcomes=outcomes,
        settings=SETTINGS.for_store(store),
    )
