"""What "equal" means for the fast and the plain form of a layer: values and derivatives wherever lur uses them."""

import jax
import jax.numpy as jnp
import numpy as np


def normal(seed: int, *shape: int, dtype=jnp.float64):
    return jax.random.normal(jax.random.key(seed), shape, dtype)


def assert_close(left, right, tol=1e-12):
    """Equal trees of arrays, to `tol` relative to each array's largest entry."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=tol * max(1.0, float(jnp.abs(b).max())))


def bowl(layer):
    """A scalar of a layer's outputs with curvature, so that second derivatives see all of them."""

    def value(*args):
        y = layer(*args)
        weights = jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape)
        return jnp.sum(weights * y + 0.5 * jnp.sin(y))

    return value


def gradients(layer, *args):
    """Gradients of the bowl in all arguments."""
    return jax.jit(jax.grad(bowl(layer), argnums=tuple(range(len(args)))))(*args)


def hessian_products(layer, *args):
    """The gradient of |gradient|^2 / 2, in reverse over reverse mode as MAML takes it: the Hessian times the gradient."""

    def norm(*args):
        grads = jax.grad(bowl(layer), argnums=tuple(range(len(args))))(*args)
        return sum(0.5 * jnp.sum(g * g) for g in grads)

    return jax.jit(jax.grad(norm, argnums=tuple(range(len(args)))))(*args)


def descended(layer, x, *weights, steps=3):
    """Weights after a scan of gradient steps on `layer(x, *weights)`."""

    def step(weights, _):
        grads = jax.grad(lambda w: bowl(layer)(x, *w))(weights)
        return jax.tree.map(lambda w, g: w - 0.01 * g, weights, grads), None

    return jax.jit(lambda weights: jax.lax.scan(step, weights, None, length=steps)[0])(weights)


def assert_equal_forms(fast, plain, x, *weights):
    """Values, gradients, second derivatives, inside scan, and with one set of weights per client."""
    assert_close(jax.jit(fast)(x, *weights), plain(x, *weights))
    assert_close(gradients(fast, x, *weights), gradients(plain, x, *weights))
    assert_close(hessian_products(fast, x, *weights), hessian_products(plain, x, *weights), 1e-11)
    assert_close(descended(fast, x, *weights), descended(plain, x, *weights))
    clients = [jnp.stack([a, 0.5 * a, -a]) for a in (x, *weights)]
    assert_close(jax.vmap(fast)(*clients), jax.vmap(plain)(*clients))
    per_client = [jax.vmap(lambda *a, f=f: gradients(f, *a))(*clients) for f in (fast, plain)]
    assert_close(*per_client)
    one_by_one = [gradients(plain, *[a[i] for a in clients]) for i in range(3)]
    assert_close(per_client[0], jax.tree.map(lambda *a: jnp.stack(a), *one_by_one))
    loops = [jax.vmap(lambda *a, f=f: descended(f, *a))(*clients) for f in (fast, plain)]
    assert_close(*loops)
