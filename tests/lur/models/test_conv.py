"""Convolution with explicit gradients and max-pooling by slices equal the library's."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lur.models.layers import conv2d, max_pool
from lur.models.layers.conv import WINOGRAD_MAX_PIXELS, WINOGRAD_MIN_CHANNELS
from lur.models.layers.winograd import winograd3x3
from tests.lur.models.forms import assert_close, assert_equal_forms, gradients, normal

# size, kernel, strides: odd and even sizes and kernels, strides that leave rows over, kernels as large as the image.
SHAPES = [
    ((6, 6), (3, 3), 1),
    ((7, 5), (5, 5), 1),
    ((7, 6), (3, 3), 2),
    ((8, 7), (2, 4), 2),
    ((6, 5), (1, 1), 2),
    ((9, 8), (7, 7), 2),
    ((5, 5), (5, 5), 1),
    ((10, 9), (3, 2), (3, 1)),
]


@pytest.mark.x64
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("size", "kernel", "strides"), SHAPES)
def test_gradients_are_the_plain_ones(size, kernel, strides, padding):
    x, w = normal(0, 2, *size, 3), normal(1, *kernel, 3, 4)
    fast, plain = (partial(conv2d, strides=strides, padding=padding, form=form) for form in ("fast", "plain"))
    assert_close(fast(x, w), plain(x, w), 1e-14)
    assert_close(gradients(fast, x, w), gradients(plain, x, w), 1e-14)


@pytest.mark.x64
@pytest.mark.parametrize(("size", "kernel", "strides"), [((5, 6), (3, 3), 1), ((7, 6), (3, 3), 2)])
def test_equal_in_every_use(size, kernel, strides):
    x, w = normal(0, 2, *size, 2), normal(1, *kernel, 2, 3)
    fast, plain = (partial(conv2d, strides=strides, form=form) for form in ("fast", "plain"))
    assert_equal_forms(fast, plain, x, w)


@pytest.mark.x64
@pytest.mark.parametrize("size", [(6, 4), (5, 4), (1, 3)])
def test_winograd(size):
    x, w = normal(0, 2, *size, 3), normal(1, 3, 3, 3, 4)
    assert_close(gradients(winograd3x3, x, w), gradients(partial(conv2d, form="plain"), x, w), 1e-13)


@pytest.mark.x64
def test_winograd_equal_in_every_use():
    assert_equal_forms(winograd3x3, partial(conv2d, form="plain"), normal(0, 1, 3, 4, 2), normal(1, 3, 3, 2, 2))


def test_winograd_is_for_many_channels_of_small_images():
    def uses_winograd(channels: int, form: str = "fast", width: int = 3, **options):
        x, w = jnp.zeros((1, 4, width, channels)), jnp.zeros((3, 3, channels, WINOGRAD_MIN_CHANNELS))
        return "conv_general_dilated" not in str(jax.make_jaxpr(partial(conv2d, form=form, **options))(x, w))

    assert uses_winograd(WINOGRAD_MIN_CHANNELS)
    assert not uses_winograd(WINOGRAD_MIN_CHANNELS - 1)
    assert uses_winograd(WINOGRAD_MIN_CHANNELS, width=WINOGRAD_MAX_PIXELS // 4)
    assert not uses_winograd(WINOGRAD_MIN_CHANNELS, width=WINOGRAD_MAX_PIXELS // 4 + 1)
    assert not uses_winograd(WINOGRAD_MIN_CHANNELS, "plain")
    assert not uses_winograd(WINOGRAD_MIN_CHANNELS, padding="VALID")
    assert not uses_winograd(WINOGRAD_MIN_CHANNELS, strides=2)


def test_single_precision():
    x, w = normal(0, 4, 8, 8, 8, dtype=jnp.float32), normal(1, 5, 5, 8, 8, dtype=jnp.float32)
    plain = gradients(partial(conv2d, form="plain"), x, w)
    assert_close(gradients(partial(conv2d, form="fast"), x, w), plain, 1e-6)
    w = w[:3, :3]
    assert_close(gradients(winograd3x3, x, w), gradients(partial(conv2d, form="plain"), x, w), 5e-6)


def test_empty_batch():
    assert conv2d(jnp.zeros((0, 4, 4, 1)), jnp.zeros((3, 3, 1, 2)), form="fast").shape == (0, 4, 4, 2)


@pytest.mark.x64
@pytest.mark.parametrize(
    ("size", "window", "stride", "padding"),
    [
        ((6, 4), 2, 2, "VALID"),
        ((7, 5), 2, 2, "VALID"),
        ((8, 8), 3, 2, "SAME"),
        ((7, 6), 3, 2, "SAME"),
        ((3, 3), 3, 1, "VALID"),
    ],
)
def test_pooling(size, window, stride, padding):
    fast, plain = (
        partial(max_pool, window=window, stride=stride, padding=padding, form=form) for form in ("fast", "plain")
    )
    x = normal(0, 2, *size, 3)
    for images in (x, jnp.asarray(np.round(x))):  # the second full of ties
        assert_close(gradients(jax.vmap(fast), images[None]), gradients(jax.vmap(plain), images[None]), 0)
    assert jnp.isnan(fast(x.at[0, 0, 1, 0].set(jnp.nan))[0, 0, 0, 0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, w: conv2d(x[0], w), "kernel must be"),
        (lambda x, w: conv2d(x, w[:, :, :1]), "kernel must be"),
        (lambda x, w: conv2d(x, w, padding="FULL"), "padding must be 'SAME' or 'VALID', got 'FULL'"),
        (lambda x, w: conv2d(x, w, strides=0), "strides must be one or two integers >= 1, got 0"),
        (lambda x, w: conv2d(x, w, form="slow"), "form must be 'auto', 'fast' or 'plain', got 'slow'"),
        (lambda x, w: max_pool(x[0]), "x must be"),
        (lambda x, w: max_pool(x, 0), "window and stride must be >= 1"),
        (lambda x, w: max_pool(x[:, :1]), "at least as large as the window"),
    ],
)
def test_invalid_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(jnp.zeros((1, 4, 4, 2)), jnp.zeros((3, 3, 2, 2)))


def test_forward_mode_is_refused():
    x, w = jnp.zeros((1, 4, 4, 1)), jnp.zeros((3, 3, 1, 1))
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(partial(conv2d, form="fast"), (x, w), (x, w))
    jax.jvp(partial(conv2d, form="plain"), (x, w), (x, w))
