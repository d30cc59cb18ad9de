"""The explicit gradient of the linear layer."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest

from lur.models.layers import Dense, dense, inner
from tests.lur.models.forms import assert_close, assert_equal_forms, gradients, normal

FAST, PLAIN = partial(dense, form="fast"), partial(dense, form="plain")


@pytest.mark.x64
def test_equal_in_every_use():
    assert_equal_forms(FAST, PLAIN, normal(0, 2, 3, 4), normal(1, 4, 5), normal(2, 5))


@pytest.mark.x64
@pytest.mark.parametrize("batch", [(), (1,), (0,), (3, 0), (2, 1, 3)])
def test_leading_axes(batch):
    args = normal(0, *batch, 4), normal(1, 4, 5), normal(2, 5)
    assert_close(gradients(FAST, *args), gradients(PLAIN, *args))


def test_parameters_are_those_of_flax():
    layer, x = Dense(5), jnp.ones((2, 3))
    shapes = jax.tree.map(jnp.shape, layer.init(jax.random.key(0), x))
    assert shapes == {"params": {"kernel": (3, 5), "bias": (5,)}}


@pytest.mark.parametrize(("kernel", "bias"), [((3, 5), (5,)), ((4, 5), (4,)), ((4,), (5,)), ((4, 5), (5, 1))])
def test_invalid_shapes_are_refused(kernel, bias):
    with pytest.raises(ValueError, match=r"kernel and bias must be \(in, out\) and \(out,\)"):
        dense(jnp.ones((2, 4)), jnp.ones(kernel), jnp.ones(bias))


@pytest.mark.x64
@pytest.mark.parametrize("batch", [(), (1,), (0,), (2, 3)])
def test_inner_product(batch):
    forms = (partial(inner, form=form) for form in ("fast", "plain"))
    assert_equal_forms(*forms, normal(0, *batch, 40), normal(1, 40))


@pytest.mark.parametrize(("x", "w"), [((2, 4), (3,)), ((2, 4), (4, 1)), ((), ())])
def test_invalid_shapes_of_the_inner_product_are_refused(x, w):
    with pytest.raises(ValueError, match=r"w must be \("):
        inner(jnp.ones(x), jnp.ones(w))
