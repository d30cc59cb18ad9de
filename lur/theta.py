r"""Theta, the weights of the local gradients in a client's update (Section 2.2).

A client sends :math:`\sum_{k \ge 1} \theta_k g_k` with :math:`\theta_k \ge 0`, finitely many of them positive, and
takes :math:`K(\Theta) = \max\{k : \theta_k > 0\}` local steps. In code, Theta is a tuple of floats without trailing
zeros, so ``K(Theta) == len(Theta)`` and ``K(0) == 0``.

==================  =======================  ==================================
name                Theta                    method
==================  =======================  ==================================
``minibatch_sgd()`` Theta_1 = (1)            mini-batch SGD
``fedavg(K)``       Theta_{1:K} = (1,..,1)   FedAvg, Reptile, Lookahead, local SGD
``fomaml(K)``       Theta_K = (0,..,0,1)     first-order MAML
``maml(K)``         Theta_{2K+1}             K-MAML on quadratics (Theorem 2)
==================  =======================  ==================================
"""

import math
import re
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

Theta: TypeAlias = tuple[float, ...]
MAX_K = 1_000_000
"""Most local steps of a Theta by name: its weights are a tuple."""


def weights(theta: Iterable[float]) -> Theta:
    """Return Theta from a sequence of weights, without trailing zeros.

    Args:
      theta: a sequence or array of finite, nonnegative numbers.
    """
    if isinstance(theta, str):
        raise ValueError(f"theta must be a sequence of numbers, got the string {theta!r}; use lur.theta.parse")
    array = np.asarray(theta if hasattr(theta, "__array__") else list(theta))
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"theta must be a non-empty sequence of weights, got shape {array.shape}")
    if array.dtype == bool or not np.issubdtype(array.dtype, np.number) or np.iscomplexobj(array):
        raise ValueError(f"theta must hold real numbers, got dtype {array.dtype}")
    for k, value in enumerate(array, start=1):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"theta must be finite and >= 0, got theta_{k} = {value}")
    support = np.flatnonzero(array)
    return tuple(float(v) for v in array[: support[-1] + 1]) if support.size else ()


def K(theta: Iterable[float]) -> int:
    """Return K(Theta) = max{k : theta_k > 0}, the number of local steps; K(0) = 0."""
    return len(weights(theta))


def nonzero(theta: Iterable[float]) -> Theta:
    """Return Theta, or raise a ValueError unless it has a positive weight (Assumption 0, K(Theta) > 0)."""
    theta = weights(theta)
    if not theta:
        raise ValueError("theta must have a positive weight (Assumption 0), got only zeros")
    return theta


def _checked_steps(K: int, minimum: int = 1) -> int:
    if isinstance(K, bool) or int(K) != K or minimum > K:
        raise ValueError(f"K must be an integer >= {minimum}, got {K!r}")
    if K > MAX_K:
        raise ValueError(f"K must be at most {MAX_K:,} local steps, got {K:,}")
    return int(K)


def _number(digits: str) -> int:
    """The number that digits say; what is far beyond `MAX_K` is cut, because Python limits the digits it converts."""
    return int(digits.lstrip("0")[:30] or "0")


def minibatch_sgd() -> Theta:
    """Return Theta_1: one gradient, at the broadcast model. The client learning rate has no effect."""
    return (1.0,)


def fedavg(K: int) -> Theta:
    """Return Theta_{1:K}: the sum of K local gradients, which for SGD clients is (x_1 - x_{K+1}) / gamma."""
    return (1.0,) * _checked_steps(K)


def fomaml(K: int) -> Theta:
    """Return Theta_K: the last of K local gradients."""
    return (0.0,) * (_checked_steps(K) - 1) + (1.0,)


def maml(K: int) -> Theta:
    """Return Theta_{2K+1}: K-MAML of gradient descent clients on quadratics (Theorem 2); K = 0 is Theta_1."""
    return fomaml(2 * _checked_steps(K, minimum=0) + 1)


_FORMS = "'1:10' (Theta_{1:10}), 'K=10' (Theta_10) or '[1,0,2]' (any weights)"


def parse(text: str) -> Theta:
    """Return Theta from its text form.

    Args:
      text: ``1:10`` (Theta_{1:10}), ``K=10`` (Theta_10) or ``[1,0,2]`` (any weights).
    """
    compact = re.sub(r"\s+", "", text)
    if match := re.fullmatch(r"1:(\d+)", compact):
        return fedavg(_number(match[1]))
    if match := re.fullmatch(r"K=(\d+)", compact, flags=re.IGNORECASE):
        return fomaml(_number(match[1]))
    if match := re.fullmatch(r"\[([^\[\]]+)\]", compact):
        try:
            values = [float(part) for part in match[1].split(",")]
        except ValueError as error:
            raise ValueError(f"theta must be {_FORMS}, got {text!r}: {error}") from None
        return weights(values)
    raise ValueError(f"theta must be {_FORMS}, got {text!r}")


def text(theta: Iterable[float]) -> str:
    """Return the shortest text form of Theta that `parse` accepts."""
    theta = weights(theta)
    if theta and theta == fedavg(len(theta)):
        return f"1:{len(theta)}"
    if theta and theta == fomaml(len(theta)):
        return f"K={len(theta)}"
    return "[" + ",".join(f"{v:.17g}" for v in theta or (0.0,)) + "]"
