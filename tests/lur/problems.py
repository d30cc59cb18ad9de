"""Small random problems, and their gradients in plain numpy, for tests of the algorithms."""

import jax.numpy as jnp
import numpy as np


def logistic_loss(params, batch):
    """Regularised logistic regression with a bias: not a quadratic, and a pytree of parameters."""
    z = batch["x"] @ params["w"] + params["b"]
    return jnp.mean(jnp.logaddexp(0.0, z) - batch["y"] * z) + 0.05 * jnp.sum(params["w"] ** 2)


def logistic_gradient(params, batch):
    """Its gradient by hand, in numpy."""
    z = batch["x"] @ params["w"] + params["b"]
    residual = 1 / (1 + np.exp(-z)) - batch["y"]
    return {"w": batch["x"].T @ residual / len(z) + 0.1 * params["w"], "b": residual.mean()}


def logistic_value(params, batch):
    """The loss in numpy."""
    z = batch["x"] @ params["w"] + params["b"]
    return np.mean(np.logaddexp(0.0, z) - batch["y"] * z) + 0.05 * np.sum(params["w"] ** 2)


def logistic_batches(seed, *leading, d=3, dtype=np.float64):
    """Random features and 0/1 labels with the given leading axes."""
    generator = np.random.default_rng(seed)
    return {
        "x": generator.standard_normal((*leading, d)).astype(dtype),
        "y": generator.integers(0, 2, leading).astype(dtype),
    }


def logistic_params(seed, d=3, dtype=np.float64):
    generator = np.random.default_rng(seed)
    return {"w": generator.standard_normal(d).astype(dtype), "b": np.asarray(generator.standard_normal(), dtype)}


def take(batches, *index):
    """One mini-batch of a tree of batches."""
    return {name: value[index] for name, value in batches.items()}


def add(x, y, scale=1.0):
    """x + scale y for dicts of arrays."""
    return {name: x[name] + scale * y[name] for name in x}


def quadratic_loss(x, batch):
    """The mean of (x - c)^T A (x - c) / 2 over a batch (A, c)."""
    A, c = batch
    gap = x[None] - c
    return 0.5 * jnp.mean(jnp.einsum("bi,bij,bj->b", gap, A, gap))


def random_quadratic(seed, n, d, low=0.5, high=2.0):
    """n clients with eigenvalues in [low, high] and random minimisers: A (n, d, d), c (n, d), p (n,)."""
    generator = np.random.default_rng(seed)
    frames = np.linalg.qr(generator.standard_normal((n, d, d)))[0]
    eigenvalues = generator.uniform(low, high, (n, d))
    A = np.einsum("nik,nk,njk->nij", frames, eigenvalues, frames)
    return (A + A.swapaxes(1, 2)) / 2, generator.standard_normal((n, d)), generator.dirichlet(np.full(n, 5.0))


def descent_batches(A, c, K):
    """Gradient descent clients: the same single example (A_i, c_i) at each of K steps, axes (n, K, 1)."""
    return tuple(np.broadcast_to(v[:, None, None], (len(v), K, 1, *v.shape[1:])) for v in (A, c))
