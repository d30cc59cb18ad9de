r"""LocalUpdateDecay: when gamma and eta decay (Section 7, Algorithm 3), as a pure state machine.

Each round brings the mean loss :math:`\ell_t` of the round's clients before training. Its window mean is
:math:`\hat\ell_t`. A plateau multiplies gamma by alpha and eta by beta, from the next round on. The paper leaves some
questions open, and its authors' published code answers a few of them differently, so there are two semantics:

==========================  ==========================================  =====================================
question                    ``paper``                                   ``reference`` (published callbacks)
==========================  ==========================================  =====================================
window mean                 over the min(t, W) losses so far            over W values, initially all +inf
best so far                 min over all earlier window means           moves only on an improvement > Delta
a bad round                 mean > best - Delta                         not (mean < best - Delta)
bad rounds in cooldown      counted                                     not counted, the count is held at 0
cooldown                    a round with counter > 0 decrements it      decremented first; the round that
                            and cannot decay: C rounds are exempt       reaches 0 can decay: C - 1 are exempt
what decays                 gamma and eta together                      each by its own machine; a rate at its
                                                                        minimum waits and does not cool down
first round                 min of nothing = +inf: never bad            inf < inf is false: bad while the
                                                                        window holds an inf
Delta, W, P, C              one set                                     one set for gamma, one for eta
patience 0, factor 0        refused                                     0 is as 1; the rate goes to its minimum
==========================  ==========================================  =====================================

With W = P = 1 and C = 0, ``paper`` is Algorithm 3 itself. Consecutive bad rounds are counted, a decay follows when the
count reaches P, and both semantics start with a cooldown of C. A NaN loss is never an improvement and never becomes
the best; it stays in the window, and so in its mean, for W rounds.
"""

import math
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from lur import _checks
from lur.methods.compiled import jit_per_settings


class PlateauState(NamedTuple):
    """The rates in use and the memory of the decay rule.

    Attributes:
      client_lr: gamma.
      server_lr: eta.
      window: the last W losses, the newest first; the larger W if gamma and eta have their own.
      rounds: the number of losses seen.
      decays: the number of decays.
      best: the best window mean so far; one for gamma and one for eta if their Delta or W differ.
      wait: the number of consecutive bad rounds; under ``reference`` one for gamma and one for eta.
      cooldown: the rounds left in which the rates cannot decay; under ``reference`` one for gamma and one for eta.
    """

    client_lr: Float[Array, "..."]
    server_lr: Float[Array, ""]
    window: Float[Array, "W"]
    rounds: Int[Array, ""]
    decays: Int[Array, ""]
    best: Float[Array, "..."]
    wait: Int[Array, "..."]
    cooldown: Int[Array, "..."]


class Plateau(NamedTuple):
    """A decay rule: ``init(client_lr, server_lr) -> PlateauState`` and ``update(state, loss) -> PlateauState``.

    Attributes:
      semantics: ``paper`` or ``reference``.
      delta: Delta, the least improvement that counts.
      alpha: the factor of gamma.
      beta: the factor of eta.
      window: W.
      patience: P.
      cooldown: C.
      min_client_lr: the smallest gamma.
      min_server_lr: the smallest eta.
      server_delta, server_window, server_patience, server_cooldown: those of eta; the same under ``paper``.
    """

    semantics: Literal["paper", "reference"]
    delta: float
    alpha: float
    beta: float
    window: int
    patience: int
    cooldown: int
    min_client_lr: float
    min_server_lr: float
    server_delta: float
    server_window: int
    server_patience: int
    server_cooldown: int

    def init(self, client_lr: Any, server_lr: Any) -> PlateauState:
        """Return the state before the first round."""
        given = [jnp.asarray(rate).dtype for rate in (client_lr, server_lr)]
        floating = [dtype for dtype in given if jnp.issubdtype(dtype, jnp.floating)] or [jnp.asarray(0.0).dtype]
        dtype = np.promote_types(floating[0], floating[-1])
        steps = jnp.shape(client_lr)[0] if jnp.ndim(client_lr) == 1 else None
        gamma = _checks.rate("client_lr", client_lr, dtype, steps)
        eta = _checks.rate("server_lr", server_lr, dtype)
        machines = () if self.semantics == "paper" else (2,)
        bests = () if (self.delta, self.window) == (self.server_delta, self.server_window) else (2,)
        cooldowns = self.cooldown if self.semantics == "paper" else (self.cooldown, self.server_cooldown)
        zero = jnp.zeros((), jnp.int32)
        return PlateauState(
            client_lr=jnp.maximum(gamma, jnp.asarray(self.min_client_lr, dtype)),
            server_lr=jnp.maximum(eta, jnp.asarray(self.min_server_lr, dtype)),
            window=jnp.full((max(self.window, self.server_window),), jnp.inf, dtype),
            rounds=zero,
            decays=zero,
            best=jnp.full(bests, jnp.inf, dtype),
            wait=jnp.zeros(machines, jnp.int32),
            cooldown=jnp.asarray(cooldowns, jnp.int32),
        )

    def update(self, state: PlateauState, loss: Any) -> PlateauState:
        """Return the state after a round with this mean loss before training."""
        return (_paper_update if self.semantics == "paper" else _reference_update)(self, state, loss)


def rounds_to_see(N: int, M: int) -> int:
    """Return ceil(N / M), the rounds in which M clients each see N clients: the paper's advice for W = P = C."""
    N, M = (_checks.positive_integer(name, value) for name, value in (("N", N), ("M", M)))
    return -(-N // M)


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
    *,
    server_delta: float | None = None,
    server_window: int | None = None,
    server_patience: int | None = None,
    server_cooldown: int | None = None,
) -> Plateau:
    """Return the decay rule. The defaults are those of the paper's experiments.

    Args:
      semantics: ``paper`` or ``reference``; see the table above.
      delta: Delta >= 0, the least improvement that counts.
      alpha, beta: factors of the client and the server rate, in (0, 1]; under ``reference`` in [0, 1].
      window, patience, cooldown: W >= 1, P >= 1 (under ``reference`` P >= 0), C >= 0, in rounds.
      min_client_lr, min_server_lr: rates never decay below these.
      server_delta, server_window, server_patience, server_cooldown: Delta, W, P and C of the server rate, under
        ``reference`` only; by default those of the client rate.
    """
    if semantics not in ("paper", "reference"):
        raise ValueError(f"semantics must be 'paper' or 'reference', got {semantics!r}")
    own = {"delta": server_delta, "window": server_window, "patience": server_patience, "cooldown": server_cooldown}
    for name, value in own.items():
        if semantics == "paper" and value is not None:
            raise ValueError(
                f"server_{name} must be left out under 'paper', where both rates decay together, got {value}"
            )
    is_reference = semantics == "reference"
    for name, factor in (("alpha", alpha), ("beta", beta)):
        if not (0 <= factor <= 1 if is_reference else 0 < factor <= 1):
            raise ValueError(f"{name} must be in {'[' if is_reference else '('}0, 1], got {factor}")
    for name, least in (("min_client_lr", min_client_lr), ("min_server_lr", min_server_lr)):
        if not (math.isfinite(least) and least >= 0):
            raise ValueError(f"{name} must be finite and >= 0, got {least}")
    shared = {"delta": delta, "window": window, "patience": patience, "cooldown": cooldown}
    delta, window, patience, cooldown = checked_rule("", is_reference, **shared)
    server = checked_rule("server_", is_reference, **(shared | {k: v for k, v in own.items() if v is not None}))
    rounds = (window, patience, cooldown)
    return Plateau(semantics, delta, alpha, beta, *rounds, min_client_lr, min_server_lr, *server)


def checked_rule(
    prefix: str, is_reference: bool, *, delta: float, window: int, patience: int, cooldown: int
) -> tuple[float, int, int, int]:
    """Return Delta, W, P and C of one rate, checked; the prefix is that of their names."""
    if not (math.isfinite(delta) and delta >= 0):
        raise ValueError(f"{prefix}delta must be finite and >= 0, got {delta}")
    counts = (("window", window, 1), ("patience", patience, 0 if is_reference else 1), ("cooldown", cooldown, 0))
    for name, rounds, least in counts:
        if isinstance(rounds, bool) or int(rounds) != rounds or rounds < least:
            raise ValueError(f"{prefix}{name} must be an integer >= {least}, got {rounds!r}")
    return delta, int(window), int(patience), int(cooldown)


def decay_rates(rule: Plateau, state: PlateauState, client: Bool[Array, ""], server: Bool[Array, ""]) -> PlateauState:
    """Multiply gamma by alpha where `client` and eta by beta where `server`."""
    gamma = jnp.maximum(state.client_lr * rule.alpha, rule.min_client_lr).astype(state.client_lr.dtype)
    eta = jnp.maximum(state.server_lr * rule.beta, rule.min_server_lr).astype(state.server_lr.dtype)
    return state._replace(
        client_lr=jnp.where(client, gamma, state.client_lr),
        server_lr=jnp.where(server, eta, state.server_lr),
        decays=state.decays + (client | server).astype(jnp.int32),
    )


def observe(state: PlateauState, loss: Any) -> PlateauState:
    """Put a round's loss into the window."""
    loss = jnp.asarray(loss, state.window.dtype)
    if loss.shape != ():
        raise ValueError(f"loss must be a scalar, got shape {loss.shape}")
    return state._replace(window=jnp.roll(state.window, 1).at[0].set(loss), rounds=state.rounds + 1)


@jit_per_settings(1)
def _paper_update(rule: Plateau, state: PlateauState, loss: Any) -> PlateauState:
    state = observe(state, loss)
    seen = jnp.minimum(state.rounds, rule.window)
    known = jnp.where(jnp.arange(rule.window, dtype=jnp.int32) < seen, state.window, 0.0)
    mean = known.sum() / seen.astype(known.dtype)
    bad = ~(mean <= state.best - rule.delta)
    wait = jnp.where(bad, state.wait + 1, 0)
    decays = (state.cooldown == 0) & (wait >= rule.patience)
    state = decay_rates(rule, state, decays, decays)
    return state._replace(
        best=jnp.fmin(state.best, mean),
        wait=jnp.where(decays, 0, wait),
        cooldown=jnp.where(decays, rule.cooldown, jnp.maximum(state.cooldown - 1, 0)),
    )


@jit_per_settings(1)
def _reference_update(rule: Plateau, state: PlateauState, loss: Any) -> PlateauState:
    state = observe(state, loss)
    deltas = jnp.asarray((rule.delta, rule.server_delta), state.best.dtype)
    patience = jnp.asarray((rule.patience, rule.server_patience), jnp.int32)
    whole_cooldown = jnp.asarray((rule.cooldown, rule.server_cooldown), jnp.int32)
    means = jnp.stack([state.window[:W].mean() for W in (rule.window, rule.server_window)])
    improves = means < state.best - deltas
    wait = jnp.where(state.cooldown > 0, 0, state.wait)
    cooldown = jnp.maximum(state.cooldown - 1, 0)
    wait = jnp.where(improves, 0, wait + (cooldown == 0).astype(jnp.int32))
    above = jnp.stack([(state.client_lr > rule.min_client_lr).any(), state.server_lr > rule.min_server_lr])
    decays = ~improves & (cooldown == 0) & (wait >= patience) & above
    best = jnp.where(improves, means, state.best)
    state = decay_rates(rule, state, decays[0], decays[1])
    return state._replace(
        best=best if state.best.ndim else best[0],
        wait=jnp.where(decays, 0, wait),
        cooldown=jnp.where(decays, whole_cooldown, cooldown),
    )
