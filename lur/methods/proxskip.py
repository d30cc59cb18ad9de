r"""ProxSkip, or Scaffnew: local steps that communicate only when a shared coin says so.

Mishchenko, Malinovsky, Stich and Richtárik, *ProxSkip: Yes! Local Gradient Steps Provably Lead to Communication
Acceleration! Finally!*, 2022, Algorithm 2. Client i keeps a model x_i and a control variate h_i, at first x and 0. In
each iteration all clients do ::

    x^_i = x_i - gamma (g_i(x_i) - h_i)
    with probability p, one coin for all clients:   x_i = mean of all x^_j
    else:                                           x_i = x^_i
    h_i = h_i + p / gamma (x_i - x^_i)

One round is one iteration. The server flips the coin, from its key and the round, and keeps the mean of the last
communication, which is the trained model. A client learns what the coin said from the next broadcast, and does the last
two lines then. The mean is formed in every round, and dropped where the coin says so.

The minimiser of the mean loss is the fixed point, with :math:`h_i = \nabla f_i(x)`. All clients take part in every
iteration. With weights, the mean and the minimised loss are the weighted ones.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, PyTree, UInt32

from lur import _checks
from lur.methods.local_steps import local_batches
from lur.methods.method import Batches, Broadcast, ClientOutput, Cohort, Method, RoundInfo, ServerState
from lur.methods.optimizers import add_scaled
from lur.methods.server import InitServer, ServerUpdate


class ProxSkipServerState(NamedTuple):
    """What the server keeps besides the last mean.

    Attributes:
      key: the data of the coins' random key.
      communicated: what the last coin said.
      client_lr: gamma of the last iteration.
    """

    key: UInt32[Array, "2"]
    communicated: Bool[Array, ""]
    client_lr: Float[Array, ""]


class ProxSkipClientState(NamedTuple):
    """What a client keeps, before the last coin renews x_i and h_i.

    Attributes:
      model: x^_i.
      control: h_i.
    """

    model: PyTree
    control: PyTree


def init_client(params: PyTree) -> ProxSkipClientState:
    """Return the state of a client before the first iteration."""
    return ProxSkipClientState(params, optax.tree.zeros_like(params))


class InitProxSkip(NamedTuple):
    """``init(params, client_lr, server_lr) -> ServerState``.

    Attributes:
      seed: of the coins.
    """

    seed: int

    def __call__(self, params: PyTree, client_lr: Any, server_lr: Any) -> ServerState:
        if _checks.is_concrete(server_lr) and server_lr != 1:
            raise ValueError(f"server_lr must be 1 with ProxSkip, whose server takes the mean, got {server_lr}")
        state = InitServer(optax.sgd, None, None, divides_by_client_lr=True)(params, client_lr, server_lr)
        key = jax.random.key_data(jax.random.key(np.uint32(self.seed), impl="threefry2x32"))
        gamma = jnp.array(state.client_lr)  # a copy: a donated state must not hold one array twice
        return state._replace(method_state=ProxSkipServerState(key, jnp.zeros((), bool), gamma))


def broadcast_coin(state: ServerState) -> Broadcast:
    """Return the mean of the last communication, what the last coin said, and the gamma of the last iteration."""
    return Broadcast(state.params, state.client_lr, (state.method_state.communicated, state.method_state.client_lr))


class ProxSkipClient(NamedTuple):
    """A client with a model and a control variate of its own.

    Attributes:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      probability: p.
    """

    loss_fn: _checks.Loss
    probability: float

    def __call__(self, broadcast: Broadcast, client_state: ProxSkipClientState, batches: Batches) -> ClientOutput:
        mean, (communicated, last_gamma) = broadcast.params, broadcast.extra
        batches, (gamma,) = local_batches(self.loss_fn, 1, broadcast, batches)
        batch, loss_fn = batches.first(), jax.jit(self.loss_fn)  # traced once
        x_i = jax.tree.map(partial(jnp.where, communicated), mean, client_state.model)
        h_i = add_scaled(
            client_state.control,
            jnp.where(last_gamma > 0, self.probability / last_gamma, 0),  # without a step there is no difference
            optax.tree.sub(x_i, client_state.model),
        )
        model = add_scaled(x_i, -gamma, optax.tree.sub(jax.grad(loss_fn)(x_i, batch), h_i))
        return ClientOutput(optax.tree.sub(mean, model), ProxSkipClientState(model, h_i), loss_fn(mean, batch))


class ProxSkipServer(NamedTuple):
    """The server's coin: the model becomes the mean of the clients' models, or stays.

    Attributes:
      probability: p.
    """

    probability: float

    def __call__(self, state: ServerState, update: PyTree, cohort: Cohort) -> tuple[ServerState, RoundInfo]:
        own: ProxSkipServerState = state.method_state
        key = jax.random.fold_in(jax.random.wrap_key_data(own.key, impl="threefry2x32"), state.round)
        coin = jax.random.bernoulli(key, jnp.float32(self.probability))  # float32: the same coin in any precision
        new, info = ServerUpdate(optax.sgd, None)(state, update, cohort)
        params = jax.tree.map(partial(jnp.where, coin), new.params, state.params)
        method_state = own._replace(communicated=coin, client_lr=state.client_lr)
        return new._replace(params=params, method_state=method_state), info


def proxskip(loss_fn: _checks.Loss, probability: float, *, seed: int = 0) -> Method:
    """Return ProxSkip (Scaffnew), whose rounds are single iterations of all clients.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      probability: p in (0, 1]; there are 1 / p local steps between two communications on average.
      seed: of the coins, from 0 to 2^32 - 1.
    """
    p, seed = _checks.positive_number("probability", probability, largest=1), int(_checks.seed("seed", seed))
    return Method(
        InitProxSkip(seed),
        ProxSkipClient(loss_fn, p),
        ProxSkipServer(p),
        1,
        init_client=init_client,
        broadcast=broadcast_coin,
        full_participation=True,
    )
