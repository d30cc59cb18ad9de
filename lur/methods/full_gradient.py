"""A client's full-batch gradient at the broadcast model, the first of the two exchanges of Mime and FedLin."""

from typing import NamedTuple

from jaxtyping import PyTree

from lur import _checks
from lur.methods.local_steps import full_gradient, local_batches
from lur.methods.method import Batches, Broadcast


class FullGradient(NamedTuple):
    """`Method.prepare` of two exchanges: ``(Broadcast, client_state, Batches) -> full-batch gradient at the model``.

    Attributes:
      loss_fn: ``loss_fn(params, batch) -> scalar``, the mean loss over a mini-batch.
      local_steps: K.
    """

    loss_fn: _checks.Loss
    local_steps: int

    def __call__(self, broadcast: Broadcast, client_state: PyTree, batches: Batches) -> PyTree:
        batches, _ = local_batches(self.loss_fn, self.local_steps, broadcast, batches)
        return full_gradient(self.loss_fn, broadcast.params, batches)
