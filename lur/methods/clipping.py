r"""Clipped updates, and Gaussian noise on their mean (DP-FedAvg).

McMahan, Ramage, Talwar and Zhang, *Learning Differentially Private Recurrent Language Models*, 2018. With the norm C,
the noise multiplier z and M clients per round, the server steps along

.. math::
    \frac1M \Big( \sum_{i \in I_t} u_i \min\Big(1, \frac{C}{\|u_i\|}\Big) + z C \, \mathcal N(0, I) \Big).

`lur.methods.privacy` says which privacy this gives.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, UInt32

from lur import _checks
from lur.methods.method import Batches, Broadcast, ClientOutput, Cohort, Method, RoundInfo, ServerState, tree_norm

ClientUpdate = Callable[[Broadcast, PyTree, Batches], ClientOutput]


def wrap_client(method: Method, wrap: Callable[[ClientUpdate], ClientUpdate]) -> Method:
    """Return the method with another client around its client."""
    if method.cohort_update is not None:
        raise ValueError("method must be in its reference form, got a rewrite of the mean over clients")
    if isinstance(method.server_update, NoisyServerUpdate):
        raise ValueError("method must be without noise, since noise is for updates that nothing changes after the clip")
    return method._replace(client_update=wrap(method.client_update))


class Clipped(NamedTuple):
    r"""A client whose update u is scaled to :math:`u \min(1, C / \|u\|)`.

    Attributes:
      client_update: the client.
      clip: C.
    """

    client_update: ClientUpdate
    clip: float

    def __call__(self, broadcast: Broadcast, client_state: PyTree, batches: Batches) -> ClientOutput:
        output = self.client_update(broadcast, client_state, batches)
        dtype = _checks.widest_dtype(broadcast.client_lr.dtype, jnp.float32)
        factor = jnp.minimum(1, jnp.asarray(self.clip, dtype) / tree_norm(output.update, dtype))
        scaled = jax.tree.map(lambda leaf: (factor * leaf.astype(dtype)).astype(leaf.dtype), output.update)
        return output._replace(update=scaled)


def clipped(method: Method, clip: float) -> Method:
    """Return the method with updates whose Euclidean norm, over all arrays together, is at most `clip`.

    `RoundInfo.client_norms` are the norms after clipping.

    Args:
      method: a method in its reference form.
      clip: C > 0.
    """
    clip = _checks.positive_number("clip", clip)
    return wrap_client(method, partial(Clipped, clip=clip))


class NoiseState(NamedTuple):
    """What the server of a method with noise keeps in `ServerState.method_state`.

    Attributes:
      key: the data of the random key of all noise.
      method_state: that of the method without noise.
    """

    key: UInt32[Array, "2"]
    method_state: PyTree


def without_noise_state(state: ServerState) -> ServerState:
    """Return the state as the method without noise knows it."""
    return state._replace(method_state=state.method_state.method_state)


class InitNoise(NamedTuple):
    """``init(params, client_lr, server_lr) -> ServerState`` with the key of the noise.

    Attributes:
      init_server: that of the method without noise.
      seed: of the noise.
    """

    init_server: Callable[[PyTree, Any, Any], ServerState]
    seed: int

    def __call__(self, params: PyTree, client_lr: Any, server_lr: Any) -> ServerState:
        state = self.init_server(params, client_lr, server_lr)
        key = jax.random.key_data(jax.random.key(np.uint32(self.seed), impl="threefry2x32"))
        return state._replace(method_state=NoiseState(key, state.method_state))


class WithoutNoiseState(NamedTuple):
    """A function of the state of the method without noise, of the state with it.

    Attributes:
      function: ``broadcast`` or ``model`` of the method without noise.
    """

    function: Callable[[ServerState], Any]

    def __call__(self, state: ServerState) -> Any:
        return self.function(without_noise_state(state))


class NoisyServerUpdate(NamedTuple):
    """``server_update`` along the mean update with Gaussian noise.

    Attributes:
      server_update: that of the method without noise.
      clip: C.
      noise_multiplier: z.
    """

    server_update: Callable[[ServerState, PyTree, Cohort], tuple[ServerState, RoundInfo]]
    clip: float
    noise_multiplier: float

    def __call__(self, state: ServerState, update: PyTree, cohort: Cohort) -> tuple[ServerState, RoundInfo]:
        own: NoiseState = state.method_state
        key = jax.random.fold_in(jax.random.wrap_key_data(own.key, impl="threefry2x32"), state.round)
        noisy = add_noise(key, update, self.noise_multiplier * self.clip / cohort.size)
        state, info = self.server_update(without_noise_state(state), noisy, cohort)
        return state._replace(method_state=NoiseState(own.key, state.method_state)), info


def add_noise(key: Any, update: PyTree, deviation: float) -> PyTree:
    """Return the update with independent Gaussian noise of this standard deviation at every entry."""
    leaves, structure = jax.tree.flatten(update)

    def add(key: Any, leaf: Array) -> Array:
        dtype = _checks.widest_dtype(leaf.dtype, jnp.float32)
        noise = jnp.asarray(deviation, dtype) * jax.random.normal(key, leaf.shape, dtype)
        return (leaf.astype(dtype) + noise).astype(leaf.dtype)

    return structure.unflatten(map(add, jax.random.split(key, len(leaves)), leaves))


def with_noise(method: Method, noise_multiplier: float, *, seed: int = 0) -> Method:
    r"""Return the method with Gaussian noise on the mean of its clipped updates.

    The noise has standard deviation :math:`z C / M` at every entry of the mean, which is z C on the sum of M updates of
    norm at most C. Weights must be uniform: with others, one client would move the mean by more than C / M. The same
    seed gives the same noise in every layout, and in every cell and seed of a grid.

    What this keeps private is the mean update. The server has no other access to the clients' data if it uses nothing
    else of the cohort: a decay rule uses their losses, FedExP the norms of their updates. `RoundInfo` reports these as
    they are.

    Args:
      method: ``clipped(method, C)``.
      noise_multiplier: z > 0.
      seed: of the noise, from 0 to 2^32 - 1.
    """
    z, seed = _checks.positive_number("noise_multiplier", noise_multiplier), int(_checks.seed("seed", seed))
    if isinstance(method.server_update, NoisyServerUpdate):
        raise ValueError("method must be without noise, got one with noise already")
    if not isinstance(method.client_update, Clipped):
        raise ValueError(
            f"method must be clipped(method, clip), since the noise is for updates of bounded norm, got a client that "
            f"is {type(method.client_update).__name__}"
        )
    if method.prepare is not None:
        raise ValueError("method must have one exchange per round, got one whose first exchange has no noise")
    return method._replace(
        init_server=InitNoise(method.init_server, seed),
        broadcast=WithoutNoiseState(method.broadcast),
        model=WithoutNoiseState(method.model),
        server_update=NoisyServerUpdate(method.server_update, method.client_update.clip, z),
        uniform_weights=True,
    )
