"""Which rewrite of a method runs, and why: the dispatcher of `lur.engine.fast`."""

from typing import Any, NamedTuple

import numpy as np
import optax
from jaxtyping import PyTree

from lur import _checks
from lur.engine.fast.client import FastInnerLoop
from lur.engine.fast.linear import LinearModel, linear_form
from lur.engine.fast.single_gradient import single_gradient_form
from lur.methods.inner_loop import InnerLoop
from lur.methods.method import Method
from lur.methods.server import InitServer, ServerUpdate


class FormChoice(NamedTuple):
    """A method as it runs.

    Attributes:
      method: the method, or a rewrite of it with the same numbers up to rounding.
      name: ``reference``, ``linear``, ``single gradient`` or ``fast steps``.
      reason: why it was chosen, in a few words for the user.
    """

    method: Method
    name: str
    reason: str


def choose_form(
    method: Method,
    params: PyTree,
    client_lr: Any,
    *,
    linear: LinearModel | None = None,
    client_norms: bool = True,
) -> FormChoice:
    """Return the fastest form of a method that computes the same numbers.

    Args:
      method: a method in its reference form; a rewrite is returned as it is.
      params: the model's parameters, or their shapes.
      client_lr: gamma, or None if there are several.
      linear: the linear model, if the loss is that of one.
      client_norms: whether the norms of the clients' updates are needed; without them fewer updates may be formed.
    """
    client = method.client_update
    if method.cohort_update is not None or isinstance(client, FastInnerLoop):
        return FormChoice(method, "as given", "the method is a rewrite already")
    if not isinstance(client, InnerLoop):
        return FormChoice(method, "reference", "there is no rewrite of this client")
    if not is_local_update(method):
        return FormChoice(method, "reference", "rewrites are for the server and the broadcast of local_update")
    if client.optimizer is not optax.sgd or client.send != "gradients" or client.has_prox or client.loss_on != "first":
        return FormChoice(method, "reference", "rewrites are for SGD clients that send the sum of their gradients")
    if linear is not None:
        return FormChoice(linear_form(method, linear), "linear", "a linear model needs no model per client")
    if not client_norms and is_single_gradient(method, client, client_lr):
        reason = "no client leaves the broadcast model before its last gradient"
        return FormChoice(single_gradient_form(method), "single gradient", reason)
    return FormChoice(method._replace(client_update=FastInnerLoop(client)), "fast steps", "SGD clients")


def is_local_update(method: Method) -> bool:
    """Return whether all but the client is as `lur.local_update` makes it, which is what the rewrites know."""
    plain = Method(method.init_server, method.client_update, method.server_update, method.local_steps)
    return (
        isinstance(method.init_server, InitServer)
        and isinstance(method.server_update, ServerUpdate)
        and method == plain
    )


def is_single_gradient(method: Method, client: InnerLoop, client_lr: Any) -> bool:
    """Return whether every gradient is taken at the broadcast model in all rounds."""
    decays = not (isinstance(method.server_update, ServerUpdate) and method.server_update.decay is None)
    is_zero = client_lr is not None and _checks.is_concrete(client_lr) and not np.any(np.asarray(client_lr))
    return not decays and (len(client.theta) == 1 or is_zero)
