r"""Extrapolation in gamma: two client rates on the same clients cancel the bias of local steps to first order.

LocalUpdate with a fixed gamma converges to :math:`x^*(\gamma) = x^* + \gamma x' + O(\gamma^2)`. There are two ways to
remove the middle term. Both let every client work with gamma and with 2 gamma, on the same mini-batches:

``models``    two models, one trained with gamma and one with 2 gamma; the result is :math:`2x(\gamma) - x(2\gamma)`.
``updates``   one model, from which both rates start; the server steps along :math:`2q(\gamma) - q(2\gamma)`.

The first is Richardson-Romberg extrapolation (for FedAvg: Mangold et al., arXiv:2412.01389). The second acts as Theta
with negative weights would: for large gamma its surrogate may lose its minimum (`theory.extrapolation`).
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import optax
from jaxtyping import PyTree

from lur import _checks
from lur.methods.decay import Plateau
from lur.methods.inner_loop import Send, make_inner_loop
from lur.methods.method import Batches, Broadcast, ClientOutput, Method, ServerState
from lur.methods.optimizers import Optimizer, checked_optimizer
from lur.methods.server import InitServer, ServerUpdate

Extrapolate = Literal["models", "updates"]


def extrapolate_to_zero(at_gamma: PyTree, at_two_gamma: PyTree) -> PyTree:
    """Return 2a - b, the value at rate 0 of the line through a at gamma and b at 2 gamma."""
    return jax.tree.map(lambda a, b: 2 * a - b, at_gamma, at_two_gamma)


class TwoRates(NamedTuple):
    """A client that runs another client with gamma and with 2 gamma: ``(Broadcast, state, Batches) -> ClientOutput``.

    Attributes:
      client_update: the client.
      extrapolate: ``models``, where params and update are pairs and the loss is that of the first; or ``updates``.
    """

    client_update: Callable[[Broadcast, PyTree, Batches], ClientOutput]
    extrapolate: Extrapolate

    def __call__(self, broadcast: Broadcast, client_state: PyTree, batches: Batches) -> ClientOutput:
        x, gamma = broadcast.params, broadcast.client_lr
        first, second = x if self.extrapolate == "models" else (x, x)
        output = self.client_update(broadcast._replace(params=first), client_state, batches)
        twice = broadcast._replace(params=second, client_lr=2 * gamma)
        pair = (output.update, self.client_update(twice, client_state, batches).update)
        return output._replace(update=pair if self.extrapolate == "models" else extrapolate_to_zero(*pair))


class InitPair(NamedTuple):
    """``init(params, client_lr, server_lr) -> ServerState`` with a pair of equal models.

    Attributes:
      init_server: the same for one model.
    """

    init_server: Callable[[PyTree, Any, Any], ServerState]

    def __call__(self, params: PyTree, client_lr: Any, server_lr: Any) -> ServerState:
        return self.init_server((params, params), client_lr, server_lr)


def extrapolated_update(
    loss_fn: _checks.Loss,
    theta: Sequence[float],
    server: Optimizer = optax.sgd,
    *,
    extrapolate: Extrapolate = "models",
    client: Optimizer = optax.sgd,
    send: Send | None = None,
    prox: float = 0.0,
    loss_on: Literal["first", "all"] = "first",
    decay: Plateau | None = None,
) -> Method:
    """Return LocalUpdate with two client rates.

    Args:
      loss_fn, theta, server, client, send, prox, loss_on, decay: see `lur.local_update`.
      extrapolate: ``models``, where the state's params are a pair of models and `extrapolated_model(state.params)` is
        the result; or ``updates``.
    """
    if extrapolate not in ("models", "updates"):
        raise ValueError(f"extrapolate must be 'models' or 'updates', got {extrapolate!r}")
    inner_loop = make_inner_loop(loss_fn, theta, client, send, prox, loss_on)
    K = len(inner_loop.theta)
    init = InitServer(checked_optimizer("server", server), decay, K)
    client_update, server_update = TwoRates(inner_loop, extrapolate), ServerUpdate(server, decay)
    if extrapolate == "updates":
        return Method(init, client_update, server_update, K)
    return Method(InitPair(init), client_update, server_update, K, model=model_of_pair)


def model_of_pair(state: ServerState) -> PyTree:
    """Return the extrapolated model of a state whose params are a pair of models."""
    return extrapolated_model(state.params)


def extrapolated_model(params: tuple[PyTree, PyTree]) -> PyTree:
    """Return 2 x(gamma) - x(2 gamma) of a pair of models."""
    if not (isinstance(params, tuple) and len(params) == 2):
        raise ValueError(f"params must be the pair of models of extrapolate='models', got {type(params).__name__}")
    return extrapolate_to_zero(*params)
