"""Cross-entropies: values and derivatives, also at large logits and at zero, and equality of both forms."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lur.models.layers import sigmoid_cross_entropy, softmax_cross_entropy
from tests.lur.models.forms import assert_close, assert_equal_forms, compiled, normal

FORMS = pytest.mark.parametrize("form", ["fast", "plain"])


@pytest.mark.x64
def test_softmax_equal_in_every_use():
    labels = jnp.array([[0, 3, 6], [1, 1, 5]])
    fast, plain = (lambda z, f=form: softmax_cross_entropy(z, labels, form=f) for form in ("fast", "plain"))
    assert_equal_forms(lambda x, z: fast(x * z), lambda x, z: plain(x * z), normal(0, 2, 3, 7), normal(1, 2, 3, 7))


@pytest.mark.x64
def test_softmax_of_clients():
    z, labels = normal(0, 4, 3, 7), jnp.arange(12).reshape(4, 3) % 7
    fast, plain = (
        compiled(jax.vmap(jax.grad(lambda z, y, f=form: softmax_cross_entropy(z, y, form=f).sum())))(z, labels)
        for form in ("fast", "plain")
    )
    assert_close(fast, plain)


@pytest.mark.x64
def test_sigmoid_equal_in_every_use():
    fast, plain = (partial(sigmoid_cross_entropy, form=form) for form in ("fast", "plain"))
    assert_equal_forms(fast, plain, normal(0, 3, 5), jax.nn.sigmoid(normal(1, 3, 5)))


@FORMS
@pytest.mark.x64
def test_values(form):
    z, y = normal(0, 5, 3), jnp.array([0, 2, 1, 1, 0])
    p = jax.nn.softmax(z)[jnp.arange(5), y]
    assert_close(softmax_cross_entropy(z, y, form=form), -jnp.log(p))
    t = jax.nn.sigmoid(normal(1, 5, 3))
    q = 1 / (1 + jnp.exp(-z))
    assert_close(sigmoid_cross_entropy(z, t, form=form), -t * jnp.log(q) - (1 - t) * jnp.log(1 - q))


@FORMS
def test_large_logits(form):
    z = jnp.array([[1e4, 0.0, -1e4]])
    value, grad = jax.value_and_grad(lambda z: softmax_cross_entropy(z, jnp.array([2]), form=form).sum())(z)
    assert value == 2e4
    np.testing.assert_array_equal(grad, [[1.0, 0.0, -1.0]])
    y = jnp.array([[0.0, 1.0, 1.0]])
    value, grad = jax.value_and_grad(lambda z: sigmoid_cross_entropy(z, y, form=form).sum())(z)
    np.testing.assert_allclose(value, 2e4 + np.log(2), rtol=1e-6)
    np.testing.assert_array_equal(grad, [[1.0, -0.5, -1.0]])


@FORMS
def test_derivatives_at_zero(form):
    def loss(z, y):
        return sigmoid_cross_entropy(z, jnp.asarray(y), form=form)

    zero = jnp.zeros(())
    assert jax.grad(loss)(zero, 0.0) == 0.5
    assert jax.grad(loss)(zero, 1.0) == -0.5
    assert jax.grad(jax.grad(loss))(zero, 1.0) == 0.25
    squared = jax.grad(lambda z: jax.value_and_grad(loss)(z, 1.0)[0] ** 2)(zero)
    np.testing.assert_allclose(squared, -np.log(2), rtol=1e-6)


@FORMS
@pytest.mark.parametrize("label", [-1, 3])
def test_labels_outside_give_nan(form, label):
    loss = softmax_cross_entropy(jnp.zeros((2, 3)), jnp.array([label, 1]), form=form)
    assert jnp.isnan(loss[0])
    assert not jnp.isnan(loss[1])


def test_invalid_labels_are_refused():
    with pytest.raises(ValueError, match=r"labels must be integers of shape \(2,\), got float32 of \(2,\)"):
        softmax_cross_entropy(jnp.zeros((2, 3)), jnp.zeros(2))
    with pytest.raises(ValueError, match=r"labels must be integers of shape \(2,\), got int32 of \(3,\)"):
        softmax_cross_entropy(jnp.zeros((2, 3)), jnp.zeros(3, jnp.int32))
    with pytest.raises(ValueError, match="labels must have the shape of logits"):
        sigmoid_cross_entropy(jnp.zeros((2, 3)), jnp.zeros(3))
