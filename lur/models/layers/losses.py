r"""Cross-entropies from logits, one number per position, with explicit gradients.

The softmax's gradient needs the logits and one normaliser per position:

.. math:: \ell(z, y) = \log\sum_v e^{z_v} - z_y, \qquad \partial_{z_v} \ell = e^{z_v - \log\sum e^z} - 1[v = y],

so no second array as wide as the vocabulary is kept between the two passes.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from lur.models.layers.forms import Form, is_fast


def softmax_cross_entropy(
    logits: Float[Array, "*positions classes"], labels: Int[Array, "*positions"], *, form: Form = "auto"
) -> Float[Array, "*positions"]:
    """Return minus the log probability of each position's label; nan for labels outside 0, ..., classes - 1."""
    if labels.shape != logits.shape[:-1] or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(f"labels must be integers of shape {logits.shape[:-1]}, got {labels.dtype} of {labels.shape}")
    if is_fast(form):
        return fused_softmax(logits, labels)
    return -values_at(jax.nn.log_softmax(logits), labels)


def sigmoid_cross_entropy(
    logits: Float[Array, "*shape"], labels: Float[Array, "*shape"], *, form: Form = "auto"
) -> Float[Array, "*shape"]:
    """Return minus the log probability of independent binary labels, which may be any numbers in [0, 1].

    The value is softplus(z) - z y. The common max(z, 0) - z y + log(1 + exp(-|z|)) is equal, but automatic
    differentiation of it is wrong at z = 0, where a model of zeros starts.
    """
    if labels.shape != logits.shape:
        raise ValueError(f"labels must have the shape of logits, {logits.shape}, got {labels.shape}")
    return (fused_sigmoid if is_fast(form) else binary_cross_entropy)(logits, labels)


def values_at(
    values: Float[Array, "*positions classes"], labels: Int[Array, "*positions"]
) -> Float[Array, "*positions"]:
    """Return each position's value at its label; nan for labels outside the classes."""
    inside = (labels >= 0) & (labels < values.shape[-1])
    selected = jnp.take_along_axis(values, jnp.where(inside, labels, 0)[..., None], axis=-1)[..., 0]
    return jnp.where(inside, selected, jnp.asarray(jnp.nan, values.dtype))


@jax.custom_vjp
def fused_softmax(logits: Array, labels: Array) -> Array:
    """Return the log normaliser minus the label's logit, with an explicit gradient."""
    return jax.nn.logsumexp(logits, axis=-1) - values_at(logits, labels)


def softmax_forward(logits: Array, labels: Array):
    normaliser = jax.nn.logsumexp(logits, axis=-1)
    return normaliser - values_at(logits, labels), (logits, labels, normaliser)


def softmax_backward(residuals: tuple[Array, Array, Array], ct: Array):
    logits, labels, normaliser = residuals
    classes = lax.broadcasted_iota(labels.dtype, logits.shape, logits.ndim - 1)
    hit = (classes == labels[..., None]).astype(logits.dtype)
    return (jnp.exp(logits - normaliser[..., None]) - hit) * ct[..., None], no_gradient(labels)


fused_softmax.defvjp(softmax_forward, softmax_backward)


def binary_cross_entropy(logits: Array, labels: Array) -> Array:
    """Return softplus(z) - z y."""
    return jax.nn.softplus(logits) - logits * labels


@jax.custom_vjp
def fused_sigmoid(logits: Array, labels: Array) -> Array:
    """Return `binary_cross_entropy`, with the explicit gradient sigmoid(z) - y."""
    return binary_cross_entropy(logits, labels)


def sigmoid_forward(logits: Array, labels: Array):
    return binary_cross_entropy(logits, labels), (logits, labels)


def sigmoid_backward(residuals: tuple[Array, Array], ct: Array):
    logits, labels = residuals
    return (jax.nn.sigmoid(logits) - labels) * ct, -logits * ct


fused_sigmoid.defvjp(sigmoid_forward, sigmoid_backward)


def no_gradient(integers: Array) -> np.ndarray:
    """Return the gradient of an integer argument, which JAX represents as float0."""
    return np.zeros(integers.shape, jax.dtypes.float0)
