r"""LocalUpdateDecay: when gamma and eta decay (Section 7), as a pure state machine for jit, scan and vmap.

Each round brings the mean loss :math:`\ell_t` of the round's clients before training. Its window mean is
:math:`\hat\ell_t`, and a plateau multiplies gamma by alpha and eta by beta, from the next round on.
Two semantics, because the paper leaves some questions open and its authors' published code answers a
few of them differently:

==========================  ==========================================  =====================================
question                    ``paper``                                   ``reference`` (published callbacks)
==========================  ==========================================  =====================================
window mean                 over the min(t, W) losses there are         over W values, first all +inf
the best so far             min over all earlier window means           moves only on an improvement > Delta
a bad round                 mean > best - Delta                         not (mean < best - Delta)
bad rounds in cooldown      counted                                     not counted, the count is held at 0
cooldown                    a round with counter > 0 decrements it      decremented first; the round that
                            and cannot decay: C rounds are exempt       reaches 0 can decay: C - 1 are exempt
who decays                  gamma and eta together                      each its own machine: at its least
                                                                        rate one waits and does not cool down
first round                 min of nothing = +inf: never bad            inf < inf is false: bad while the
                                                                        window holds an inf
==========================  ==========================================  =====================================

W = P = 1 and C = 0 in ``paper`` is Algorithm 3 itself. The count is of consecutive bad rounds, a decay
follows when it reaches P, and both semantics start with a cooldown of C. A NaN loss is never an
improvement and never becomes the best; it stays in the window, and so in its mean, for W rounds.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from lur import _checks as checks


class PlateauState(NamedTuple):
    """The rates in force and the memory of the machine. Under ``reference`` the last three are (client, server)."""

    client_lr: Float[Array, "..."]
    server_lr: Float[Array, ""]
    window: Float[Array, "W"]
    rounds: Int[Array, ""]
    decays: Int[Array, ""]
    best: Float[Array, ""]
    wait: Int[Array, "..."]
    cooldown: Int[Array, "..."]


class Plateau(NamedTuple):
    """``init(client_lr, server_lr) -> state`` and ``update(state, loss) -> state``."""

    init: Callable[[Any, Any], PlateauState]
    update: Callable[[PlateauState, Any], PlateauState]


def rounds_to_see(N: int, M: int) -> int:
    """ceil(N / M): the rounds of M clients that show N of them, the paper's advice for W = P = C."""
    for name, value in (("N", N), ("M", M)):
        if int(value) != value or value < 1:
            raise ValueError(f"{name} must be an integer >= 1, got {value!r}")
    return math.ceil(int(N) / int(M)) if N < 2**52 else -(-int(N) // int(M))


def plateau(
    semantics: Literal["paper", "reference"] = "paper",
    delta: float = 1e-4,
    alpha: float = 0.1,
    beta: float = 0.9,
    window: int = 100,
    patience: int = 100,
    cooldown: int = 100,
    min_client_lr: float = 0.0,
    min_server_lr: float = 0.0,
) -> Plateau:
    """The decay rule. The defaults are those of the paper's experiments.

    Args:
      semantics: ``paper`` or ``reference``; see the table on top.
      delta: Delta >= 0, the least improvement that counts.
      alpha, beta: factors in (0, 1] of the client and the server rate.
      window, patience, cooldown: W >= 1, P >= 1, C >= 0 in rounds.
      min_client_lr, min_server_lr: rates never decay below these.
    """
    if semantics not in ("paper", "reference"):
        raise ValueError(f"semantics must be 'paper' or 'reference', got {semantics!r}")
    if not (math.isfinite(delta) and delta >= 0):
        raise ValueError(f"delta must be finite and >= 0, got {delta}")
    for name, factor in (("alpha", alpha), ("beta", beta)):
        if not 0 < factor <= 1:
            raise ValueError(f"{name} must be in (0, 1], got {factor}")
    for name, rounds, least in (("window", window, 1), ("patience", patience, 1), ("cooldown", cooldown, 0)):
        if isinstance(rounds, bool) or int(rounds) != rounds or rounds < least:
            raise ValueError(f"{name} must be an integer >= {least}, got {rounds!r}")
    for name, least in (("min_client_lr", min_client_lr), ("min_server_lr", min_server_lr)):
        if not (math.isfinite(least) and least >= 0):
            raise ValueError(f"{name} must be finite and >= 0, got {least}")
    machines = () if semantics == "paper" else (2,)

    def init(client_lr: Any, server_lr: Any) -> PlateauState:
        given = [jnp.asarray(rate).dtype for rate in (client_lr, server_lr)]
        floating = [dtype for dtype in given if jnp.issubdtype(dtype, jnp.floating)] or [jnp.asarray(0.0).dtype]
        dtype = np.promote_types(floating[0], floating[-1])
        steps = jnp.shape(client_lr)[0] if jnp.ndim(client_lr) == 1 else None
        gamma = jnp.maximum(checks.rate("client_lr", client_lr, dtype, steps), jnp.asarray(min_client_lr, dtype))
        eta = jnp.maximum(checks.rate("server_lr", server_lr, dtype), jnp.asarray(min_server_lr, dtype))
        zero = jnp.zeros((), jnp.int32)
        return PlateauState(
            client_lr=gamma,
            server_lr=eta,
            window=jnp.full((window,), jnp.inf, dtype),
            rounds=zero,
            decays=zero,
            best=jnp.full((), jnp.inf, dtype),
            wait=jnp.zeros(machines, jnp.int32),
            cooldown=jnp.full(machines, cooldown, jnp.int32),
        )

    def decay(state: PlateauState, client: Array, server: Array) -> PlateauState:
        gamma = jnp.maximum(state.client_lr * alpha, min_client_lr).astype(state.client_lr.dtype)
        eta = jnp.maximum(state.server_lr * beta, min_server_lr).astype(state.server_lr.dtype)
        return state._replace(
            client_lr=jnp.where(client, gamma, state.client_lr),
            server_lr=jnp.where(server, eta, state.server_lr),
            decays=state.decays + (client | server).astype(jnp.int32),
        )

    def observe(state: PlateauState, loss: Any) -> PlateauState:
        loss = jnp.asarray(loss, state.window.dtype)
        if loss.shape != ():
            raise ValueError(f"loss must be a scalar, got shape {loss.shape}")
        return state._replace(window=jnp.roll(state.window, 1).at[0].set(loss), rounds=state.rounds + 1)

    def paper(state: PlateauState, loss: Any) -> PlateauState:
        state = observe(state, loss)
        seen = jnp.minimum(state.rounds, window)
        known = jnp.where(jnp.arange(window, dtype=jnp.int32) < seen, state.window, 0.0)
        mean = known.sum() / seen.astype(known.dtype)
        bad = ~(mean <= state.best - delta)
        wait = jnp.where(bad, state.wait + 1, 0)
        decays = (state.cooldown == 0) & (wait >= patience)
        state = decay(state, decays, decays)
        return state._replace(
            best=jnp.fmin(state.best, mean),
            wait=jnp.where(decays, 0, wait),
            cooldown=jnp.where(decays, cooldown, jnp.maximum(state.cooldown - 1, 0)),
        )

    def reference(state: PlateauState, loss: Any) -> PlateauState:
        state = observe(state, loss)
        mean = state.window.mean()
        improves = mean < state.best - delta
        wait = jnp.where(state.cooldown > 0, 0, state.wait)
        cooling = jnp.maximum(state.cooldown - 1, 0)
        wait = jnp.where(improves, 0, wait + (cooling == 0).astype(jnp.int32))
        above = jnp.stack([(state.client_lr > min_client_lr).any(), state.server_lr > min_server_lr])
        decays = ~improves & (cooling == 0) & (wait >= patience) & above
        state = decay(state, decays[0], decays[1])
        return state._replace(
            best=jnp.where(improves, mean, state.best),
            wait=jnp.where(decays, 0, wait),
            cooldown=jnp.where(decays, cooldown, cooling),
        )

    return Plateau(init, jax.jit(paper if semantics == "paper" else reference))
