"""Threefry against `jax.random` and against the test vectors of its authors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lur.data.threefry import bits, fold_in, key_of, threefry2x32

WORD = st.integers(0, 2**32 - 1)
ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((ONES, ONES), (ONES, ONES), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_known_answers(key, counter, expected):
    """The test vectors of Random123 for threefry2x32 with 20 rounds."""
    wrapped = jax.random.wrap_key_data(jnp.array(key, jnp.uint32), impl="threefry2x32")
    words = threefry2x32(wrapped, *(jnp.uint32(word) for word in counter))
    assert tuple(int(word) for word in words) == expected


@settings(deadline=None, max_examples=30)
@given(WORD, st.integers(0, 2**31 - 1), st.sampled_from([(), (1,), (7,), (3, 5), (0,)]))
def test_same_bits_as_jax(seed, data, shape):
    key, theirs = key_of(np.uint32(seed)), jax.random.key(np.uint32(seed), impl="threefry2x32")
    assert (jax.random.key_data(fold_in(key, data)) == jax.random.key_data(jax.random.fold_in(theirs, data))).all()
    found = bits(key, shape)
    assert found.dtype == jnp.uint32
    np.testing.assert_array_equal(found, jax.random.bits(theirs, shape, jnp.uint32))


def test_same_bits_as_jax_for_many_keys():
    data = np.arange(20, dtype=np.int32)
    keys = jax.jit(jax.vmap(lambda i: fold_in(key_of(3), i)))(data)
    theirs = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(3, impl="threefry2x32"), i))(data)
    found = jax.jit(jax.vmap(lambda key: bits(key, (4, 2))))(keys)
    np.testing.assert_array_equal(found, jax.vmap(lambda key: jax.random.bits(key, (4, 2), jnp.uint32))(theirs))


def test_draws_do_not_depend_on_the_default_generator():
    before = np.asarray(bits(key_of(5), (3,)))
    with jax.default_prng_impl("rbg"):
        np.testing.assert_array_equal(bits(key_of(5), (3,)), before)


def test_too_large_a_shape_is_refused():
    with pytest.raises(ValueError, match="shape must have fewer than 2"):
        bits(key_of(0), (2**16, 2**16))
