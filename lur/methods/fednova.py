r"""FedNova: clients that take unequal numbers of local steps send their mean gradient, not the sum.

Wang, Liu, Liang, Joshi and Poor, *Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization*, NeurIPS 2020. Client i takes :math:`\tau_i` local steps from x and ends at
:math:`y_i = x - \gamma G_i a_i`, where the columns of :math:`G_i` are its gradients and :math:`a_i` says how often each
of them was added:

.. math::
    d_i = \frac{G_i a_i}{\|a_i\|_1} = \frac{x - y_i}{\gamma\,\|a_i\|_1}, \qquad
    \tau_{\mathrm{eff}} = \sum_i p_i \|a_i\|_1, \qquad
    x \leftarrow x - \eta\, \tau_{\mathrm{eff}} \sum_i p_i d_i .

FedAvg weights :math:`d_i` by :math:`p_i \|a_i\|_1` instead, which favours clients that take more steps. For SGD
:math:`a_i = (1, \dots, 1)` and :math:`\|a_i\|_1 = \tau_i`. With momentum beta and a proximal term rho the local step is

.. math:: m_k = \beta m_{k-1} + g_k, \qquad y_{k+1} = y_k - \gamma\,\bigl(m_k + \rho\,(y_k - x)\bigr).

Then :math:`s_k = (x - y_k)/\gamma` follows :math:`s_{k+1} = (1 - \gamma\rho)\, s_k + m_k`, which is linear in the
gradients. :math:`\|a_i\|_1` is the same recursion with 1 in the place of every gradient.

With eta = gamma this is the paper's step without a server rate. The authors' code differs with a proximal term only:
its :math:`\tau_{\mathrm{eff}}` is then the mean number of steps. The p_i are the weights of the round, by numbers of
examples in the paper (``weighting="examples"``).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from lur import _checks
from lur.methods.decay import Plateau
from lur.methods.local_steps import local_batches
from lur.methods.method import Batches, Broadcast, ClientOutput, Cohort, Method, RoundInfo, ServerState
from lur.methods.optimizers import Optimizer, add_scaled, checked_optimizer
from lur.methods.server import InitServer, ServerUpdate


class FedNovaClient(NamedTuple):
    """A client that sends the pair (d_i, ||a_i||_1): ``(Broadcast, (), Batches) -> ClientOutput``.

    Attributes:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K, the largest number of local steps.
      momentum: beta.
      prox: rho.
    """

    loss_fn: _checks.Loss
    local_steps: int
    momentum: float
    prox: float

    def __call__(self, broadcast: Broadcast, client_state: PyTree, batches: Batches) -> ClientOutput:
        x, gamma = broadcast.params, _checks.rate("client_lr", broadcast.client_lr, broadcast.client_lr.dtype)
        batches, _ = local_batches(self.loss_fn, self.local_steps, broadcast, batches)
        beta, kept = jnp.asarray(self.momentum, gamma.dtype), 1 - gamma * self.prox

        def local_step(carry, batch):
            s, m, norm, ones = carry  # norm and ones follow s and m, with 1 in the place of the gradient
            loss, gradient = jax.value_and_grad(self.loss_fn)(add_scaled(x, -gamma, s), batch)
            m = add_scaled(gradient, beta, m) if self.momentum else gradient
            ones = 1 + beta * ones
            return (add_scaled(m, kept, s), m, ones + kept * norm, ones), loss

        zeros, zero = optax.tree.zeros_like(x), jnp.zeros_like(gamma)
        (s, _, norm, _), losses = batches.scan(local_step, (zeros, zeros, zero, zero))
        d = jax.tree.map(lambda leaf: leaf / norm.astype(leaf.dtype), s)
        return ClientOutput((d, norm), client_state, losses[0])


class FedNovaServer(NamedTuple):
    """``(ServerState, (mean d, tau_eff), Cohort) -> (ServerState, RoundInfo)``.

    Attributes:
      server_update: the server's step along the direction.
    """

    server_update: ServerUpdate

    def __call__(self, state: ServerState, update: PyTree, cohort: Cohort) -> tuple[ServerState, RoundInfo]:
        d, tau_eff = update
        direction = jax.tree.map(lambda leaf: tau_eff.astype(leaf.dtype) * leaf, d)
        return self.server_update(state, direction, cohort)


def fednova(
    loss_fn: _checks.Loss,
    local_steps: int,
    *,
    server: Optimizer = optax.sgd,
    momentum: float = 0.0,
    prox: float = 0.0,
    decay: Plateau | None = None,
) -> Method:
    """Return FedNova. With equal numbers of steps it is FedAvg, `lur.local_update` with Theta_{1:K}.

    The client rate is one number: rates per step would be part of a_i.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K, the largest number of local steps of a client.
      server, decay: see `lur.local_update`.
      momentum: beta in [0, 1) of the clients' SGD; each client starts every round without momentum.
      prox: rho >= 0, the strength of the pull towards the broadcast model.
    """
    K = _checks.positive_integer("local_steps", local_steps)
    for name, value in (("momentum", momentum), ("prox", prox)):
        _checks.rate(name, value, jnp.float32)
    if momentum >= 1:
        raise ValueError(f"momentum must be in [0, 1), got {momentum}")
    server = checked_optimizer("server", server)
    client_update = FedNovaClient(loss_fn, K, float(momentum), float(prox))
    return Method(InitServer(server, decay, None), client_update, FedNovaServer(ServerUpdate(server, decay)), K)
