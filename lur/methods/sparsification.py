r"""Top-k sparsification with error feedback: clients send the k largest entries, and what is left counts next time.

Stich, Cordonnier and Jaggi, *Sparsified SGD with Memory*, 2018, Algorithm 1; for biased compressors in general
Karimireddy, Rebjock, Stich and Jaggi, *Error Feedback Fixes SignSGD and other Gradient Compression Schemes*, 2019.
Client i keeps an error e_i, at first 0. In each of its rounds, with the method's update u_i::

    p   = u_i + e_i
    s   = the k entries of p of the largest magnitude, and 0 elsewhere
    e_i = p - s
    sends s

All arrays of an update are one vector. Of entries of equal magnitude, the first count as larger.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from numbers import Real
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree

from lur import _checks
from lur.methods.clipping import wrap_client
from lur.methods.method import Batches, Broadcast, ClientOutput, Method

UpdateLike = Callable[[PyTree], PyTree]


class ErrorFeedbackState(NamedTuple):
    """What a client with error feedback keeps.

    Attributes:
      error: e_i, what it has not sent so far, shaped like an update.
      client_state: the state of the client without error feedback.
    """

    error: PyTree
    client_state: PyTree


def largest_entries(tree: PyTree, fraction: float) -> PyTree:
    """Return the tree with zeros in the place of all but the ceil(fraction n) of its n entries of largest magnitude."""
    leaves, structure = jax.tree.flatten(tree)
    dtype = _checks.widest_dtype(*(leaf.dtype for leaf in leaves))
    magnitudes = jnp.concatenate([jnp.abs(leaf).astype(dtype).reshape(-1) for leaf in leaves])
    count = math.ceil(Fraction(str(fraction)) * magnitudes.size)  # of the decimal: 0.07 * 100 is above 7 in floats
    _, largest = jax.lax.top_k(magnitudes, count)
    is_sent = jnp.zeros(magnitudes.shape, bool).at[largest].set(True)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
    masks = jnp.split(is_sent, ends)
    sent = [jnp.where(mask.reshape(leaf.shape), leaf, 0) for mask, leaf in zip(masks, leaves, strict=True)]
    return structure.unflatten(sent)


class TopK(NamedTuple):
    """A client that sends the largest entries of its update and of its error.

    Attributes:
      client_update: the client.
      fraction: of the entries that are sent.
    """

    client_update: Callable[[Broadcast, PyTree, Batches], ClientOutput]
    fraction: float

    def __call__(self, broadcast: Broadcast, client_state: ErrorFeedbackState, batches: Batches) -> ClientOutput:
        output = self.client_update(broadcast, client_state.client_state, batches)
        kept, found = (jax.tree.map(jnp.shape, tree) for tree in (client_state.error, output.update))
        if kept != found:
            raise ValueError(
                f"update_like must be shaped like what the clients send, {found}, got {kept}; for example "
                f"lambda params: (params, params) for a pair"
            )
        total = optax.tree.add(output.update, client_state.error)
        sent = largest_entries(total, self.fraction)
        return output._replace(update=sent, state=ErrorFeedbackState(optax.tree.sub(total, sent), output.state))


class InitErrorFeedback(NamedTuple):
    """``(params) -> ErrorFeedbackState`` of a client before its first round.

    Attributes:
      init_client: that of the client without error feedback.
      update_like: ``(params) -> pytree`` shaped like an update.
    """

    init_client: Callable[[PyTree], PyTree]
    update_like: UpdateLike

    def __call__(self, params: PyTree) -> ErrorFeedbackState:
        error = optax.tree.zeros_like(self.update_like(params))
        return ErrorFeedbackState(error, self.init_client(params))


def like_params(params: PyTree) -> PyTree:
    """Return the parameters, which most methods' updates are shaped like."""
    return params


def top_k(method: Method, fraction: float, *, update_like: UpdateLike = like_params) -> Method:
    """Return the method whose clients send only the largest entries of their updates, with error feedback.

    The error is a state of every client, so `Method.init` needs the number of clients N.

    Args:
      method: a method in its reference form.
      fraction: of the n entries of an update, in (0, 1]; k = ceil(fraction n) are sent.
      update_like: ``(params) -> pytree`` shaped like an update, where that is not shaped like the parameters; for
        SCAFFOLD ``lambda params: (params, params)``.
    """
    if isinstance(fraction, bool) or not isinstance(fraction, Real) or not 0 < fraction <= 1:
        raise ValueError(f"fraction must be a number in (0, 1], got {fraction!r}")
    wrapped = wrap_client(method, partial(TopK, fraction=float(fraction)))
    return wrapped._replace(init_client=InitErrorFeedback(method.init_client, update_like))
