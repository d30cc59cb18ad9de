r"""LocalUpdate: one round of clients and server (Algorithms 1 and 3).

.. math::
    q_t = \tfrac1M \sum_{i \in I_t} \mathrm{InnerLoop}(i, x_t, \gamma_t, \Theta), \qquad
    x_{t+1} = x_t - \eta_t q_t

where the step may be any optax optimiser fed with q_t as its gradient. With a `lur.decay.Plateau` the
round also decides whether gamma and eta decay, from the mean loss before training (LocalUpdateDecay).

The rates are arrays in the state: changing, decaying or vmapping them never recompiles.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from lur import _checks as checks
from lur.methods.client import Optimizer, descend, inner_loop, start
from lur.methods.decay import Plateau
from lur.parallel.layouts import Layout, Sum, finished, over_clients, parse, weighted_mean
from lur.theta import nonzero

Client = Callable[[PyTree, PyTree, Any], tuple[PyTree, Float[Array, ""]]]


class State(NamedTuple):
    """What the server carries from round to round."""

    params: PyTree
    client_lr: Float[Array, "..."]
    server_lr: Float[Array, ""]
    server_state: Any
    decay_state: Any
    round: Int[Array, ""]


class Info(NamedTuple):
    """What a round tells: all that a log line or a plot needs. The rates are those the round used.

    ``client_norms`` are nan where no client's own message is formed (`lur.engine.fast.single_gradient`).
    """

    loss: Float[Array, ""]
    update_norm: Float[Array, ""]
    client_losses: Float[Array, "M"]
    client_norms: Float[Array, "M"]
    client_lr: Float[Array, "..."]
    server_lr: Float[Array, ""]
    decayed: Bool[Array, ""]


class Fetch(NamedTuple):
    """Batches made when they are needed, from something small.

    ``own(shared, client)``: what a client's K steps need, say rows of a store, each leaf with leading axis K.
    ``see(shared, step)``: the mini-batch of one of these steps, made inside the step: one mini-batch is in memory.
    """

    own: Callable[[Any, PyTree], PyTree] = lambda shared, client: client
    see: Callable[[Any, PyTree], PyTree] = lambda shared, step: step

    def batches(self, shared: Any, client: PyTree) -> PyTree:
        """All mini-batches of a client, with leading axes (K, B)."""
        return jax.vmap(partial(self.see, shared))(self.own(shared, client))


GIVEN = Fetch()
"""Batches as they are."""


class At(NamedTuple):
    """What all clients of a round share: model, gamma, and what `Fetch` takes their batches from."""

    params: PyTree
    client_lr: Float[Array, "..."]
    shared: Any


ALIKE = At(0, 0, None)  # pyright: ignore[reportArgumentType]
"""The axes of what many cells share."""


class Told(NamedTuple):
    """What a client tells beside its message: its loss before training, the norm of the message."""

    loss: Float[Array, ""]
    norm: Float[Array, ""]


Messages = Callable[[At, PyTree, Float[Array, "M"] | None, Layout, Fetch], Sum]
"""``messages(at, batches, weights, layout, fetch) -> (q, Told of shapes (M,))``; weights, if given, sum to 1."""


CELLS = State(0, 0, 0, 0, 0, None)  # pyright: ignore[reportArgumentType]
"""The axes of a state of many cells: all stand at the same round."""


class LocalUpdate(NamedTuple):
    """A local update method as pure functions, and K(Theta).

    ``init(params, client_lr, server_lr) -> State``

    ``round(state, batches, weights=None, *, layout="vmap", fetch=GIVEN, shared=None) -> (State, Info)``: batches have
    leading axes (M, K, B); weights of shape (M,), say the clients' numbers of examples, replace the uniform mean
    over clients. With a `Fetch` a client's batches are made from ``shared`` and ``batches[i]`` only when the client
    runs, and jit is left to the caller. See `lur.parallel.layouts` for ``layout``.

    ``cells``: as ``round``, for many models and rates on the same clients: a leading axis in all of state but its
    round, and in all of info.
    """

    init: Callable[..., State]
    round: Callable[..., tuple[State, Info]]
    steps: int
    cells: Callable[..., tuple[State, Info]]


def local_update(
    loss_fn: checks.Loss,
    theta: Sequence[float],
    server: Optimizer = optax.sgd,
    *,
    client: Optimizer = optax.sgd,
    prox: float = 0.0,
    send: Literal["stepped", "raw"] = "stepped",
    loss_on: Literal["first", "all"] = "first",
    decay: Plateau | None = None,
) -> LocalUpdate:
    """LocalUpdate with weights Theta: ``init`` and ``round``.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``.
      theta: weights Theta, e.g. ``lur.theta.fedavg(10)`` or a plain list.
      server: optax optimiser of the server: a factory of the learning rate (``optax.sgd``, ``optax.adam``,
        ``lur.optimizers.yogi``) or a transform built with learning rate 1, whose update eta then scales.
      client: optax optimiser of the clients.
      prox, send, loss_on: see `lur.inner_loop`.
      decay: ``lur.decay.plateau(...)`` for LocalUpdateDecay; None keeps the rates as they are.
    """
    theta = nonzero(theta)

    def run(at: At, own: PyTree, fetch: Fetch) -> tuple[PyTree, Float[Array, ""]]:
        dtype = checks.floating_dtype(at.params)

        def loss(params: PyTree, step: PyTree) -> Float[Array, ""]:
            batch = fetch.see(at.shared, step)
            checks.batch_dtypes(batch, dtype)
            return loss_fn(params, batch)

        steps = fetch.own(at.shared, own)
        return inner_loop(
            loss, at.params, steps, at.client_lr, theta, step=client, prox=prox, send=send, loss_on=loss_on
        )

    return from_fetching_client(run, server, steps=len(theta), decay=decay)


def from_client(client: Client, server: Optimizer, *, steps: int, decay: Plateau | None = None) -> LocalUpdate:
    """Algorithm 1 around any client ``(params, batches, gamma) -> (message, loss_before)`` of `steps` steps."""

    def run(at: At, own: PyTree, fetch: Fetch) -> tuple[PyTree, Float[Array, ""]]:
        return client(at.params, own if fetch is GIVEN else fetch.batches(at.shared, own), at.client_lr)

    return from_fetching_client(run, server, steps=steps, decay=decay)


def from_fetching_client(
    client: Callable[[At, PyTree, Fetch], tuple[PyTree, Float[Array, ""]]],
    server: Optimizer,
    *,
    steps: int,
    decay: Plateau | None = None,
) -> LocalUpdate:
    """Algorithm 1 around a client that makes its own mini-batches."""

    def one(at: At, own: PyTree, fetch: Fetch) -> tuple[PyTree, Told]:
        message, loss = client(at, own, fetch)
        return message, Told(loss, optax.tree.norm(message))

    def messages(at: At, batches: PyTree, weights: Any, layout: Layout, fetch: Fetch) -> Sum:
        return over_clients(lambda at, own: one(at, own, fetch), at, batches, weights, layout)

    def of_cells(at: At, batches: PyTree, weights: Any, layout: Layout, fetch: Fetch) -> Sum:
        def run(at: At, own: PyTree) -> tuple[PyTree, Told]:
            return jax.vmap(lambda cell: one(cell, own, fetch), in_axes=(ALIKE,))(at)

        q, told = over_clients(run, at, batches, weights, layout)
        return q, jax.tree.map(lambda leaf: leaf.T, told)

    return from_messages(messages, server, steps=steps, decay=decay, of_cells=of_cells)


def from_messages(
    messages: Messages,
    server: Optimizer,
    *,
    steps: int,
    decay: Plateau | None = None,
    of_cells: Messages | None = None,
) -> LocalUpdate:
    """Algorithm 1 around whatever computes the mean message of a round's clients, of `steps` steps each.

    `of_cells` computes those of many models and rates at once, where it is quicker than one cell beside the other.
    """

    def init(params: PyTree, client_lr: Any, server_lr: Any) -> State:
        dtype = checks.floating_dtype(params)
        gamma = checks.rate("client_lr", client_lr, dtype, steps=steps)
        eta = checks.rate("server_lr", server_lr, dtype)
        params = jax.tree.map(jnp.asarray, params)
        decay_state = None if decay is None else decay.init(gamma, eta)
        if decay_state is not None:
            gamma, eta = decay_state.client_lr, decay_state.server_lr
        return State(params, gamma, eta, start(server, eta, params), decay_state, jnp.zeros((), jnp.int32))

    def serve(state: State, q: PyTree, told: Told, weights: Any) -> tuple[State, Info]:
        loss = weighted_mean(told.loss, weights)
        params, server_state = descend(server, state.server_lr, q, state.server_state, state.params)
        after = state._replace(params=params, server_state=server_state, round=state.round + 1)
        decayed = jnp.zeros((), bool)
        if decay is not None:
            before = state.decay_state._replace(client_lr=state.client_lr, server_lr=state.server_lr)
            plateau = decay.update(before, loss)
            decayed = plateau.decays > before.decays
            after = after._replace(client_lr=plateau.client_lr, server_lr=plateau.server_lr, decay_state=plateau)
        info = Info(loss, optax.tree.norm(q), told.loss, told.norm, state.client_lr, state.server_lr, decayed)
        return after, info

    def beside(at: At, batches: PyTree, weights: Any, layout: Layout, fetch: Fetch) -> Sum:
        return jax.vmap(lambda at: messages(at, batches, weights, layout, fetch), in_axes=(ALIKE,))(at)

    of_cells = beside if of_cells is None else of_cells
    many = jax.vmap(serve, in_axes=(CELLS, 0, 0, None), out_axes=(CELLS, 0))
    return LocalUpdate(init, rounds(messages, serve), steps, rounds(of_cells, many))


def rounds(messages: Messages, serve: Callable[..., tuple[State, Info]]) -> Callable[..., tuple[State, Info]]:
    """A round from the clients' part and the server's: its arguments checked, compiled unless batches are fetched."""

    def step(
        state: State, batches: PyTree, weights: Any, layout: Layout, fetch: Fetch, shared: Any
    ) -> tuple[State, Info]:
        if weights is not None:
            weights = weights / weights.sum()
        q, told = messages(At(state.params, state.client_lr, shared), batches, weights, layout, fetch)
        return serve(state, q, told, weights)

    compiled = jax.jit(step, static_argnames=("layout", "fetch"))

    def round(
        state: State,
        batches: PyTree,
        weights: Any = None,
        *,
        layout: str | Layout = "vmap",
        fetch: Fetch = GIVEN,
        shared: Any = None,
    ) -> tuple[State, Info]:
        names, least = (("M", "K", "B"), (1, 0, 0)) if fetch is GIVEN else (("M",), (1,))
        M, *_ = checks.leading_axes(batches, names, least)
        weights = None if weights is None else client_weights(weights, M, state)
        run = compiled if fetch is GIVEN else step
        return finished(run(state, batches, weights, parse(layout), fetch, shared))

    return round


def client_weights(weights: Any, M: int, state: State) -> Float[Array, "M"]:
    """Weights of a round's clients: nonnegative, not all zero, one per client."""
    shape = np.shape(weights)
    if shape != (M,):
        raise ValueError(f"weights must have one entry per client, shape ({M},), got {shape}")
    if checks.is_concrete(weights):
        values = np.asarray(weights)
        if not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0):
            raise ValueError(f"weights must be finite, >= 0 and not all zero, got {values}")
    return jnp.asarray(weights, checks.floating_dtype(state.params))
