r"""The server of most methods: an optax optimiser that takes the mean update as its gradient (FedOpt), with decay.

.. math:: x_{t+1} = \mathrm{optimizer\_step}(x_t, q_t, \eta_t)

With a decay rule (`lur.decay`) the round also decides whether gamma and eta decay, from the cohort's mean loss before
training (LocalUpdateDecay, Algorithm 3). The server learning rate is a value in the state.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from lur import _checks
from lur.methods.decay import Plateau
from lur.methods.method import Cohort, RoundInfo, ServerState, no_client_state, tree_norm
from lur.methods.optimizers import Optimizer, optimizer_init, optimizer_step
from lur.parallel.clients import weighted_mean


class InitServer(NamedTuple):
    """``init(params, client_lr, server_lr) -> ServerState``, before the first round.

    Attributes:
      optimizer: the server optimiser.
      decay: the decay rule, or None.
      local_steps: K, for client rates given per local step; None if the method takes one rate only.
      method_state: ``(params) -> ServerState.method_state``; () for most methods.
      divides_by_client_lr: whether gamma = 0 is refused.
    """

    optimizer: Optimizer
    decay: Plateau | None
    local_steps: int | None
    method_state: Callable[[PyTree], PyTree] = no_client_state
    divides_by_client_lr: bool = False

    def __call__(self, params: PyTree, client_lr: Any, server_lr: Any) -> ServerState:
        if self.divides_by_client_lr and _checks.is_concrete(client_lr) and not np.any(client_lr):
            raise ValueError(f"client_lr must be > 0 with this method, which divides by it, got {client_lr}")
        gamma = _checks.param_rate("client_lr", client_lr, params, steps=self.local_steps)
        eta = _checks.param_rate("server_lr", server_lr, params)
        params = jax.tree.map(jnp.array, params)  # a copy: a donated state must not take the caller's arrays along
        decay_state = None if self.decay is None else self.decay.init(gamma, eta)
        if decay_state is not None:
            gamma, eta = decay_state.client_lr, decay_state.server_lr
        server_state = optimizer_init(self.optimizer, eta, params)
        start = jnp.zeros((), jnp.int32)
        return ServerState(params, gamma, eta, server_state, decay_state, start, self.method_state(params))


class ServerUpdate(NamedTuple):
    """``update(state, mean update, cohort) -> (ServerState, RoundInfo)``: the server's step and the decay of the rates.

    Attributes:
      optimizer: the server optimiser.
      decay: the decay rule, or None.
    """

    optimizer: Optimizer
    decay: Plateau | None

    def __call__(self, state: ServerState, update: PyTree, cohort: Cohort) -> tuple[ServerState, RoundInfo]:
        loss = weighted_mean(cohort.losses, cohort.weights)
        params, server_state = optimizer_step(self.optimizer, state.server_lr, update, state.server_state, state.params)
        new = state._replace(params=params, server_state=server_state, round=state.round + 1)
        decayed = jnp.zeros((), bool)
        if self.decay is not None:
            before = state.decay_state._replace(client_lr=state.client_lr, server_lr=state.server_lr)
            after = self.decay.update(before, loss)
            decayed = after.decays > before.decays
            new = new._replace(client_lr=after.client_lr, server_lr=after.server_lr, decay_state=after)
        norm = tree_norm(update, state.server_lr.dtype)
        info = RoundInfo(loss, norm, cohort.losses, cohort.update_norms, state.client_lr, state.server_lr, decayed)
        return new, info
