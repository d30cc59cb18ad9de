r"""Reptile with the inner optimiser of its authors: Adam without momentum.

Nichol, Achiam and Schulman, *On First-Order Meta-Learning Algorithms*, 2018, Algorithm 2 (batched). From the
initialisation x every task i of the meta-batch runs K steps of an inner optimiser, which end at y_i, and

.. math:: x \leftarrow x + \epsilon\, \tfrac1M \sum_{i \in I} (y_i - x).

With SGD inside this is LocalUpdate with Theta_{1:K}, that is `lur.local_update(loss_fn, lur.theta.fedavg(K))`, whose
update is :math:`(x - y_i)/\gamma`. The paper's experiments use Adam with :math:`\beta_1 = 0` inside. Its code runs the
tasks one after another and lets the optimiser's second moments run on from task to task. Clients that run in parallel
cannot hand their moments on; here each client starts every round with new ones. `lur.methods.diloco` with
``inner_state="keep"`` lets each client keep its own.
"""

from functools import partial

import optax

from lur import _checks, theta
from lur.methods.decay import Plateau
from lur.methods.local_update import local_update
from lur.methods.method import Method
from lur.methods.optimizers import Optimizer

adam_without_momentum = partial(optax.adam, b1=0.0)
"""The inner optimiser of the paper's experiments."""


def reptile(
    loss_fn: _checks.Loss,
    local_steps: int,
    *,
    server: Optimizer = optax.sgd,
    client: Optimizer = adam_without_momentum,
    decay: Plateau | None = None,
) -> Method:
    """Return Reptile, whose clients send x - y: with the SGD server, epsilon is the server rate eta.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K.
      client: the inner optimiser, with new state in every round.
      server, decay: see `lur.local_update`.
    """
    weights = theta.fedavg(_checks.positive_integer("local_steps", local_steps))
    return local_update(loss_fn, weights, server, client=client, send="delta", decay=decay)
