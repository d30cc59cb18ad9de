r"""QSGD: clients send updates of few bits per number, randomly rounded so that their mean stays right.

Alistarh, Grubic, Li, Tomioka and Vojnović, *QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding*,
2017, Section 3.1. With s levels, an array v of n numbers is sent as its norm and, for every number, a sign and a level:

.. math::
    Q(v)_j = \|v\| \, \mathrm{sign}(v_j) \, \xi_j / s, \qquad
    \xi_j = \lfloor r_j \rfloor + \mathrm{Bernoulli}(r_j - \lfloor r_j \rfloor), \qquad r_j = s |v_j| / \|v\|.

Each array of the update has a norm of its own (a bucket, there). Then (Lemma 3.1) Q is unbiased, and

.. math:: E \|Q(v) - v\|^2 \le \min(n / s^2, \sqrt n / s) \, \|v\|^2.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from lur import _checks
from lur.methods.clipping import wrap_client
from lur.methods.method import Batches, Broadcast, ClientOutput, Method


def quantize(key: Any, v: Float[Array, "..."], levels: int) -> Float[Array, "..."]:
    """Return Q(v), of an array with one norm."""
    dtype = _checks.widest_dtype(v.dtype, jnp.float32)
    scale = jnp.linalg.norm(v.astype(dtype).reshape(-1)) / levels
    r = jnp.where(scale > 0, jnp.abs(v.astype(dtype)) / scale, 0)
    xi = jnp.floor(r) + (jax.random.uniform(key, v.shape, dtype) < r - jnp.floor(r)).astype(dtype)
    return (scale * jnp.sign(v.astype(dtype)) * xi).astype(v.dtype)


class Quantized(NamedTuple):
    """A client whose update is quantised, with the key of the client in this round.

    Attributes:
      client_update: the client.
      levels: s.
    """

    client_update: Callable[[Broadcast, PyTree, Batches], ClientOutput]
    levels: int

    def __call__(self, broadcast: Broadcast, client_state: PyTree, batches: Batches) -> ClientOutput:
        if batches.key is None:
            raise ValueError("batches must have the key of this client in this round, which rounds give to clients")
        key, own_key = jax.random.split(batches.key)
        output = self.client_update(broadcast, client_state, batches._replace(key=key))
        leaves, structure = jax.tree.flatten(output.update)
        sent = [
            quantize(*each, self.levels) for each in zip(jax.random.split(own_key, len(leaves)), leaves, strict=True)
        ]
        return output._replace(update=structure.unflatten(sent))


def quantized(method: Method, bits: int) -> Method:
    """Return the method with updates that are quantised, without bias, to a sign and `bits` bits per number.

    Args:
      method: a method in its reference form.
      bits: from 1 to 16, of the levels 0, 1, ..., s = 2^bits - 1. With 1 bit a number is sent as 0 or +- the norm.
    """
    count = _checks.positive_integer("bits", bits)
    if count > 16:
        raise ValueError(f"bits must be at most 16, since updates in float32 have 24, got {bits}")
    return wrap_client(method, partial(Quantized, levels=2**count - 1))
