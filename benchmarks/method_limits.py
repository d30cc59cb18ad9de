"""Where each method converges on the two clients of Section 4, with full gradients, from the method's own functions.

`theory.limit_of` iterates the whole state of a method: model, server and client states. A round is
`lur.methods.method.method_round`, in float64.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import theory
from benchmarks.method_cases import CASES
from lur.methods.method import Batches, Method, RoundInputs, ServerState, method_round
from lur.parallel.layouts import Layout
from theory.limits import nearest_fraction

GAMMA, SMALL = Fraction(1, 4), (Fraction(1, 64), Fraction(1, 128))
"""The rate of the fixed points, and the two by which the order of the bias is found."""
OPTIMUM = Fraction(2, 3)
START = 2.0
ROUNDS = 50_000
"""The rounds that are run of methods whose round is not affine."""
SETTLED = 1e-12
"""A run has converged if its last round moves the model by no more."""


class Bias(NamedTuple):
    """The distance of the fixed points from x*, as c gamma^p for small gamma.

    Attributes:
      order: p; None if there is no bias.
      coefficient: c.
    """

    order: int | None
    coefficient: float


class MethodState(NamedTuple):
    """What a round of the two clients starts from.

    Attributes:
      server: the state of the method, client states included.
      is_step: which local steps each client takes.
    """

    server: ServerState
    is_step: Any


def quadratic_loss(x: Any, batch: Any) -> Any:
    """Return the mean of (x - c)^T A (x - c) / 2 over a mini-batch (A, c)."""
    A, c = batch
    return 0.5 * jnp.mean(jnp.einsum("bi,bij,bj->b", x - c, A, x - c))


class TwoClients(NamedTuple):
    """A number of rounds of a method on the two clients: ``(MethodState) -> MethodState``.

    Attributes:
      method: the method.
      local_steps: the steps that the arrays have, the largest K_i.
      masked: whether the clients' K_i are masked; otherwise all take `local_steps` steps.
      rounds: how many rounds.
    """

    method: Method
    local_steps: int
    masked: bool
    rounds: int = 1

    def __call__(self, state: MethodState) -> MethodState:
        problem = theory.two_clients()
        arrays = tuple(jnp.repeat(v[:, None, None], self.local_steps, axis=1) for v in (problem.A, problem.c))
        inputs = RoundInputs((arrays, state.is_step), None, jnp.arange(2, dtype=jnp.int32), None, (2, 2))

        def batches_of(_: None, own: Any) -> Batches:
            return Batches(own[0], is_step=own[1] if self.masked else None)

        server = state.server
        for _ in range(self.rounds):
            server, _ = method_round(self.method, server, inputs, Layout(1), batches_of)
        return state._replace(server=server)


@cache
def method_of(name: str, local_steps: int) -> Method:
    """Return the method on quadratics."""
    return CASES[name].make(quadratic_loss, local_steps)


def start_of(name: str, gamma: Fraction, steps: Sequence[int], longest: int) -> tuple[TwoClients, MethodState]:
    """Return a method's rounds, and its state after a first one, or after a first communication."""
    case = CASES[name]
    method = method_of(name, longest)
    rate = float(gamma)
    eta = rate if case.sends_gradients else 1.0
    is_step = jnp.arange(longest)[None, :] < jnp.asarray(steps)[:, None]
    state = MethodState(method.init(jnp.array([START]), rate, eta, clients=2), is_step)
    one_round = TwoClients(method, longest, case.unequal_steps and not case.one_step)
    if name != "proxskip":
        return one_round, compiled(one_round, state)
    communicated = []  # the rounds after whose coin there is a communication
    for t in range(64):
        state = compiled(one_round, state)
        if state.server.method_state.communicated:
            communicated.append((t, state))
        if len(communicated) == 2:
            break
    (first, state), (second, _) = communicated
    return one_round._replace(rounds=second - first), state


@partial(jax.jit, static_argnums=0)
def compiled(rounds: TwoClients, state: MethodState) -> MethodState:
    """Run the rounds."""
    return rounds(state)


@partial(jax.jit, static_argnums=0)
def run_long(rounds: TwoClients, state: MethodState) -> tuple[MethodState, MethodState]:
    """Run ROUNDS rounds, and return the last two states."""
    before = jax.lax.fori_loop(0, ROUNDS - 1, lambda _, state: rounds(state), state)
    return before, rounds(before)


@theory.float64
def fixed_point(
    name: str, gamma: Fraction, steps: Sequence[int], longest: int | None = None
) -> Fraction | float | None:
    """Return where a method's model converges: a fraction, a float if it was found by running, None if it does not.

    Args:
      name: in `CASES`.
      gamma: the client rate.
      steps: K_1 and K_2.
      longest: the steps that the arrays have; by default the larger K_i.
    """
    longest = max(steps) if longest is None else longest
    rounds, state = start_of(name, gamma, steps, longest)
    if not CASES[name].affine:
        before, after = run_long(rounds, state)
        models = [float(rounds.method.model(each.server)[0]) for each in (before, after)]
        return models[1] if abs(models[1] - models[0]) <= SETTLED else None
    limit = theory.limit_of(rounds, state)
    if not limit.residual <= 1e-12:
        raise ValueError(f"a round of {name} must be affine, got a residual of {limit.residual:.3g}")
    if limit.radius >= 1:
        return None
    return nearest_fraction(float(rounds.method.model(limit.state.server)[0]))


def bias_of(name: str, steps: Sequence[int], longest: int) -> Bias | None:
    """Return the order in gamma of a method's bias, and its coefficient; None if it does not converge."""
    ends = [fixed_point(name, gamma, steps, longest) for gamma in SMALL]
    if any(end is None for end in ends):
        return None
    large, small = (float(end - OPTIMUM) for end in ends)  # pyright: ignore[reportOptionalOperand]
    if max(abs(large), abs(small)) <= 100 * np.finfo(float).eps:
        return Bias(None, 0.0)
    order = round(math.log2(abs(large / small)))
    first, second = (bias / float(gamma) ** order for bias, gamma in zip((large, small), SMALL, strict=True))
    return Bias(order, 2 * second - first)
