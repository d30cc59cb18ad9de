"""Small random problems with losses in jax and gradients written out in numpy, for tests of the methods."""

import jax.numpy as jnp
import numpy as np


def logistic_loss(params, batch):
    """Regularised logistic regression with a bias: a loss that is not quadratic, on a pytree of parameters."""
    z = batch["x"] @ params["w"] + params["b"]
    return jnp.mean(jnp.logaddexp(0.0, z) - batch["y"] * z) + 0.05 * jnp.sum(params["w"] ** 2)


def logistic_gradient(params, batch):
    """The gradient of `logistic_loss`, written out in numpy."""
    z = batch["x"] @ params["w"] + params["b"]
    residual = 1 / (1 + np.exp(-z)) - batch["y"]
    return {"w": batch["x"].T @ residual / len(z) + 0.1 * params["w"], "b": residual.mean()}


def logistic_value(params, batch):
    """`logistic_loss` in numpy."""
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
    """Random weights and a random bias."""
    generator = np.random.default_rng(seed)
    return {"w": generator.standard_normal(d).astype(dtype), "b": np.asarray(generator.standard_normal(), dtype)}


def take(batches, *index):
    """Indexes every array of a dict of batches."""
    return {name: value[index] for name, value in batches.items()}


def add(x, y, scale=1.0):
    """Returns x + scale * y for dicts of arrays."""
    return {name: x[name] + scale * y[name] for name in x}


def quadratic_loss(x, batch):
    """Mean of (x - c)^T A (x - c) / 2 over a batch (A, c)."""
    A, c = batch
    difference = x[None] - c
    return 0.5 * jnp.mean(jnp.einsum("bi,bij,bj->b", difference, A, difference))


def random_quadratic(seed, n, d, low=0.5, high=2.0):
    """Returns A (n, d, d), c (n, d), p (n,) of n clients: eigenvalues in [low, high], random minimisers and weights."""
    generator = np.random.default_rng(seed)
    bases = np.linalg.qr(generator.standard_normal((n, d, d)))[0]
    eigenvalues = generator.uniform(low, high, (n, d))
    A = np.einsum("nik,nk,njk->nij", bases, eigenvalues, bases)
    return (A + A.swapaxes(1, 2)) / 2, generator.standard_normal((n, d)), generator.dirichlet(np.full(n, 5.0))


def descent_batches(A, c, K):
    """Batches of gradient descent clients: the example (A_i, c_i) at each of K steps, with leading axes (n, K, 1)."""
    return tuple(np.broadcast_to(v[:, None, None], (len(v), K, 1, *v.shape[1:])) for v in (A, c))
