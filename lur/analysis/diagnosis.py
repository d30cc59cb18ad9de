r"""The local surrogate at a trained model, matrix-free: does the theory of quadratics apply to this network?

On quadratics, the mean over clients of the Jacobian of InnerLoop,
:math:`J = E_i[\partial_x \mathrm{InnerLoop}(i, x, \gamma, \Theta)]`, is the surrogate's Hessian :math:`E_i[Q_i A_i]`.
This module computes J at a model x, with gradient descent clients, and compares it with the prediction of the theory
from the local Hessians :math:`H_i = \nabla^2 f_i(x)` alone, :math:`P = E_i[Q_i(\gamma, \Theta) H_i]` with
:math:`Q_i = \sum_k \theta_k (I - \gamma H_i)^{k-1}`.

Only products with vectors are computed: (depth + probes) times a few Hessian-vector products per client and local step.
Lanczos keeps `depth` vectors of the size of the model in memory, and the transposed product K.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from lur._extras import optional_imports
from lur.data.gather import gather
from lur.methods.compiled import jit_per_settings
from lur.methods.inner_loop import inner_loop
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
        """Largest over smallest, a lower bound of the condition number; infinite if the smallest is not positive."""
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
        update_gap: ||q - Q grad f|| / ||q|| for a client's update q, mean over clients.
        products: Number of Hessian-vector products.
    """

    gamma: float
    theta: Theta
    jacobian: Spectrum
    predicted: Spectrum
    asymmetry: float
    jacobian_gap: float
    update_gap: float
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
    """Estimate the local surrogate at a model for every Theta and gamma.

    Args:
      task: the task.
      params: the parameters of the model.
      gammas: client learning rates; by default 1/3, 1 and 3 times the task's.
      thetas: weights; by default FedAvg with 1, 5 and 10 steps. One step does not depend on gamma, so it is tried with
        the first gamma only.
      clients: the number of clients in the mean, drawn at random among those with at least `examples` examples.
      examples: the number of examples of each client; every local step uses all of them (gradient descent).
      depth: the number of Lanczos steps.
      probes: the number of random vectors for the estimates of norms.
      seed: the seed of the clients, examples and random vectors.

    Returns:
      One diagnosis for each Theta and gamma.
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
    diagnoses = []
    for theta in weights:
        for gamma in gammas[:1] if len(theta) == 1 else gammas:
            estimates = _estimate(task.loss, unravel, theta, depth, probes, x, data, jnp.asarray(gamma, x.dtype), key)
            ritz, ritz_predicted, asymmetry, jacobian_gap, update_gap = jax.tree.map(np.asarray, estimates)
            M = len(jax.tree.leaves(data)[0])
            products = M * (len(theta) * (3 * depth + 3 * probes) + len(theta) - 1)
            diagnoses.append(
                Diagnosis(
                    float(gamma),
                    theta,
                    spectrum(*ritz),
                    spectrum(*ritz_predicted),
                    float(asymmetry),
                    float(jacobian_gap),
                    float(update_gap),
                    products,
                )
            )
    return diagnoses


def client_data(task: Task, clients: int, examples: int, seed: int) -> PyTree:
    """Return one batch per client, stacked along axes (clients, examples)."""
    store, rng = task.store, np.random.default_rng([seed, 9])
    large = np.flatnonzero(store.sizes >= examples)
    pool = large if len(large) >= min(clients, store.clients) else np.argsort(-store.sizes)[:clients]
    chosen = np.sort(rng.choice(pool, min(clients, len(pool)), replace=False))
    count = min(examples, int(store.sizes[chosen].min()))
    if count < 1:
        raise ValueError(f"the store must have {clients} clients with examples, got a client without")
    batches = []
    for i in chosen:
        rows = store.offsets[i] + rng.permutation(int(store.sizes[i]))[:count]
        batches.append(task.eval_view(jax.tree.map(jnp.asarray, gather(dict(store.features), store.widths, rows))))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)


def spectrum(values: Any, bounds: Any) -> Spectrum:
    """Return the extreme Ritz values with their residual bounds."""
    low, high = int(values.argmin()), int(values.argmax())
    return Spectrum(float(values[low]), float(values[high]), float(bounds[low]), float(bounds[high]))


@jit_per_settings(5)
def _estimate(
    loss: Any, unravel: Any, theta: Theta, depth: int, probes: int, x: Any, data: PyTree, gamma: Any, key: Any
):
    with optional_imports("lur.diagnose"):
        from matfree.decomp import tridiag_sym

    K = len(theta)

    def update(x, batch):
        steps = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (K, *leaf.shape)), batch)
        return ravel_pytree(inner_loop(loss, unravel(x), steps, gamma, theta)[0])[0]

    def gradient(x, batch):
        return jax.grad(lambda x: loss(unravel(x), batch))(x)

    def hessian_product(batch, v):
        """Return H_i v, by reverse mode only, since layers with explicit gradients have no other; H_i is symmetric."""
        return jax.vjp(lambda x: gradient(x, batch), x)[1](v)[0]

    def distortion_product(batch, v):
        """Return Q_i v, with the Hessian of a client at x."""

        def step(carry, theta_k):
            total, power = carry
            return (total + theta_k * power, power - gamma * hessian_product(batch, power)), None

        weights = jnp.asarray(theta, x.dtype)
        return jax.lax.scan(step, (jnp.zeros_like(v), v), weights)[0][0]

    def mean_over_clients(term):
        """Return the mean over clients, computed one client at a time."""
        total, _ = jax.lax.scan(lambda s, batch: (s + term(batch), None), jnp.zeros_like(x), data)
        return total / len(jax.tree.leaves(data)[0])

    def jacobian(v):
        def term(batch):
            pull = jax.vjp(lambda x: update(x, batch), x)[1]
            return jax.vjp(lambda u: pull(u)[0], jnp.zeros_like(v))[1](v)[0]  # the transpose of the transpose

        return mean_over_clients(term)

    def jacobian_transposed(v):
        return mean_over_clients(lambda batch: jax.vjp(lambda x: update(x, batch), x)[1](v)[0])

    def predicted(v):
        return mean_over_clients(lambda batch: distortion_product(batch, hessian_product(batch, v)))

    def ritz(matvec, v):
        _, T, residual, _ = tridiag_sym(depth, custom_vjp=False)(matvec, v)
        values, vectors = jnp.linalg.eigh(T)
        return values, jnp.linalg.norm(residual) * jnp.abs(vectors[-1])

    start_key, *probe_keys = jax.random.split(key, probes + 1)
    start = jax.random.normal(start_key, x.shape, x.dtype)

    def probe(key):
        v = jax.random.rademacher(key, x.shape, x.dtype)
        Jv, Jtv, Pv = jacobian(v), jacobian_transposed(v), predicted(v)
        return jnp.stack([jnp.sum((Jv - Jtv) ** 2), jnp.sum((Jv - Pv) ** 2), jnp.sum(Jv**2)])

    asymmetry, difference, norm = jax.lax.map(probe, jnp.stack(probe_keys)).mean(0)

    def gap(batch):
        q = update(x, batch)
        return jnp.linalg.norm(q - distortion_product(batch, gradient(x, batch))) / jnp.linalg.norm(q)

    gaps = jax.lax.map(gap, data)
    symmetric = ritz(lambda v: (jacobian(v) + jacobian_transposed(v)) / 2, start)
    return symmetric, ritz(predicted, start), jnp.sqrt(asymmetry / norm), jnp.sqrt(difference / norm), gaps.mean()
