r"""Cross-entropies from logits, one number per position, with their gradients written out.

The softmax's gradient needs the logits and one normaliser per position:

.. math:: \ell(z, y) = \log\sum_v e^{z_v} - z_y, \qquad \partial_{z_v} \ell = e^{z_v - \log\sum e^z} - 1[v = y],

so that no second array as wide as the vocabulary is kept between the two passes.
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
    """Minus the log probability of each position's label. Labels outside 0, ..., classes - 1 give nan."""
    if labels.shape != logits.shape[:-1] or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(f"labels must be integers of shape {logits.shape[:-1]}, got {labels.dtype} of {labels.shape}")
    if is_fast(form):
        return fused_softmax(logits, labels)
    return -chosen(jax.nn.log_softmax(logits), labels)


def sigmoid_cross_entropy(
    logits: Float[Array, "*shape"], labels: Float[Array, "*shape"], *, form: Form = "auto"
) -> Float[Array, "*shape"]:
    """Minus the log probability of independent binary labels, which may be any numbers in [0, 1].

    The value is softplus(z) - z y. The common max(z, 0) - z y + log(1 + exp(-|z|)) is equal, but is
    differentiated wrongly at z = 0, where a model of zeros starts.
    """
    if labels.shape != logits.shape:
        raise ValueError(f"labels must have the shape of logits, {logits.shape}, got {labels.shape}")
    return (fused_sigmoid if is_fast(form) else binary_entropy)(logits, labels)


def chosen(values: Float[Array, "*positions classes"], labels: Int[Array, "*positions"]) -> Float[Array, "*positions"]:
    """Each position's value at its label; nan where there is none."""
    inside = (labels >= 0) & (labels < values.shape[-1])
    at = jnp.take_along_axis(values, jnp.where(inside, labels, 0)[..., None], axis=-1)[..., 0]
    return jnp.where(inside, at, jnp.asarray(jnp.nan, values.dtype))


@jax.custom_vjp
def fused_softmax(logits: Array, labels: Array) -> Array:
    """The normaliser minus the label's logit."""
    return jax.nn.logsumexp(logits, axis=-1) - chosen(logits, labels)


def softmax_forward(logits: Array, labels: Array):
    normaliser = jax.nn.logsumexp(logits, axis=-1)
    return normaliser - chosen(logits, labels), (logits, labels, normaliser)


def softmax_backward(kept: tuple[Array, Array, Array], ct: Array):
    logits, labels, normaliser = kept
    classes = lax.broadcasted_iota(labels.dtype, logits.shape, logits.ndim - 1)
    hit = (classes == labels[..., None]).astype(logits.dtype)
    return (jnp.exp(logits - normaliser[..., None]) - hit) * ct[..., None], no_gradient(labels)


fused_softmax.defvjp(softmax_forward, softmax_backward)


def binary_entropy(logits: Array, labels: Array) -> Array:
    """softplus(z) - z y."""
    return jax.nn.softplus(logits) - logits * labels


@jax.custom_vjp
def fused_sigmoid(logits: Array, labels: Array) -> Array:
    """`binary_entropy` with the gradient sigmoid(z) - y."""
    return binary_entropy(logits, labels)


def sigmoid_forward(logits: Array, labels: Array):
    return binary_entropy(logits, labels), (logits, labels)


def sigmoid_backward(kept: tuple[Array, Array], ct: Array):
    logits, labels = kept
    return (jax.nn.sigmoid(logits) - labels) * ct, -logits * ct


fused_sigmoid.defvjp(sigmoid_forward, sigmoid_backward)


def no_gradient(integers: Array) -> np.ndarray:
    """The gradient of an integer argument, as JAX spells it."""
    return np.zeros(integers.shape, jax.dtypes.float0)
