r"""The local surrogate at a trained model: does the quadratic theory carry over to this network? Matrix-free.

The Jacobian of InnerLoop, mean over clients, :math:`J = E_i[\partial_x \mathrm{InnerLoop}(i, x, \gamma, \Theta)]`, is
on quadratics the surrogate's Hessian :math:`E_i[Q_i A_i]`. Here it is taken at a model x, with gradient descent
clients, and compared with what the theory makes of the local Hessians :math:`H_i = \nabla^2 f_i(x)` alone,
:math:`P = E_i[Q_i(\gamma, \Theta) H_i]`, :math:`Q_i = \sum_k \theta_k (I - \gamma H_i)^{k-1}`.

Only products with vectors are formed: (depth + probes) times a small number of Hessian-vector products per client and
local step. Memory: `depth` vectors of the model's size for Lanczos, and K for the transposed product.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from lur._extras import optional_imports
from lur.data.gather import gather
from lur.methods.client import inner_loop
from lur.tasks.task import Task
from lur.theta import Theta, fedavg, nonzero


class Spectrum(NamedTuple):
    """Extreme eigenvalues by Lanczos.

    Attributes:
        smallest: Smallest eigenvalue.
        largest: Largest eigenvalue.
        smallest_error: Bound on the distance of `smallest` from an eigenvalue.
        largest_error: Bound on the distance of `largest` from an eigenvalue.
    """

    smallest: float
    largest: float
    smallest_error: float
    largest_error: float

    @property
    def condition_number(self) -> float:
        """Largest over smallest, which Lanczos approaches from below; infinite if the smallest is not positive."""
        return self.largest / self.smallest if self.smallest > 0 else float("inf")


class Diagnosis(NamedTuple):
    """The local surrogate for one gamma and Theta.

    Random probes estimate the Frobenius norms of `asymmetry` and `jacobian_gap`.

    Attributes:
        gamma: Client rate.
        theta: Weights.
        jacobian: Spectrum of (J + J^T)/2.
        predicted: Spectrum of P, from Hessians at x alone.
        asymmetry: ||J - J^T|| / ||J||, which is 0 if there is a surrogate loss.
        jacobian_gap: ||J - P|| / ||J||.
        message_gap: ||q - Q grad f|| / ||q||, mean over clients.
        products: Number of Hessian-vector products.
    """

    gamma: float
    theta: Theta
    jacobian: Spectrum
    predicted: Spectrum
    asymmetry: float
    jacobian_gap: float
    message_gap: float
    products: int


def diagnose(
    task: Task,
    params: PyTree,
    *,
    gammas: Sequence[float] | None = None,
    thetas: Sequence[Sequence[float]] | None = None,
    clients: int = 8,
    examples: int = 32,
    depth: int = 20,
    probes: int = 4,
    seed: int = 0,
) -> list[Diagnosis]:
    """Estimate the local surrogate at `params` for every Theta and gamma.

    Args:
      gammas: client rates; by default a third, once and three times the task's.
      thetas: weights; by default FedAvg with 1, 5 and 10 steps. With one step gamma plays no part, and one is tried.
      clients: how many clients the mean is over, drawn at random among those with enough examples.
      examples: of each client; its loss is the mean over them, and all are used at every step (gradient descent).
      depth: Lanczos steps.
      probes: random vectors for norms.
    """
    for name, value in (("clients", clients), ("examples", examples), ("depth", depth), ("probes", probes)):
        if isinstance(value, bool) or int(value) != value or value < 1:
            raise ValueError(f"{name} must be an integer >= 1, got {value!r}")
    rate = task.settings.client_lr
    gammas = (rate / 3, rate, 3 * rate) if gammas is None else tuple(gammas)
    weights = [nonzero(theta) for theta in (thetas or (fedavg(1), fedavg(5), fedavg(10)))]
    if not gammas or not all(np.isfinite(gamma) and gamma >= 0 for gamma in gammas):
        raise ValueError(f"gammas must be finite and >= 0, at least one, got {gammas}")
    data = client_data(task, clients, examples, seed)
    x, unravel = ravel_pytree(params)
    depth, key = min(depth, x.size), jax.random.key(seed)
    found = []
    for theta in weights:
        for gamma in gammas[:1] if len(theta) == 1 else gammas:
            raw = _measure(task.loss, unravel, theta, depth, probes, x, data, jnp.asarray(gamma, x.dtype), key)
            ritz, ritz_predicted, skew, off, gap = jax.tree.map(np.asarray, raw)
            M = len(jax.tree.leaves(data)[0])
            spent = M * (len(theta) * (3 * depth + 3 * probes) + len(theta) - 1)
            found.append(
                Diagnosis(
                    float(gamma),
                    theta,
                    spectrum(*ritz),
                    spectrum(*ritz_predicted),
                    float(skew),
                    float(off),
                    float(gap),
                    spent,
                )
            )
    return found


def client_data(task: Task, clients: int, examples: int, seed: int) -> PyTree:
    """Whole-data batches of some clients, with axes (clients, examples)."""
    store, rng = task.store, np.random.default_rng([seed, 9])
    enough = np.flatnonzero(store.sizes >= examples)
    pool = enough if len(enough) >= min(clients, store.clients) else np.argsort(-store.sizes)[:clients]
    chosen = np.sort(rng.choice(pool, min(clients, len(pool)), replace=False))
    count = min(examples, int(store.sizes[chosen].min()))
    if count < 1:
        raise ValueError(f"the store must have {clients} clients with examples, got one without")
    batches = []
    for i in chosen:
        rows = store.offsets[i] + rng.permutation(int(store.sizes[i]))[:count]
        batches.append(task.eval_view(jax.tree.map(jnp.asarray, gather(dict(store.features), store.widths, rows))))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)


def spectrum(values: Any, bounds: Any) -> Spectrum:
    """The ends of a list of Ritz values with their residual bounds."""
    low, high = int(values.argmin()), int(values.argmax())
    return Spectrum(float(values[low]), float(values[high]), float(bounds[low]), float(bounds[high]))


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _measure(
    loss: Any, unravel: Any, theta: Theta, depth: int, probes: int, x: Any, data: PyTree, gamma: Any, key: Any
):
    with optional_imports("lur.diagnose"):
        from matfree.decomp import tridiag_sym

    K = len(theta)

    def message(x, batch):
        steps = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (K, *leaf.shape)), batch)
        return ravel_pytree(inner_loop(loss, unravel(x), steps, gamma, theta)[0])[0]

    def gradient(x, batch):
        return jax.grad(lambda x: loss(unravel(x), batch))(x)

    def curved(batch, v):
        """H_i v. In reverse mode only, as layers with a gradient of their own have no other; H_i is symmetric."""
        return jax.vjp(lambda x: gradient(x, batch), x)[1](v)[0]

    def distorted(batch, v):
        """Q_i v, with the Hessian of a client at x."""

        def step(carry, theta_k):
            total, power = carry
            return (total + theta_k * power, power - gamma * curved(batch, power)), None

        weights = jnp.asarray(theta, x.dtype)
        return jax.lax.scan(step, (jnp.zeros_like(v), v), weights)[0][0]

    def over_clients(of):
        """The mean over clients, one at a time."""
        total, _ = jax.lax.scan(lambda s, batch: (s + of(batch), None), jnp.zeros_like(x), data)
        return total / len(jax.tree.leaves(data)[0])

    def jacobian(v):
        def of(batch):
            pull = jax.vjp(lambda x: message(x, batch), x)[1]
            return jax.vjp(lambda u: pull(u)[0], jnp.zeros_like(v))[1](v)[0]  # the transpose of the transpose

        return over_clients(of)

    def transposed(v):
        return over_clients(lambda batch: jax.vjp(lambda x: message(x, batch), x)[1](v)[0])

    def predicted(v):
        return over_clients(lambda batch: distorted(batch, curved(batch, v)))

    def ritz(matvec, v):
        _, T, residual, _ = tridiag_sym(depth, custom_vjp=False)(matvec, v)
        values, vectors = jnp.linalg.eigh(T)
        return values, jnp.linalg.norm(residual) * jnp.abs(vectors[-1])

    first, *others = jax.random.split(key, probes + 1)
    start = jax.random.normal(first, x.shape, x.dtype)

    def probe(key):
        v = jax.random.rademacher(key, x.shape, x.dtype)
        Jv, Jtv, Pv = jacobian(v), transposed(v), predicted(v)
        return jnp.stack([jnp.sum((Jv - Jtv) ** 2), jnp.sum((Jv - Pv) ** 2), jnp.sum(Jv**2)])

    skew, off, size = jax.lax.map(probe, jnp.stack(others)).mean(0)

    def gap(batch):
        q = message(x, batch)
        return jnp.linalg.norm(q - distorted(batch, gradient(x, batch))) / jnp.linalg.norm(q)

    gaps = jax.lax.map(gap, data)
    symmetric = ritz(lambda v: (jacobian(v) + transposed(v)) / 2, start)
    return symmetric, ritz(predicted, start), jnp.sqrt(skew / size), jnp.sqrt(off / size), gaps.mean()
