"""Gathering rows equals the product with the dense bag."""

import jax
import jax.numpy as jnp
import pytest

from lur.models.layers import bag_of_words
from lur.models.layers.sparse import dense_bags
from tests.lur.models.forms import assert_close, assert_equal_forms, normal

IDS = jnp.array([[0, 4, 4, 1], [6, 2, 0, 0]], jnp.int32)


@pytest.mark.x64
def test_equal_in_every_use():
    fast, plain = (
        lambda values, kernel, f=form: bag_of_words(IDS, values, kernel, form=f) for form in ("fast", "plain")
    )
    assert_equal_forms(fast, plain, normal(0, 2, 4).at[1, 3].set(0.0), normal(1, 7, 3))


@pytest.mark.x64
def test_ids_of_clients_and_of_no_batch():
    ids = jnp.stack([IDS, IDS[::-1]])
    values, kernels = normal(0, 2, 2, 4), normal(1, 2, 7, 3)
    fast, plain = (
        jax.vmap(jax.grad(lambda k, i, v, f=form: jnp.sum(bag_of_words(i, v, k, form=f) ** 2)))(kernels, ids, values)
        for form in ("fast", "plain")
    )
    assert_close(fast, plain)
    assert_close(
        bag_of_words(IDS[0], values[0, 0], kernels[0], form="fast"), dense_bags(IDS[0], values[0, 0], 7) @ kernels[0]
    )


@pytest.mark.parametrize("form", ["fast", "plain"])
@pytest.mark.parametrize("word", [-1, 7])
def test_words_outside_give_nan(form, word):
    out = bag_of_words(jnp.array([[word], [1]]), jnp.ones((2, 1)), jnp.ones((7, 3)), form=form)
    assert jnp.isnan(out[0]).all()
    assert (out[1] == 1).all()


def test_invalid_arguments_are_refused():
    with pytest.raises(ValueError, match=r"ids must be integers of values' shape \(2, 4\), got int32 of \(4,\)"):
        bag_of_words(IDS[0], jnp.zeros((2, 4)), jnp.zeros((7, 3)))
