r"""FedProx: FedAvg whose clients are pulled towards the broadcast model.

T. Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, *Federated Optimization in Heterogeneous Networks*, MLSys 2020. Each
client minimises, inexactly, its loss plus a proximal term around the broadcast model x:

.. math:: y_i \approx \arg\min_y \; f_i(y) + \tfrac\rho2 \|y - x\|^2, \qquad x \leftarrow \tfrac1M \sum_{i \in I} y_i.

Here, as in the paper's experiments, a client takes K local steps, or as many as its epochs have:

.. math:: y_{k+1} = y_k - \gamma\,\bigl(g_k + \rho\,(y_k - x)\bigr), \qquad y_1 = x.

The paper's rho is called mu there. rho = 0 is FedAvg. The client is `lur.methods.inner_loop.InnerLoop`.
"""

import optax

from lur import _checks, theta
from lur.methods.decay import Plateau
from lur.methods.inner_loop import Send
from lur.methods.local_update import local_update
from lur.methods.method import Method
from lur.methods.optimizers import Optimizer


def fedprox(
    loss_fn: _checks.Loss,
    local_steps: int,
    prox: float,
    *,
    server: Optimizer = optax.sgd,
    client: Optimizer = optax.sgd,
    send: Send | None = None,
    decay: Plateau | None = None,
) -> Method:
    """Return FedProx.

    Args:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K.
      prox: rho >= 0, the strength of the pull towards the broadcast model.
      server, client, send, decay: see `lur.local_update`. By default SGD clients send the sum of their gradients, the
        proximal term's included, which is (x - y) / gamma: the server rate of the paper is eta = gamma. With
        ``send="delta"`` they send x - y, and the server rate of the paper is eta = 1.
    """
    weights = theta.fedavg(_checks.positive_integer("local_steps", local_steps))
    return local_update(loss_fn, weights, server, client=client, send=send, prox=prox, decay=decay)
