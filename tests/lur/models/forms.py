"""The comparison of the fast with the plain form of a layer: values and derivatives in every use."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

compiled = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
"""`jax.jit` for functions that run once, without optimisation: most of the time of these tests is compilation."""


def normal(seed: int, *shape: int, dtype=jnp.float64):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def random_params(model, *inputs, dtype=jnp.float64):
    """Return normal parameters for a model, faster than its initialiser."""
    shapes = jax.eval_shape(model.init, jax.random.key(0), *inputs)
    return jax.tree.map(lambda leaf: 0.3 * normal(leaf.size, *leaf.shape, dtype=dtype), shapes)


def assert_close(left, right, tol=1e-12):
    """Equal trees of arrays, to `tol` relative to each array's largest entry."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=0, atol=tol * max(1.0, float(np.abs(b).max(initial=0))))


def curved_scalar(layer):
    """Return a curved scalar function of a layer's outputs, so that second derivatives depend on all of them."""

    def value(*args):
        y = layer(*args)
        weights = jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape)
        return jnp.sum(weights * y + 0.5 * jnp.sin(y))

    return value


def all_argnums(args):
    return tuple(range(len(args)))


def gradients(layer, *args):
    """The layer's values and the gradients of its curved scalar in all arguments."""
    return compiled(lambda *a: (layer(*a), jax.grad(curved_scalar(layer), all_argnums(a))(*a)))(*args)


def hessian_products(layer, *args):
    """The Hessian times the gradient, as the gradient of |gradient|^2 / 2: reverse over reverse, as MAML takes it."""

    def norm(*args):
        return sum(0.5 * jnp.sum(g * g) for g in jax.grad(curved_scalar(layer), all_argnums(args))(*args))

    return jax.grad(norm, all_argnums(args))(*args)


def local_steps(layer, x, *weights):
    """Return the weights after a scan of gradient steps on `layer(x, *weights)`."""

    def step(weights, _):
        grads = jax.grad(lambda w: curved_scalar(layer)(x, *w))(weights)
        return jax.tree.map(lambda w, g: w - 0.01 * g, weights, grads), None

    return jax.lax.scan(step, weights, None, length=3)[0]


def all_uses(layer, *args):
    """Second derivatives, and the local loops of three clients, each with its own inputs and weights."""

    def compute(*args):
        clients = [jnp.stack([a, 0.5 * a, -a]) for a in args]
        loops = jax.vmap(lambda *a: local_steps(layer, *a))(*clients)
        return hessian_products(layer, *args), loops

    return compiled(compute)(*args)


def assert_equal_forms(fast, plain, x, *weights):
    """Values, gradients, second derivatives, inside scan, and with one set of weights per client."""
    assert_close(gradients(fast, x, *weights), gradients(plain, x, *weights))
    assert_close(
        all_uses(fast, x, *weights),
        all_uses(plain, x, *weights),
        1e-11,
    )
