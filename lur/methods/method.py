r"""The contract of a local update method, and the round that runs it (Algorithm 1).

A method is a few pure functions. In each round the server broadcasts its model, every client of the cohort computes an
update from it, and the server steps along the weighted mean of the updates:

.. math::
    q_t = \sum_{i \in I_t} w_i \, u_i(x_t, \gamma_t), \qquad x_{t+1} = \mathrm{server\_update}(x_t, q_t, \eta_t).

Learning rates are arrays in the state: changing, decaying or vmapping them never recompiles. What a method compares
equal to, it shares its compiled program with, so the functions of the methods here are callables that compare by their
settings.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from lur import _checks
from lur.methods.by_value import by_value
from lur.methods.cohort import ClientMetrics, Cohort, RoundInfo
from lur.methods.compiled import jit_per_settings
from lur.methods.mini_batches import Batches, BatchesOf, given_batches, given_batches_of_steps
from lur.parallel.client_states import population, repeat_for_clients
from lur.parallel.clients import ClientResults, mean_over_clients
from lur.parallel.layouts import Layout, parse_layout
from lur.parallel.mesh import block_if_cpu_mesh


class ServerState(NamedTuple):
    """What the server keeps between rounds.

    Attributes:
      params: the model x_t.
      client_lr: gamma, a scalar or one rate per local step.
      server_lr: eta.
      server_state: the server optimiser's state.
      decay_state: the state of the decay rule (`lur.decay`); None without one.
      round: t, the number of rounds done.
      method_state: what else the method keeps at the server, such as SCAFFOLD's control variate; () for most methods.
      clients: the states of all clients, with leading axis N; () for methods whose clients keep none.
    """

    params: PyTree
    client_lr: Float[Array, "..."]
    server_lr: Float[Array, ""]
    server_state: PyTree
    decay_state: PyTree
    round: Int[Array, ""]
    method_state: PyTree = ()
    clients: PyTree = ()


class Broadcast(NamedTuple):
    """What the server sends to every client of the cohort.

    Attributes:
      params: the model x_t.
      client_lr: gamma, a scalar or one rate per local step.
      extra: what else the method sends; () for most methods.
      prepared: the cohort's mean of `Method.prepare`; () for methods with one exchange per round.
    """

    params: PyTree
    client_lr: Float[Array, "..."]
    extra: PyTree = ()
    prepared: PyTree = ()


class ClientOutput(NamedTuple):
    """What a client returns.

    Attributes:
      update: the update, averaged over the cohort. Any pytree; most methods send one shaped like the parameters.
      state: what the client keeps for its next round; () for most methods.
      loss: the loss at the broadcast model, before training.
    """

    update: PyTree
    state: PyTree
    loss: Float[Array, ""]


def no_client_state(params: PyTree) -> tuple[()]:
    """Return the state of a client that keeps none."""
    return ()


def broadcast_params(state: ServerState) -> Broadcast:
    """Return the broadcast of a method that sends the model and gamma only."""
    return Broadcast(state.params, state.client_lr)


def broadcast_method_state(state: ServerState) -> Broadcast:
    """Return the broadcast of a method that sends all of its state at the server too."""
    return Broadcast(state.params, state.client_lr, state.method_state)


def broadcast_model(state: ServerState) -> PyTree:
    """Return the model of a method that trains one model, which the server broadcasts."""
    return state.params


class Method(NamedTuple):
    """A local update method as pure functions.

    Attributes:
      init_server: ``(params, client_lr, server_lr) -> ServerState``, without client states.
      client_update: ``(Broadcast, client_state, Batches) -> ClientOutput``, what one client does in a round.
      server_update: ``(ServerState, mean update, Cohort) -> (ServerState, RoundInfo)``.
      local_steps: K, the number of local steps.
      init_client: ``(params) -> client_state``, what a client keeps between rounds; () for most methods.
      broadcast: ``(ServerState) -> Broadcast``.
      prepare: ``(Broadcast, client_state, Batches) -> pytree``, a first exchange whose mean over the cohort joins the
        broadcast (Mime, FedLin); None for methods with one exchange per round.
      model: ``(ServerState) -> params``, the trained model, as `init_server` takes it. Most methods broadcast it;
        extrapolation makes it from two.
      cohort_update: a rewrite of the mean over clients (`lur.engine.fast`); None for the reference, which runs
        `client_update` for every client.
      full_participation: whether all clients must take part in every round.
      uniform_weights: whether the clients' weights must be uniform.
    """

    init_server: Callable[[PyTree, Any, Any], ServerState]
    client_update: Callable[[Broadcast, PyTree, Batches], ClientOutput]
    server_update: Callable[[ServerState, PyTree, Cohort], tuple[ServerState, RoundInfo]]
    local_steps: int
    init_client: Callable[[PyTree], PyTree] = no_client_state
    broadcast: Callable[[ServerState], Broadcast] = broadcast_params
    prepare: Callable[[Broadcast, PyTree, Batches], PyTree] | None = None
    model: Callable[[ServerState], PyTree] = broadcast_model
    cohort_update: Callable[..., ClientResults] | None = None
    full_participation: bool = False
    uniform_weights: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Method) and by_value(self) == by_value(other)

    def __ne__(self, other: object) -> bool:  # that of tuples otherwise
        return not self == other

    def __hash__(self) -> int:
        return hash(by_value(self))

    def init(self, params: PyTree, client_lr: Any, server_lr: Any, clients: int | None = None) -> ServerState:
        """Return the state before the first round.

        Args:
          params: the initial model.
          client_lr: gamma >= 0, a scalar or one rate per local step.
          server_lr: eta >= 0.
          clients: N, the number of clients of the population; required where clients keep a state.
        """
        state = self.init_server(params, client_lr, server_lr)
        client_state = self.init_client(state.params)
        if not jax.tree.leaves(client_state):
            return state
        if clients is None:
            raise ValueError("clients must be the number of clients N: the clients of this method keep a state")
        N = _checks.positive_integer("clients", clients)
        return state._replace(clients=repeat_for_clients(client_state, N))

    def round(
        self,
        state: ServerState,
        batches: PyTree,
        weights: Float[Array, "M"] | None = None,
        clients: Int[Array, "M"] | None = None,
        layout: str | Layout = "vmap",
        steps: Int[Array, "M"] | None = None,
    ) -> tuple[ServerState, RoundInfo]:
        """Run one round on given mini-batches.

        Args:
          state: from `init` or an earlier round.
          batches: pytree with leading axes (M, K, B).
          weights: of the clients, such as their numbers of examples; by default the uniform mean.
          clients: the cohort's indices among the N clients, whose states and keys are used; by default the first M.
          layout: how the clients are laid out, see `lur.parallel.layouts`.
          steps: K_i, the number of local steps that each client takes, from 1 to K; its further mini-batches are
            padding (`Batches.is_step`). By default all clients take K steps.
        """
        M, *_ = _checks.leading_axes(batches, ("M", "K", "B"), (1, 0, 1))
        if self.uniform_weights and weights is not None:
            raise ValueError(f"weights must be None with this method, which needs the uniform mean, got {weights}")
        weights = None if weights is None else _checks.client_weights(weights, M, state.server_lr.dtype)
        N = population(state.clients)
        if self.full_participation and N is not None and M != N:
            raise ValueError(f"batches must be of all {N} clients, which this method needs in every round, got {M}")
        clients = _checks.client_indices(clients, M, N)
        own, batches_of = (batches, clients), given_batches
        if steps is not None:
            steps = jnp.asarray(_checks.client_steps(steps, M, self.local_steps), jnp.int32)
            own, batches_of = (*own, steps), given_batches_of_steps
        inputs = RoundInputs(own, weights, clients, state.round)
        return block_if_cpu_mesh(_compiled_round(self, parse_layout(layout), batches_of, state, inputs))

    def client(self, params: PyTree, batches: PyTree, gamma: Any) -> tuple[PyTree, Float[Array, ""]]:
        """Return the update and the loss before training of one client without state, from (K, B) mini-batches.

        This is the signature of `lur.from_client` and of `theory.surrogate_of`.
        """
        gamma = _checks.param_rate("gamma", gamma, params, steps=self.local_steps)
        if jax.tree.leaves(self.init_client(params)):
            raise ValueError("method must have clients without state for Method.client, got one whose clients keep one")
        params, batches = jax.tree.map(jnp.asarray, (params, batches))
        output = self.client_update(Broadcast(params, gamma), self.init_client(params), Batches(batches))
        return output.update, output.loss


class RoundInputs(NamedTuple):
    """The clients of a round and their data.

    Attributes:
      batches: pytree with leading axis M, what `batches_of` makes each client's mini-batches from.
      weights: nonnegative weights of the clients; None for the uniform mean.
      clients: the cohort's indices, whose states are used; None if clients keep none.
      source: what all clients read their mini-batches from, such as a store in device memory; None if nothing.
      counts: M and N of `Cohort`, where the cohort may be padded or some client states are elsewhere; None where the
        arrays show them.
    """

    batches: PyTree
    weights: Float[Array, "M"] | None = None
    clients: Int[Array, "M"] | None = None
    source: Any = None
    counts: tuple[int, int] | None = None


def method_round(
    method: Method, state: ServerState, inputs: RoundInputs, layout: Layout, batches_of: BatchesOf
) -> tuple[ServerState, RoundInfo]:
    """Run one round of any method (Algorithm 1)."""
    weights = None if inputs.weights is None else normalized(inputs.weights, state.server_lr.dtype)
    broadcast = method.broadcast(state)
    client_states = jax.tree.map(lambda leaf: leaf[inputs.clients], state.clients)
    cohort = ((client_states, inputs.batches), weights, layout, batches_of)
    if method.prepare is not None:
        broadcast = broadcast._replace(prepared=mean_prepared(method, (broadcast, inputs.source), *cohort))
    cohort_update = method.cohort_update or partial(mean_client_update, method)
    update, client_states, metrics = cohort_update((broadcast, inputs.source), *cohort)
    clients = jax.tree.map(lambda all, own: all.at[inputs.clients].set(own), state.clients, client_states)
    M, N = inputs.counts or (len(metrics.loss), population(clients))
    seen = Cohort(metrics.loss, metrics.update_norm, weights, M, N)
    return method.server_update(state._replace(clients=clients), update, seen)


@jit_per_settings(3)
def _compiled_round(
    method: Method, layout: Layout, batches_of: BatchesOf, state: ServerState, inputs: RoundInputs
) -> tuple[ServerState, RoundInfo]:
    return method_round(method, state, inputs, layout, batches_of)


def tree_norm(tree: PyTree, dtype: Any) -> Float[Array, ""]:
    """Return the Euclidean norm over all leaves, computed in `dtype`."""
    squares = [jnp.sum(jnp.square(leaf.astype(dtype))) for leaf in jax.tree.leaves(tree)]
    return jnp.sqrt(sum(squares, start=jnp.zeros((), dtype)))


def normalized(weights: Float[Array, "M"] | Int[Array, "M"], dtype: Any) -> Float[Array, "M"]:
    """Return weights that sum to 1."""
    weights = weights.astype(dtype)
    return weights / weights.sum()


def mean_client_update(
    method: Method, shared: Any, inputs: Any, weights: Float[Array, "M"] | None, layout: Layout, batches_of: BatchesOf
) -> ClientResults:
    """Run `client_update` for every client of the cohort and average the updates: the reference of all rewrites.

    Args:
      method: the method.
      shared: the broadcast and the source of the mini-batches.
      inputs: the cohort's client states and batches, each with leading axis M.
      weights: of the clients, summing to 1; None for the uniform mean.
      layout: how the clients are laid out.
      batches_of: makes a client's mini-batches.
    """

    def client(shared: tuple[Broadcast, Any], inputs: tuple[PyTree, PyTree]) -> ClientResults:
        (broadcast, source), (client_state, batches) = shared, inputs
        output = method.client_update(broadcast, client_state, batches_of(source, batches))
        norm = tree_norm(output.update, broadcast.client_lr.dtype)
        return ClientResults(output.update, output.state, ClientMetrics(output.loss, norm))

    return mean_over_clients(client, shared, inputs, weights, layout)


def mean_prepared(
    method: Method, shared: Any, inputs: Any, weights: Float[Array, "M"] | None, layout: Layout, batches_of: BatchesOf
) -> PyTree:
    """Return the mean of `method.prepare` over the cohort; the arguments are those of `mean_client_update`."""
    prepare: Any = method.prepare

    def client(shared: tuple[Broadcast, Any], inputs: tuple[PyTree, PyTree]) -> ClientResults:
        (broadcast, source), (client_state, batches) = shared, inputs
        return ClientResults(prepare(broadcast, client_state, batches_of(source, batches)), (), ())

    return mean_over_clients(client, shared, inputs, weights, layout).update
