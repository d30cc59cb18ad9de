r"""The LSTM over a whole sequence, from a zero state.

.. math::
    (i, f, g, o)_t = x_t W + h_{t-1} U + b, \qquad
    c_t = \sigma(f_t) c_{t-1} + \sigma(i_t) \tanh(g_t), \qquad
    h_t = \sigma(o_t) \tanh(c_t)

The conventions are those of Keras: one kernel W (in, 4 units), one recurrent kernel U (units, 4 units),
one bias b (4 units), gates in the order input, forget, cell, output. (Flax's `OptimizedLSTMCell` has the
same gates, in the same order, as separate parameters: concatenate its ``ii, if, ig, io`` for W and its
``hi, hf, hg, ho`` for U and b.)

The transpose of a loop over time adds up U's gradient step by step: T products of thin matrices. The fast
form goes backwards in time for the gates' gradients alone and has U's gradient from one product at the
end. Both forms take x W out of the loop.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from lur.models.layers.dense import dense, flat, transposed_times
from lur.models.layers.forms import Form, is_fast

LARGE = 2**20
"""Weights in U beyond which U^T is not formed: that took as long as eight products with it, of 20 for a sentence."""


def lstm(
    x: Float[Array, "B T in"],
    kernel: Float[Array, "in gates"],
    recurrent: Float[Array, "units gates"],
    bias: Float[Array, "gates"],
    *,
    form: Form = "auto",
) -> Float[Array, "B T units"]:
    """All outputs h_1, ..., h_T of an LSTM started at h_0 = c_0 = 0.

    The fast form is for reverse mode. Second derivatives differentiate its two loops as JAX would, so
    they are right and no quicker than the plain form's.
    """
    units = recurrent.shape[0]
    wanted = ((x.shape[-1], 4 * units), (units, 4 * units), (4 * units,))
    if x.ndim != 3 or (kernel.shape, recurrent.shape, bias.shape) != wanted:
        got = f"{kernel.shape}, {recurrent.shape}, {bias.shape} for x of {x.shape}"
        raise ValueError(f"kernel, recurrent and bias must be (in, 4 units), (units, 4 units), (4 units,), got {got}")
    inputs = dense(x.swapaxes(0, 1), kernel, bias, form=form)
    return (recurrence if is_fast(form) else outputs)(inputs, recurrent).swapaxes(0, 1)


def outputs(inputs: Float[Array, "T B gates"], recurrent: Float[Array, "units gates"]) -> Float[Array, "T B units"]:
    """h_1, ..., h_T from the projected inputs x_t W + b."""
    return states(inputs, recurrent)[0]


def states(inputs: Array, recurrent: Array) -> tuple[Array, Array, Array]:
    """The outputs, the cells and the activated gates at all times."""

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
    """`outputs` with the gradient written out."""
    return outputs(inputs, recurrent)


def forward(inputs: Array, recurrent: Array):
    h, c, gates = states(inputs, recurrent)
    return h, (h, c, gates, recurrent)


def backward(kept: tuple[Array, ...], dy: Array) -> tuple[Array, Array]:
    h, c, gates, recurrent = kept
    back = times_transposed_weights if recurrent.size > LARGE else jnp.matmul
    weights = recurrent if recurrent.size > LARGE else recurrent.T

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
    return dz, transposed_times(flat(h[:-1]), flat(dz[1:]))


recurrence.defvjp(forward, backward)


def times_transposed_weights(
    dz: Float[Array, "B gates"], recurrent: Float[Array, "units gates"]
) -> Float[Array, "B units"]:
    """dz U^T as (U dz^T)^T, with the two small transposes written out.

    The library then reads U in the order in which it lies; asked for dz U^T it takes half as long again.
    """
    return lax.optimization_barrier(recurrent @ lax.optimization_barrier(dz.T)).T


def delayed(values: Float[Array, "T B units"]) -> Float[Array, "T B units"]:
    """The values one step before: zero at first."""
    return jnp.concatenate([jnp.zeros_like(values[:1]), values[:-1]])


def unit_forget_bias(key: Any, shape: tuple[int], dtype: Any = jnp.float32) -> Float[Array, "gates"]:
    """Keras's initial bias: ones for the forget gate, zeros for the others."""
    del key
    return jnp.zeros((4, shape[0] // 4), dtype).at[1].set(1).reshape(shape)


class LSTM(nn.Module):
    """An LSTM layer with Keras's initialisers: glorot uniform kernel, orthogonal recurrent kernel, forget bias one."""

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
