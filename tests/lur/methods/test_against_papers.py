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
    "diloco, reset": Case(
        partial(methods.diloco, loss, inner_state="reset"), partial(diloco.run, keep=False), 0.03125
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
        lambda K: methods.extrapolated_update(loss, lur.theta.fedavg(K)), partial(extrapolation.run, what="models"), 0.0625
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
    state, _ = lur.run(
        method, state, store_of(dtype), rounds=rounds, seed=SEED, **{**options_of(sampling), "layout": "vmap", **options}
    )
    return method.model(state)


def relative_error(found, expected):
    assert found.shape == expected.shape
    return np.linalg.norm(np.asarray(found, np.float64) - expected) / np.linalg.norm(expected)


@pytest.mark.x64
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", CASES)
def test_twenty_rounds_in_float64(name, sampling):
    case = CASES[name]
    expected = case.oracle(START, rounds_of(np.float64, sampling), gradient, case.gamma, case.eta)
    assert np.isfinite(expected).all()
    assert relative_error(run(case, np.float64, sampling), expected) < 1e-12


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", CASES)
def test_twenty_rounds_in_float32(name, sampling):
    case = CASES[name]
    expected = case.oracle(START, rounds_of(np.float32, sampling), gradient, case.gamma, case.eta)
    assert relative_error(run(case, np.float32, sampling), expected) < 1e-6
