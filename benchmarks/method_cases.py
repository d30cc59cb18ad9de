"""How the methods of `lur.methods.registry` are run where docs/methods.md and `lur bench methods` compare them.

Every method sends what its paper sends, with the rates of its paper: a server rate of 1 for clients that send x - y, of
gamma for clients that send gradients.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import optax

import lur
from lur import methods
from lur.methods.extrapolation import extrapolated_update
from lur.methods.maml import maml
from lur.methods.method import Method


class MethodCase(NamedTuple):
    """A method with its settings.

    Attributes:
      make: ``make(loss_fn, K) -> Method``.
      settings: its settings, for the reader.
      sends_gradients: whether the server rate is gamma, not 1.
      unequal_steps: whether clients may take unequal numbers of steps.
      affine: whether a round is affine on quadratics.
      one_step: whether a round is a single step.
    """

    make: Callable[[Any, int], Method]
    settings: str = ""
    sends_gradients: bool = False
    unequal_steps: bool = True
    affine: bool = True
    one_step: bool = False


def momentum(rate: Any) -> optax.GradientTransformation:
    """Return SGD with momentum 0.9."""
    return optax.sgd(rate, momentum=0.9)


CASES: Mapping[str, MethodCase] = MappingProxyType(
    {
        "fedavg": MethodCase(lambda loss, K: lur.local_update(loss, lur.theta.fedavg(K), send="delta")),
        "minibatch_sgd": MethodCase(
            lambda loss, K: lur.local_update(loss, lur.theta.minibatch_sgd()), sends_gradients=True, one_step=True
        ),
        "fomaml": MethodCase(
            lambda loss, K: lur.local_update(loss, lur.theta.fomaml(K)), sends_gradients=True, unequal_steps=False
        ),
        "maml": MethodCase(lambda loss, K: maml(loss, K), sends_gradients=True),
        "reptile": MethodCase(lambda loss, K: methods.reptile(loss, K), "Adam inside", affine=False),
        "fedprox": MethodCase(lambda loss, K: methods.fedprox(loss, K, 0.1, send="delta"), "rho = 0.1"),
        "fednova": MethodCase(lambda loss, K: methods.fednova(loss, K), sends_gradients=True),
        "scaffold": MethodCase(lambda loss, K: methods.scaffold(loss, K), "option II"),
        "feddyn": MethodCase(lambda loss, K: methods.feddyn(loss, K, 1.0), "alpha = 1"),
        "proxskip": MethodCase(lambda loss, K: methods.proxskip(loss, 0.5), "p = 1/2", one_step=True),
        "fedsplit": MethodCase(lambda loss, K: methods.fedsplit(loss, K, 1.0), "s = 1"),
        "fedlin": MethodCase(lambda loss, K: methods.fedlin(loss, K)),
        "mime": MethodCase(lambda loss, K: methods.mime(loss, K, momentum), "momentum 0.9"),
        "mimelite": MethodCase(lambda loss, K: methods.mimelite(loss, K, momentum), "momentum 0.9"),
        "diloco": MethodCase(lambda loss, K: methods.diloco(loss, K), "AdamW inside, Nesterov outside", affine=False),
        "fedexp": MethodCase(lambda loss, K: methods.fedexp(loss, K), "epsilon = 0.001", affine=False),
        "extrapolation": MethodCase(
            lambda loss, K: extrapolated_update(loss, lur.theta.fedavg(K), send="delta"), "two models"
        ),
    }
)
"""By name; `ALIASES` have no row of their own."""
ALIASES = MappingProxyType({"local_update": "any Theta", "lookahead": "fedavg"})
