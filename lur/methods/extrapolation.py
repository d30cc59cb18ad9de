r"""Two client rates on the same clients, to cancel the bias of local steps to first order in gamma.

LocalUpdate with a fixed gamma converges to :math:`x^*(\gamma) = x^* + \gamma x' + O(\gamma^2)`. Two ways to remove the
middle term, both with client work for gamma and for 2 gamma on the same clients and mini-batches:

``models``    two models, one trained with gamma and one with 2 gamma; the answer is :math:`2x(\gamma) - x(2\gamma)`.
``messages``  one model, which both rates start from; the server steps along :math:`2q(\gamma) - q(2\gamma)`.

The first is Richardson-Romberg extrapolation (for FedAvg: Mangold et al., arXiv:2412.01389). The second acts as Theta
with negative weights would: for large gamma its surrogate may lose its minimum (`theory.extrapolation`).
"""

from collections.abc import Sequence
from typing import Any, Literal

import jax
import optax
from jaxtyping import PyTree

from lur import _checks as checks
from lur.methods.client import Optimizer, inner_loop
from lur.methods.decay import Plateau
from lur.methods.server import Client, LocalUpdate, from_client
from lur.theta import nonzero

Extrapolate = Literal["models", "messages"]


def minus(a: PyTree, b: PyTree) -> PyTree:
    """2a - b."""
    return jax.tree.map(lambda a, b: 2 * a - b, a, b)


def two_rates(client: Client, extrapolate: Extrapolate = "models") -> Client:
    """A client ``(params, batches, gamma) -> (message, loss_before)`` made to run with gamma and with 2 gamma.

    With ``models`` params and message are pairs; the loss is that of the first.
    """
    if extrapolate not in ("models", "messages"):
        raise ValueError(f"extrapolate must be 'models' or 'messages', got {extrapolate!r}")

    def run(params: PyTree, batches: PyTree, gamma: Any) -> Any:
        first, second = params if extrapolate == "models" else (params, params)
        q, loss = client(first, batches, gamma)
        q_2, _ = client(second, batches, 2 * gamma)
        return ((q, q_2) if extrapolate == "models" else minus(q, q_2)), loss

    return run


def extrapolated_update(
    loss_fn: checks.Loss,
    theta: Sequence[float],
    server: Optimizer = optax.sgd,
    *,
    extrapolate: Extrapolate = "models",
    decay: Plateau | None = None,
    **options: Any,
) -> LocalUpdate:
    """LocalUpdate with two client rates: as `lur.local_update`, with `client`, `prox`, `send` and `loss_on` in options.

    Of ``models`` the state's params are the pair of models: `answer(state.params)` is what they say together.
    """
    theta = nonzero(theta)
    options = {("step" if name == "client" else name): value for name, value in options.items()}

    def run(params, batches, gamma):
        return inner_loop(loss_fn, params, batches, gamma, theta, **options)

    algorithm = from_client(two_rates(run, extrapolate), server, steps=len(theta), decay=decay)
    if extrapolate == "messages":
        return algorithm
    return algorithm._replace(
        init=lambda params, client_lr, server_lr: algorithm.init((params, params), client_lr, server_lr)
    )


def answer(params: tuple[PyTree, PyTree]) -> PyTree:
    """2 x(gamma) - x(2 gamma) of a pair of models."""
    if not (isinstance(params, tuple) and len(params) == 2):
        raise ValueError(f"params must be the pair of models of extrapolate='models', got {type(params).__name__}")
    return minus(*params)
