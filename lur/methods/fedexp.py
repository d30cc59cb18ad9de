r"""FedExP: the server extrapolates by how much the clients' updates disagree.

Jhunjhunwala, Wang and Joshi, *FedExP: Speeding Up Federated Averaging via Extrapolation*, ICLR 2023, Algorithm 1.
Clients run K local steps as in FedAvg and send :math:`\Delta_i = x - y_i`. The server's step is

.. math::
    \bar\Delta = \sum_i p_i \Delta_i, \qquad
    \eta_g = \max\left\{1,\; \frac{\sum_i p_i \|\Delta_i\|^2}{2\,(\|\bar\Delta\|^2 + \epsilon)}\right\}, \qquad
    x \leftarrow x - \eta\, \eta_g \bar\Delta,

with p_i = 1/M and eta = 1 in the paper. The server needs no more than the norms of the updates, which every method's
clients report. The step sizes make the last iterate oscillate, so the paper returns the mean of the last two, which is
`Method.model` of the state here.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from lur import _checks, theta
from lur.methods.decay import Plateau
from lur.methods.inner_loop import make_inner_loop
from lur.methods.method import Cohort, Method, RoundInfo, ServerState, tree_norm
from lur.methods.optimizers import Optimizer, checked_optimizer
from lur.methods.server import InitServer, ServerUpdate
from lur.parallel.clients import weighted_mean


def copy_of(params: PyTree) -> PyTree:
    """Return a copy, so that a state can donate both iterates: the method state is the previous one."""
    return jax.tree.map(jnp.array, params)


class FedExPServer(NamedTuple):
    """``(ServerState, mean update, Cohort) -> (ServerState, RoundInfo)``.

    Attributes:
      server_update: the server's step along the extrapolated update.
      epsilon: added to the squared norm of the mean update.
    """

    server_update: ServerUpdate
    epsilon: float

    def __call__(self, state: ServerState, update: PyTree, cohort: Cohort) -> tuple[ServerState, RoundInfo]:
        mean_square = weighted_mean(jnp.square(cohort.update_norms), cohort.weights)
        square_of_mean = jnp.square(tree_norm(update, mean_square.dtype))
        eta_g = jnp.maximum(1, mean_square / (2 * (square_of_mean + self.epsilon)))
        extrapolated = jax.tree.map(lambda leaf: eta_g.astype(leaf.dtype) * leaf, update)
        return self.server_update(state._replace(method_state=state.params), extrapolated, cohort)


def mean_of_last_two(state: ServerState) -> PyTree:
    """Return the mean of the last two iterates."""
    return jax.tree.map(lambda new, old: (new + old) / 2, state.params, state.method_state)


def fedexp(
    loss_fn: _checks.Loss,
    local_steps: int,
    epsilon: float = 1e-3,
    *,
    server: Optimizer = optax.sgd,
    client: Optimizer = optax.sgd,
    decay: Plateau | None = None,
) -> Method:
    """Return FedExP.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K.
      epsilon: added to the squared norm of the mean update, >= 0; it bounds the server's step size where that is small.
      server, client, decay: see `lur.local_update`. The paper's server is SGD with rate 1.
    """
    weights = theta.fedavg(_checks.positive_integer("local_steps", local_steps))
    _checks.rate("epsilon", epsilon, jnp.float32)
    client_update = make_inner_loop(loss_fn, weights, client, "delta", 0.0, "first")
    server = checked_optimizer("server", server)
    return Method(
        InitServer(server, decay, len(weights), method_state=copy_of),
        client_update,
        FedExPServer(ServerUpdate(server, decay), float(epsilon)),
        len(weights),
        model=mean_of_last_two,
    )
