"""The mini-batches of one client in a round, which hide where they come from and which steps are padding."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree


class Batches(NamedTuple):
    """The mini-batches of one client, read when a local step needs them.

    Attributes:
      steps: pytree with leading axis K: what `read` needs to make the mini-batch of a step.
      read: ``read(step) -> batch``, the mini-batch of one entry of `steps`.
      is_step: which of the K steps this client takes; the others are padding. None if it takes all of them.
      key: the random key of this client in this round, for clients that draw, such as those that quantise. It is the
        same in every layout, and the mini-batches do not depend on it. None outside a round.
    """

    steps: PyTree
    read: Callable[[PyTree], PyTree] = lambda step: step
    is_step: Bool[Array, "K"] | None = None
    key: Key[Array, ""] | None = None

    def scan(self, step: Callable[..., tuple[PyTree, Any]], carry: PyTree, *per_step: PyTree) -> tuple[PyTree, Any]:
        """Scan ``step(carry, batch, *values) -> (carry, output)`` over the local steps.

        Args:
          step: one local step. A padding step leaves the carry as it is, and its output is zero.
          carry: the first carry.
          per_step: pytrees with leading axis K, such as rates and weights; `values` are their entries.
        """

        def read_and_step(carry: PyTree, inputs: Any) -> tuple[PyTree, Any]:
            source, is_step, values = inputs
            new, output = step(carry, self.read(source), *values)
            if is_step is not None:
                new = jax.tree.map(partial(jnp.where, is_step), new, carry)
                output = jax.tree.map(lambda leaf: jnp.where(is_step, leaf, jnp.zeros_like(leaf)), output)
            return new, output

        return jax.lax.scan(read_and_step, carry, (self.steps, self.is_step, per_step))

    def arrays(self) -> PyTree:
        """Return all mini-batches, with leading axes (K, B)."""
        return jax.vmap(self.read)(self.steps)

    def padded_with_first(self) -> "Batches":
        """Return the same mini-batches with the first one in the place of padding, for clients that differentiate them.

        A loss may be nan without examples. A padding step is not selected, but its derivative is multiplied by zero.
        """
        if self.is_step is None:
            return self
        index = jnp.where(self.is_step, jnp.arange(len(self.is_step), dtype=jnp.int32), 0)
        return self._replace(steps=jax.tree.map(lambda leaf: leaf[index], self.steps))

    def between(self, first: int, end: int) -> "Batches":
        """Return the mini-batches of the steps first, ..., end - 1, counted from 0."""
        steps, is_step = jax.tree.map(lambda leaf: leaf[first:end], (self.steps, self.is_step))
        return self._replace(steps=steps, is_step=is_step)

    def mean(self, function: Callable[[PyTree], Float[Array, ""]]) -> Float[Array, ""]:
        """Return the mean of ``function(batch)`` over the steps that this client takes."""
        _, values = self.scan(lambda carry, batch: (carry, function(batch)), ())
        return values.sum() / (len(values) if self.is_step is None else self.is_step.sum().astype(values.dtype))

    def first(self) -> PyTree:
        """Return the mini-batch of the first step."""
        return self.read(jax.tree.map(lambda leaf: leaf[0], self.steps))


BatchesOf = Callable[[Any, PyTree], Batches]
"""``batches_of(source, batches of one client) -> Batches``."""


def given_batches(t: Int[Array, ""], client: tuple[PyTree, Int[Array, ""]]) -> Batches:
    """Return the mini-batches of a client in round t from (arrays with leading axes (K, B), index of the client)."""
    arrays, i = client
    key = jax.random.key(0, impl="threefry2x32")  # the bits of other generators depend on vmapped axes
    return Batches(arrays, key=jax.random.fold_in(jax.random.fold_in(key, t), i))


def given_batches_of_steps(t: Int[Array, ""], client: tuple[PyTree, Int[Array, ""], Int[Array, ""]]) -> Batches:
    """Return given mini-batches of a client that takes the first K_i steps, from (arrays, index, K_i)."""
    arrays, i, K_i = client
    batches = given_batches(t, (arrays, i))
    supplied = jax.tree.leaves(arrays)[0].shape[0]
    return batches._replace(is_step=jnp.arange(supplied, dtype=K_i.dtype) < K_i)
