"""The models: parameter counts by hand, dtypes, and equality of both forms."""

import jax
import jax.numpy as jnp
import pytest

from lur.methods.maml import maml_gradient
from lur.models import CNN, LSTMLM, LogisticRegression, ResNet18, TagRegression, next_word, shakespeare
from lur.models.layers import softmax_cross_entropy
from tests.lur.models.forms import assert_close, compiled, normal, random_params

IMAGE, CROP, TOKENS = jnp.zeros((1, 28, 28, 1)), jnp.zeros((1, 24, 24, 3)), jnp.zeros((1, 3), jnp.int32)
BAG = (TOKENS, jnp.zeros((1, 3)))

COUNTS = {
    # 5*5*1*32 + 32, 5*5*32*64 + 64, 7*7*64*512 + 512, 512*62 + 62
    "cnn": (CNN(), (IMAGE,), 832 + 51_264 + 1_606_144 + 31_806, 1_690_046),
    # The stem 7*7*3*64 and its norm 2*64; four stages; the last norm 2*512; logits 512*100 + 100. A stage of n from
    # m filters: 9*m*n + 3*9*n*n, the shortcut m*n, norms of m (not in the first stage), n, n (of the shortcut), n, n.
    #   64 from 64:    147,456 +       0 + 2*(3*64)
    #   128 from 64:   516,096 +   8,192 + 2*(64 + 4*128)
    #   256 from 128: 2,064,384 + 32,768 + 2*(128 + 4*256)
    #   512 from 256: 8,257,536 + 131,072 + 2*(256 + 4*512)
    "resnet": (
        ResNet18(),
        (CROP,),
        9_408 + 128 + 147_840 + 525_440 + 2_099_456 + 8_393_216 + 1_024 + 51_300,
        11_227_812,
    ),
    # 90*8, 4*256*(8 + 256 + 1), 4*256*(256 + 256 + 1), 256*90 + 90
    "shakespeare": (shakespeare(), (TOKENS,), 720 + 271_360 + 525_312 + 23_130, 820_522),
    # 10,004*96, 4*670*(96 + 670 + 1), 670*96 + 96, 96*10,004 + 10,004
    "next word": (next_word(), (TOKENS,), 960_384 + 2_055_560 + 64_416 + 970_388, 4_050_748),
    # the same without projection: 670*10,004 + 10,004
    "next word, direct": (next_word(None), (TOKENS,), 960_384 + 2_055_560 + 6_712_684, 9_728_628),
    # 10,000*500 + 500
    "tags": (TagRegression(), BAG, 5_000_000 + 500, 5_000_500),
    # 64*10 + 10
    "digits": (LogisticRegression(), (jnp.zeros((1, 64)),), 640 + 10, 650),
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts(name):
    model, inputs, by_hand, published = COUNTS[name]
    shapes = jax.eval_shape(model.init, jax.random.key(0), *inputs)
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == by_hand == published


@pytest.mark.parametrize("name", COUNTS)
def test_shapes_and_dtypes(name):
    model, inputs, *_ = COUNTS[name]
    params = jax.eval_shape(model.init, jax.random.key(0), *inputs)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(jnp.float32)}
    logits = jax.eval_shape(model.apply, params, *inputs)
    classes = {"cnn": (62,), "resnet": (100,), "shakespeare": (3, 90), "tags": (500,), "digits": (10,)}
    assert logits.shape == (1, *classes.get(name, (3, 10_004)))
    assert logits.dtype == jnp.float32


SMALL = {
    "cnn": (lambda form: CNN(5, (2, 2), 3, jnp.float64, form), (8, 8, 1)),
    "resnet": (lambda form: ResNet18(5, 2, (1, 1), jnp.float64, form), (8, 8, 3)),
    "lstm": (lambda form: LSTMLM(5, 3, (4,), 2, jnp.float64, form), 6),
}


@pytest.mark.x64
@pytest.mark.parametrize("name", SMALL)
def test_models_are_equal_in_both_forms(name):
    build, shape = SMALL[name]
    if isinstance(shape, int):
        x = y = jnp.arange(6 * shape).reshape(3, 2, shape) ** 2 % 5
    else:
        x, y = normal(1, 3, 2, *shape), jnp.array([[0, 4], [2, 2], [1, 3]])
    shapes = jax.eval_shape(build("auto").init, jax.random.key(0), x[0])
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype(jnp.float64)}
    params = random_params(build("auto"), x[0])

    def loss(form):
        return lambda p, batch: softmax_cross_entropy(build(form).apply(p, batch[0]), batch[1], form=form).mean()

    def derivatives(form):
        first = compiled(jax.value_and_grad(loss(form)))(params, (x[0], y[0]))
        second = name == "cnn" and compiled(lambda p: maml_gradient(loss(form), p, (x, y), 0.1, 1))(params)
        return first, second

    assert_close(derivatives("fast"), derivatives("plain"), 1e-11)


@pytest.mark.x64
def test_tag_regression_is_equal_in_both_forms():
    ids, values = jnp.array([[0, 3, 3], [6, 1, 0]]), normal(0, 2, 3)
    fast, plain = (TagRegression(7, 4, jnp.float64, form) for form in ("fast", "plain"))
    params = random_params(fast, ids, values)
    assert_close(fast.apply(params, ids, values), plain.apply(params, ids, values))


def test_cnn_order_of_pooling_bias_and_relu_is_free():
    """Pooling before relu, as in the model, equals relu before pooling, as in the published architecture."""
    model, x = CNN(5, (3, 4), 6), normal(1, 2, 12, 12, 1, dtype=jnp.float32)
    params = random_params(model, x, dtype=jnp.float32)
    layers = params["params"]

    def published(x):
        for name in ("conv1", "conv2"):
            x = jax.lax.conv_general_dilated(
                x, layers[name]["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jnp.maximum(x + layers[name]["bias"], 0.0)
            x = x.reshape(len(x), x.shape[1] // 2, 2, x.shape[2] // 2, 2, -1).max(axis=(2, 4))
        x = jnp.maximum(x.reshape(len(x), -1) @ layers["hidden"]["kernel"] + layers["hidden"]["bias"], 0.0)
        return x @ layers["logits"]["kernel"] + layers["logits"]["bias"]

    assert_close(compiled(model.apply)(params, x), compiled(published)(x), 1e-5)
