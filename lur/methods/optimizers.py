r"""Client and server optimisers: any optax optimiser with a traced learning rate, and Yogi as the paper runs it.

`SERVER_OPTIMIZERS` and `CLIENT_OPTIMIZERS` are those that the command line knows by name (FedOpt; Reddi et al., 2021).
Their factories compare by value (`lur.methods.by_value`), so equal methods share a compiled program.

Yogi (Zaheer et al., 2018) is

.. math::
    m_t = \beta_1 m_{t-1} + (1-\beta_1) g_t, \qquad
    v_t = v_{t-1} - (1-\beta_2)\,\mathrm{sign}(v_{t-1} - g_t^2)\, g_t^2, \qquad
    x_{t+1} = x_t - \eta\, a_t\, \frac{\hat m_t}{\sqrt{\hat v_t} + \epsilon}

with beta_1 = 0.9, beta_2 = 0.99, epsilon = 1e-5 and v_0 = 0 (Section 6.3). Implementations differ in their bias
correction:

===========  ===========================================================  ================================
correction   what is corrected                                            who uses it
===========  ===========================================================  ================================
``none``     nothing: m_t and v_t as they are                             Zaheer et al., whom the paper cites
``adam``     m_t / (1 - beta_1^t), v_t / (1 - beta_2^t)                   ``optax.scale_by_yogi``
``tff``      the rate: a_t = sqrt(1 - beta_2^t) / (1 - beta_1^t)          TensorFlow Federated
===========  ===========================================================  ================================

``adam`` and ``tff`` differ in epsilon, which ``tff`` leaves uncorrected, and in what `initial_accumulator` starts: v_0
alone with ``none`` and ``tff``, m_0 as well with ``adam``, as in optax.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from lur._checks import floating_dtype, widest_dtype

Optimizer = Callable[[Any], optax.GradientTransformation] | optax.GradientTransformation
"""An optax optimiser: a factory of its learning rate (`optax.sgd`), or one built with rate 1 (`optax.adam(1.0)`)."""
BiasCorrection = Literal["none", "adam", "tff"]


def checked_optimizer(name: str, optimizer: Optimizer) -> Optimizer:
    """Return the optimiser, or raise a ValueError if it is no optax optimiser."""
    made: Any = optimizer
    if callable(optimizer):
        try:
            made = optimizer(1.0)
        except TypeError as error:
            made = error
    if not isinstance(made, optax.GradientTransformation):
        raise ValueError(
            f"{name} must be an optax optimiser, as a function of its learning rate (optax.sgd) or built with rate 1 "
            f"(optax.sgd(1.0)), got {optimizer!r}" + (f": {made}" if isinstance(made, TypeError) else "")
        )
    return optimizer


def optimizer_init(optimizer: Optimizer, rate: Float[Array, ""], params: PyTree) -> PyTree:
    """Return the optimiser's initial state."""
    is_built = isinstance(optimizer, optax.GradientTransformation)
    return (optimizer if is_built else optimizer(rate)).init(params)


class InitOptimizer(NamedTuple):
    """``init(params)``: an optimiser's initial state, for optimisers whose state does not depend on their rate.

    Attributes:
      optimizer: the optimiser.
    """

    optimizer: Optimizer

    def __call__(self, params: PyTree) -> PyTree:
        return optimizer_init(self.optimizer, jnp.ones((), floating_dtype(params)), params)


def optimizer_step(
    optimizer: Optimizer, rate: Float[Array, ""], gradient: PyTree, state: PyTree, params: PyTree
) -> tuple[PyTree, PyTree]:
    """Take one step with a traced learning rate. Returns the new parameters and the new optimiser state.

    The update of an optimiser that was built with rate 1 is scaled by `rate`. Every parameter keeps its dtype.
    """
    with jax.numpy_dtype_promotion("standard"):  # optax multiplies the rate, at least float32, with leaves of any dtype
        if isinstance(optimizer, optax.GradientTransformation):
            updates, state = optimizer.update(gradient, state, params)
            updates = jax.tree.map(lambda u: rate * u, updates)
        else:
            updates, state = optimizer(rate).update(gradient, state, params)
        return optax.apply_updates(params, updates), state


def add_scaled(x: PyTree, scalar: Float[Array, ""] | float, y: PyTree) -> PyTree:
    """Return x + scalar * y in the dtype of each leaf of x, computed in at least float32."""

    def add(x: Array, y: Array) -> Array:
        dtype = widest_dtype(x.dtype, jnp.float32)
        return (x.astype(dtype) + jnp.asarray(scalar, dtype) * y.astype(dtype)).astype(x.dtype)

    return jax.tree.map(add, x, y)


class YogiState(NamedTuple):
    """The state of Yogi.

    Attributes:
      t: the number of steps taken.
      m: the first moment.
      v: the second moment.
    """

    t: Int[Array, ""]
    m: PyTree
    v: PyTree


def scale_by_yogi(
    b1: float = 0.9,
    b2: float = 0.99,
    eps: float = 1e-5,
    initial_accumulator: float = 0.0,
    bias_correction: BiasCorrection = "none",
) -> optax.GradientTransformation:
    """Return Yogi's direction, before the learning rate and its sign.

    Args:
      b1, b2: decay of the first and the second moment.
      eps: added to the root of the second moment.
      initial_accumulator: the value of v_0, and with ``adam``, as in ``optax.scale_by_yogi``, of m_0 as well.
      bias_correction: see the table above.
    """
    for name, value in (("b1", b1), ("b2", b2)):
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be in [0, 1), got {value}")
    if not eps > 0:
        raise ValueError(f"eps must be > 0, got {eps}")
    if not initial_accumulator >= 0:
        raise ValueError(f"initial_accumulator must be >= 0, got {initial_accumulator}")
    if bias_correction not in ("none", "adam", "tff"):
        raise ValueError(f"bias_correction must be 'none', 'adam' or 'tff', got {bias_correction!r}")

    def init(params: PyTree) -> YogiState:
        m = optax.tree.full_like(params, initial_accumulator if bias_correction == "adam" else 0.0)
        v = optax.tree.full_like(params, initial_accumulator)
        return YogiState(jnp.zeros((), jnp.int32), m, v)

    def update(updates: PyTree, state: Any, params: PyTree | None = None) -> tuple[PyTree, YogiState]:
        del params
        count = state.t + 1
        m = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, updates, state.m)
        v = jax.tree.map(lambda g, v: v - (1 - b2) * jnp.sign(v - g * g) * (g * g), updates, state.v)

        def direction(m, v):
            t = count.astype(m.dtype)
            m_correction, v_correction = 1 - b1**t, 1 - b2**t
            if bias_correction == "adam":
                m, v = m / m_correction, v / v_correction
            scaled = m / (jnp.sqrt(v) + eps)
            return scaled * jnp.sqrt(v_correction) / m_correction if bias_correction == "tff" else scaled

        return jax.tree.map(direction, m, v), YogiState(count, m, v)

    return optax.GradientTransformation(init, update)


def yogi(learning_rate: Any, **options: Any) -> optax.GradientTransformation:
    """Return Yogi, as a server optimiser: ``lur.local_update(loss_fn, theta, server=lur.optimizers.yogi)``.

    Args:
      learning_rate: eta.
      options: those of `scale_by_yogi`; use ``functools.partial`` for a factory with other options.
    """
    return optax.chain(scale_by_yogi(**options), optax.scale_by_learning_rate(learning_rate))


SERVER_OPTIMIZERS: Mapping[str, Optimizer] = MappingProxyType(
    {
        "sgd": optax.sgd,
        "momentum": partial(optax.sgd, momentum=0.9),
        "nesterov": partial(optax.sgd, momentum=0.9, nesterov=True),
        "adagrad": optax.adagrad,
        "adam": optax.adam,
        "yogi": yogi,
    }
)
"""The server optimisers by name: optax's with its defaults, momentum 0.9, and Yogi as above."""
CLIENT_OPTIMIZERS: Mapping[str, Optimizer] = MappingProxyType(
    {**SERVER_OPTIMIZERS, "adamw": optax.adamw, "rmsprop": optax.rmsprop}
)
"""The client optimisers by name."""
