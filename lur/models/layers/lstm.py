r"""The LSTM over a whole sequence, from a zero state.

.. math::
    (i, f, g, o)_t = x_t W + h_{t-1} U + b, \qquad
    c_t = \sigma(f_t) c_{t-1} + \sigma(i_t) \tanh(g_t), \qquad
    h_t = \sigma(o_t) \tanh(c_t)

The conventions are those of Keras: one kernel W (in, 4 units), one recurrent kernel U (units, 4 units),
one bias b (4 units), gates in the order input, forget, cell, output. (Flax's `OptimizedLSTMCell` has the
same gates, in the same order, as separate parameters: concatenate its ``ii, if, ig, io`` for W and its
``hi, hf, hg, ho`` for U and b.)

The transpose of a loop over time accumulates U's gradient step by step, in T products of thin matrices. In the fast
form the backward loop computes only the gates' gradients, and U's gradient is one product at the end. Both forms
compute x W outside the loop.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from lur.models.layers.dense import dense, flatten_leading, transposed_times
from lur.models.layers.forms import Form, is_fast

MAX_TRANSPOSED_SIZE = 2**20
"""Size of U above which U^T is not formed: forming it took as long as eight of the 20 products of a sentence."""


def lstm(
    x: Float[Array, "B T in"],
    kernel: Float[Array, "in gates"],
    recurrent: Float[Array, "units gates"],
    bias: Float[Array, "gates"],
    *,
    form: Form = "auto",
) -> Float[Array, "B T units"]:
    """Return the outputs h_1, ..., h_T of an LSTM with h_0 = c_0 = 0.

    The fast form has reverse-mode derivatives only. Its second derivatives differentiate the two loops as JAX would, so
    they are correct and as slow as those of the plain form.

    Args:
      x: the inputs.
      kernel: W.
      recurrent: U.
      bias: b.
      form: the form of the gradients, see `lur.models.layers.forms`.
    """
    units = recurrent.shape[0]
    expected = ((x.shape[-1], 4 * units), (units, 4 * units), (4 * units,))
    if x.ndim != 3 or (kernel.shape, recurrent.shape, bias.shape) != expected:
        got = f"{kernel.shape}, {recurrent.shape}, {bias.shape} for x of {x.shape}"
        raise ValueError(f"kernel, recurrent and bias must be (in, 4 units), (units, 4 units), (4 units,), got {got}")
    inputs = dense(x.swapaxes(0, 1), kernel, bias, form=form)
    return (recurrence if is_fast(form) else outputs)(inputs, recurrent).swapaxes(0, 1)


def outputs(inputs: Float[Array, "T B gates"], recurrent: Float[Array, "units gates"]) -> Float[Array, "T B units"]:
    """Return h_1, ..., h_T from the projected inputs x_t W + b."""
    return states(inputs, recurrent)[0]


def states(inputs: Array, recurrent: Array) -> tuple[Array, Array, Array]:
    """Return the outputs, the cells and the activated gates at all times."""

    def step(carry, inputs_t):
        h, c = carry
        i, f, g, o = jnp.split(inputs_t + h @ recurrent, 4, axis=-1)
        i, f, g, o = nn.sigmoid(i), nn.sigmoid(f), jnp.tanh(g), nn.sigmoid(o)
        c = f * c + i * g
        h = o * jnp.tanh(c)
        return (h, c), (h, c, jnp.concatenate([i, f, g, o], axis=-1))

    zero = jnp.zeros((inputs.shape[1], recurrent.shape[0]), inputs.dtype)
    return lax.scan(step, (zero, zero), inputs)[1]


@jax.custom_vjp
def recurrence(inputs: Array, recurrent: Array) -> Array:
    """Return `outputs`, with an explicit gradient."""
    return outputs(inputs, recurrent)


def forward(inputs: Array, recurrent: Array):
    h, c, gates = states(inputs, recurrent)
    return h, (h, c, gates, recurrent)


def backward(residuals: tuple[Array, ...], dy: Array) -> tuple[Array, Array]:
    h, c, gates, recurrent = residuals
    back = times_transposed_weights if recurrent.size > MAX_TRANSPOSED_SIZE else jnp.matmul
    weights = recurrent if recurrent.size > MAX_TRANSPOSED_SIZE else recurrent.T

    def step(carry, inputs):
        dh, dc = carry
        dy_t, c, c_before, gates = inputs
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        dh, squashed = dh + dy_t, jnp.tanh(c)
        dc = dc + dh * o * (1 - squashed * squashed)
        di = dc * g * i * (1 - i)
        df = dc * c_before * f * (1 - f)
        dg = dc * i * (1 - g * g)
        do = dh * squashed * o * (1 - o)
        dz = jnp.concatenate([di, df, dg, do], axis=-1)
        return (back(dz, weights), dc * f), dz

    zero = jnp.zeros_like(h[0])
    dz = lax.scan(step, (zero, zero), (dy, c, delayed(c), gates), reverse=True)[1]
    return dz, transposed_times(flatten_leading(h[:-1]), flatten_leading(dz[1:]))


recurrence.defvjp(forward, backward)


def times_transposed_weights(
    dz: Float[Array, "B gates"], recurrent: Float[Array, "units gates"]
) -> Float[Array, "B units"]:
    """Return dz U^T as (U dz^T)^T, with the two small transposes materialised.

    The library then reads U in memory order; dz U^T itself takes half as long again.
    """
    return lax.optimization_barrier(recurrent @ lax.optimization_barrier(dz.T)).T


def delayed(values: Float[Array, "T B units"]) -> Float[Array, "T B units"]:
    """Return the values one step earlier, zero at the first step."""
    return jnp.concatenate([jnp.zeros_like(values[:1]), values[:-1]])


def unit_forget_bias(key: Any, shape: tuple[int], dtype: Any = jnp.float32) -> Float[Array, "gates"]:
    """Return Keras's initial bias: ones for the forget gate, zeros for the others."""
    del key
    return jnp.zeros((4, shape[0] // 4), dtype).at[1].set(1).reshape(shape)


class LSTM(nn.Module):
    """An LSTM layer with Keras's initialisers: glorot uniform kernel, orthogonal recurrent kernel, forget bias one.

    Attributes:
      units: the number of units.
      dtype: the dtype of parameters and activations.
      form: the form of the gradients, see `lur.models.layers.forms`.
    """

    units: int
    dtype: Any = jnp.float32
    form: Form = "auto"

    @nn.compact
    def __call__(self, x: Float[Array, "B T in"]) -> Float[Array, "B T units"]:
        gates = 4 * self.units
        kernel = self.param("kernel", nn.initializers.glorot_uniform(), (x.shape[-1], gates), self.dtype)
        recurrent = self.param("recurrent", nn.initializers.orthogonal(), (self.units, gates), self.dtype)
        bias = self.param("bias", unit_forget_bias, (gates,), self.dtype)
        return lstm(x, kernel, recurrent, bias, form=self.form)
