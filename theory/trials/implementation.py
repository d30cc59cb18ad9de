"""The algorithms on trial: an interface, which `lur` implements, and a reference implementation of it.

Claims compare formulas with what an implementation computes. Theory does not import one: whoever runs the trials
passes it in. `lur verify` passes in lur; the default is `REFERENCE`, the algorithms as printed, in plain jax.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class Implementation(NamedTuple):
    """The functions that trials call, with lur's signatures.

    Attributes:
      inner_loop: ``(loss_fn, params, batches, gamma, theta) -> (update, loss_before)``, Algorithm 2.
      local_update: ``(loss_fn, theta, server=..., decay=...) -> method``, Algorithms 1 and 3. The method has
        ``init(params, client_lr, server_lr) -> state`` and ``round(state, batches, weights) -> (state, info)``; the
        state has `params`, `server_lr` and `decay_state`.
      maml_gradient: ``(loss_fn, params, batches, gamma, steps) -> gradient`` through that many local steps.
      plateau: ``(semantics, delta, alpha, beta, window, patience, cooldown) -> rule``, the decay rule, with
        ``init(client_lr, server_lr) -> state`` and ``update(state, loss) -> state``; its state has `decays`.
      rounds_to_see: ``(N, M) -> ceil(N / M)``.
      steps: ``(theta) -> K(Theta) = max{k : theta_k > 0}``.
      yogi: ``(learning_rate, eps=...) -> optax.GradientTransformation``.
    """

    inner_loop: Callable[..., Any]
    local_update: Callable[..., Any]
    maml_gradient: Callable[..., Any]
    plateau: Callable[..., Any]
    rounds_to_see: Callable[[int, int], int]
    steps: Callable[..., int]
    yogi: Callable[..., Any]


def implementation_of(package: Any) -> Implementation:
    """Returns the functions of a package that is laid out like `lur`: ``implementation_of(lur)``."""
    return Implementation(
        inner_loop=package.inner_loop,
        local_update=package.local_update,
        maml_gradient=package.maml.maml_gradient,
        plateau=package.decay.plateau,
        rounds_to_see=package.decay.rounds_to_see,
        steps=package.theta.K,
        yogi=package.optimizers.yogi,
    )


def _inner_loop(loss_fn: Any, params: Any, batches: Any, gamma: Any, theta: Any) -> Any:
    y, update, loss_before = params, optax.tree.zeros_like(params), None
    for k, theta_k in enumerate(theta):
        loss, gradient = jax.value_and_grad(loss_fn)(y, jax.tree.map(lambda leaf, k=k: leaf[k], batches))
        loss_before = loss if loss_before is None else loss_before
        update = optax.tree.add_scale(update, theta_k, gradient)
        y = optax.tree.add_scale(y, -gamma, gradient)
    return update, loss_before


def _maml_gradient(loss_fn: Any, params: Any, batches: Any, gamma: Any, steps: int) -> Any:
    def loss_after(y: Any) -> Any:
        for k in range(steps):
            gradient = jax.grad(loss_fn)(y, jax.tree.map(lambda leaf, k=k: leaf[k], batches))
            y = optax.tree.add_scale(y, -gamma, gradient)
        outer = jax.tree.map(lambda leaf: leaf[steps : steps + 1] if len(leaf) > steps else leaf, batches)
        return jax.vmap(loss_fn, in_axes=(None, 0))(y, outer).mean()

    return jax.grad(loss_after)(params)


class _State(NamedTuple):
    params: Any
    client_lr: Any
    server_lr: Any
    optimizer: Any
    decay_state: Any


class _Method(NamedTuple):
    init: Callable[..., _State]
    round: Callable[..., tuple[_State, Any]]


def _local_update(loss_fn: Any, theta: Any, server: Callable[[Any], Any] = optax.sgd, decay: Any = None) -> _Method:
    def init(params: Any, client_lr: Any, server_lr: Any) -> _State:
        rates = None if decay is None else decay.init(client_lr, server_lr)
        return _State(params, jnp.asarray(client_lr), jnp.asarray(server_lr), server(server_lr).init(params), rates)

    def round(state: _State, batches: Any, weights: Any = None) -> tuple[_State, Any]:
        def client(client_batches: Any) -> Any:
            return _inner_loop(loss_fn, state.params, client_batches, state.client_lr, theta)

        updates, losses = jax.vmap(client)(batches)
        weights = jnp.ones_like(losses) if weights is None else jnp.asarray(weights)
        share = weights / weights.sum()
        mean = jax.tree.map(lambda leaf: jnp.tensordot(share, leaf, 1), updates)
        step, optimizer = server(state.server_lr).update(mean, state.optimizer, state.params)
        after = state._replace(params=optax.apply_updates(state.params, step), optimizer=optimizer)
        if decay is not None:
            rates = decay.update(state.decay_state, share @ losses)
            after = after._replace(client_lr=rates.client_lr, server_lr=rates.server_lr, decay_state=rates)
        return after, losses

    return _Method(init, round)


class _Rates(NamedTuple):
    client_lr: Any
    server_lr: Any
    losses: tuple[float, ...]
    best: float
    bad: int
    cooldown: int
    decays: int


class _Rule(NamedTuple):
    init: Callable[..., _Rates]
    update: Callable[..., _Rates]


def _plateau(
    semantics: str, delta: float, alpha: float, beta: float, window: int, patience: int, cooldown: int
) -> _Rule:
    if semantics != "paper":
        raise ValueError(f"semantics must be 'paper' in the reference implementation, got {semantics!r}")

    def update(rates: _Rates, loss: Any) -> _Rates:
        losses = (*rates.losses, float(loss))[-window:]
        mean = sum(losses) / len(losses)
        bad = rates.bad + 1 if mean > rates.best - delta else 0
        if rates.cooldown == 0 and bad >= patience:
            return _Rates(alpha * rates.client_lr, beta * rates.server_lr, losses, min(rates.best, mean),
                          0, cooldown, rates.decays + 1)  # fmt: skip
        return rates._replace(losses=losses, best=min(rates.best, mean), bad=bad, cooldown=max(rates.cooldown - 1, 0))

    return _Rule(lambda client_lr, server_lr: _Rates(client_lr, server_lr, (), math.inf, 0, cooldown, 0), update)


def _rounds_to_see(N: int, M: int) -> int:
    return math.ceil(N / M)


def _steps(theta: Any) -> int:
    return max((k for k, theta_k in enumerate(theta, start=1) if theta_k > 0), default=0)


REFERENCE = Implementation(
    inner_loop=_inner_loop,
    local_update=_local_update,
    maml_gradient=_maml_gradient,
    plateau=_plateau,
    rounds_to_see=_rounds_to_see,
    steps=_steps,
    yogi=optax.yogi,
)
"""The algorithms as printed, in plain jax."""
