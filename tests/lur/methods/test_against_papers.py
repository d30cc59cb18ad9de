"""Each method over 20 rounds with client sampling: the numbers of its paper's pseudo-code in plain numpy.

The problem is least squares with a regulariser (`tests.lur.numpy_loop`), its rates are exact in float32.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest

import lur
from lur import methods
from tests.lur import numpy_loop
from tests.lur.methods.drawn_rounds import drawn_rounds
from tests.lur.methods.oracles import diloco, extrapolation, fedexp, fedlin, fednova, fedprox, maml, mime, reptile
from tests.lur.numpy_loop import FACTORIES, random_store

pytestmark = pytest.mark.promote

SIZES, D, M, B, ROUNDS, SEED = (3, 8, 2, 6, 4, 1, 7), 3, 3, 2, 20, 5
START = np.array([1.0, -2.0, 0.5])
SAMPLINGS = {
    "drawn": {"K": 3, "epochs": None, "weighting": "uniform"},
    "epochs": {"K": 4, "epochs": 1, "weighting": "examples"},
}
"""K = 3 mini-batches drawn with replacement; or one epoch, where clients take from 1 to 4 = ceil(8 / 2) steps."""
loss = numpy_loop.loss
momentum = FACTORIES["momentum"]
EXACT = {"b1": 0.5, "b2": 0.75, "eps": 2.0**-10, "weight_decay": 0.125}
"""AdamW's constants, exact in float32 like its bias corrections."""


def gradient(w, batch):
    return numpy_loop.gradient(w, *batch)


class Case(NamedTuple):
    """A method, its oracle, and its rates.

    Attributes:
      make: ``make(K) -> Method`` where clients have K mini-batches.
      oracle: ``oracle(x, rounds, gradient, gamma, eta) -> model``.
      gamma, eta: the rates.
    """

    make: Callable[[int], Any]
    oracle: Callable[..., Any]
    gamma: float = 0.125
    eta: float = 0.5


def model_of(oracle):
    """The mean of the last two iterates that an oracle returns."""
    return lambda *arguments: sum(oracle(*arguments)) / 2


CASES = {
    "fednova": Case(partial(methods.fednova, loss), fednova.run, eta=0.125),
    "fednova, momentum and prox": Case(
        partial(methods.fednova, loss, momentum=0.75, prox=0.5),
        partial(fednova.run, momentum=0.75, prox=0.5),
        0.0625,
        0.0625,
    ),
    "fedprox": Case(partial(methods.fedprox, loss, prox=0.5, send="delta"), partial(fedprox.run, prox=0.5)),
    "mime, momentum": Case(
        partial(methods.mime, loss, optimizer=momentum), partial(mime.run, base=mime.Momentum(), lite=False), 0.0625
    ),
    "mime, adam": Case(
        partial(methods.mime, loss, optimizer=FACTORIES["adam"]), partial(mime.run, base=mime.Adam(), lite=False)
    ),
    "mimelite, momentum": Case(
        partial(methods.mimelite, loss, optimizer=momentum), partial(mime.run, base=mime.Momentum(), lite=True), 0.0625
    ),
    "diloco": Case(partial(methods.diloco, loss), partial(diloco.run, keep=True), 0.03125),
    "diloco, reset": Case(partial(methods.diloco, loss, inner_state="reset"), partial(diloco.run, keep=False), 0.03125),
    "diloco, exact decays": Case(
        partial(methods.diloco, loss, client=partial(optax.adamw, **EXACT)),
        partial(diloco.run, keep=True, adamw=EXACT),
        0.03125,
    ),
    "reptile": Case(partial(methods.reptile, loss), reptile.run, 0.03125),
    "maml": Case(
        lambda K: methods.maml(loss, K - 1, query="separate"),
        partial(maml.run, hessian=lambda batch: numpy_loop.hessian(batch[0]), order=2),
    ),
    "first-order maml": Case(
        lambda K: methods.maml(loss, K - 1, query="separate", order=1),
        partial(maml.run, hessian=lambda batch: numpy_loop.hessian(batch[0]), order=1),
    ),
    "fedexp": Case(partial(methods.fedexp, loss), model_of(fedexp.run), eta=1.0),
    "fedlin": Case(partial(methods.fedlin, loss), fedlin.run, eta=1.0),
    "extrapolation": Case(
        lambda K: methods.extrapolated_update(loss, lur.theta.fedavg(K)),
        partial(extrapolation.run, what="models"),
        0.0625,
    ),
    "extrapolation of updates": Case(
        lambda K: methods.extrapolated_update(loss, lur.theta.fedavg(K), extrapolate="updates"),
        partial(extrapolation.run, what="updates"),
        0.0625,
    ),
}


@cache
def store_of(dtype):
    return random_store(1, SIZES, D, dtype)


@cache
def rounds_of(dtype, sampling, rounds=ROUNDS, seed=SEED):
    return drawn_rounds(store_of(dtype), rounds=rounds, M=M, B=B, seed=seed, **SAMPLINGS[sampling])


def options_of(sampling):
    chosen = SAMPLINGS[sampling]
    return {
        "clients_per_round": M,
        "batch_size": B,
        "epochs": chosen["epochs"],
        "weighting": chosen["weighting"],
    }


def run(case, dtype, sampling, rounds=ROUNDS, **options):
    """The trained model after `lur.run`."""
    method = case.make(SAMPLINGS[sampling]["K"])
    state = method.init(START.astype(dtype), case.gamma, case.eta, clients=len(SIZES))
    options = {**options_of(sampling), "layout": "vmap", **options}
    state, _ = lur.run(method, state, store_of(dtype), rounds=rounds, seed=SEED, **options)
    return method.model(state)


def relative_error(found, expected):
    assert found.shape == expected.shape
    return np.linalg.norm(np.asarray(found, np.float64) - expected) / np.linalg.norm(expected)


QUICK = {"fednova, momentum and prox", "mime, momentum", "diloco", "reptile"} | {*("maml", "fedexp", "fedlin")}
"""The cases of the ordinary suite."""
PLACES = [("vmap", None), ("sequential", "host"), ("chunked:2", None), ("vmap", "host"), ("sequential", None)]
"""Layouts, and whether the store is on the host."""


def every_place():
    """All cases, samplings and places; the ordinary suite has some methods, each in one place."""
    for i, name in enumerate(CASES):
        for j, sampling in enumerate(SAMPLINGS):
            for k, place in enumerate(PLACES):
                is_quick = name in QUICK and k == i % len(PLACES) and j == (i + 1) % 2
                yield pytest.param(name, sampling, place, marks=() if is_quick else pytest.mark.full)


@pytest.mark.x64
@pytest.mark.parametrize(("name", "sampling", "place"), [*every_place()])
def test_twenty_rounds_in_float64(name, sampling, place):
    case, (layout, data) = CASES[name], place
    expected = case.oracle(START, rounds_of(np.float64, sampling), gradient, case.gamma, case.eta)
    assert np.isfinite(expected).all()
    assert relative_error(run(case, np.float64, sampling, layout=layout, data=data), expected) < 1e-12


@pytest.mark.parametrize("sampling", [pytest.param("drawn", marks=pytest.mark.full), "epochs"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "diloco" else pytest.mark.full) for name in CASES]
)
def test_twenty_rounds_in_float32(name, sampling):
    case = CASES[name]
    rounds = rounds_of(np.float32, sampling)
    expected = case.oracle(START, rounds, gradient, case.gamma, case.eta)
    allowed = 1e-6 * np.linalg.norm(expected)
    if name in BIAS_CORRECTED:
        allowed += effect_of_rounded_corrections(case, rounds, expected, BIAS_CORRECTED[name])
    assert np.linalg.norm(np.asarray(run(case, np.float32, sampling), np.float64) - expected) < allowed


BIAS_CORRECTED = {"diloco": (0.9, 0.999), "diloco, reset": (0.9, 0.999), "reptile": (0.999,)}
"""The decays whose bias optax corrects by 1 - b^t in float32. For b = 0.999 that loses up to ten bits."""


def effect_of_rounded_corrections(case, rounds, expected, decays):
    """A bound, to first order, on the effect of computing 1 - b^t in float32 on the model after these rounds.

    b is rounded, and b^t to within 4 units of its last place's half. The relative error of 1 - b^t is the same whenever
    a client is at its t-th step, so its effect is that of perturbing the oracle's correction there.
    """
    taken = max(sum(len(own) for clients in rounds for i, _, own in clients if i == j) for j in range(len(SIZES)))
    total = 0.0
    for b in decays:
        for t in range(1, taken + 1):
            error = (t * b ** (t - 1) * abs(float(np.float32(b)) - b) + 4 * 2.0**-24) / (1 - b**t)

            def perturbed(decay, step, b=b, t=t, error=error):
                return (1 - decay**step) * (1 + error * ((decay, step) == (b, t)))

            moved = partial(case.oracle, correction=perturbed)(START, rounds, gradient, case.gamma, case.eta)
            total += np.linalg.norm(moved - expected)
    return total


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "mime, adam" else pytest.mark.full) for n in CASES])
@pytest.mark.x64
def test_every_cell_of_a_grid_is_the_run_with_its_rates(name):
    case, gammas, etas = CASES[name], (0.03125, 0.0625), (0.25, 0.125)
    method = case.make(SAMPLINGS["epochs"]["K"])
    states, _ = lur.run_grid(
        method, START, store_of(np.float64), client_lr=gammas, server_lr=etas, seeds=(SEED, 6), rounds=4,
        **options_of("epochs"),
    )  # fmt: skip
    for i, gamma in enumerate(gammas):
        for j, eta in enumerate(etas):
            for k, seed in enumerate((SEED, 6)):
                cell = jax.tree.map(lambda leaf, i=i, j=j, k=k: leaf[i, j, k], states)
                expected = case.oracle(START, rounds_of(np.float64, "epochs", 4, seed), gradient, gamma, eta)
                assert relative_error(method.model(cell), expected) < 1e-12
