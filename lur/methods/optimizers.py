r"""Yogi as the paper runs it (Zaheer et al., 2018), with the bias corrections met in the wild.

.. math::
    m_t = \beta_1 m_{t-1} + (1-\beta_1) g_t, \qquad
    v_t = v_{t-1} - (1-\beta_2)\,\mathrm{sign}(v_{t-1} - g_t^2)\, g_t^2, \qquad
    x_{t+1} = x_t - \eta\, a_t\, \frac{\hat m_t}{\sqrt{\hat v_t} + \epsilon}

with beta_1 = 0.9, beta_2 = 0.99, epsilon = 1e-5 and v_0 = 0 (Section 6.3). The corrections differ by

===========  ===========================================================  ================================
correction   what is corrected                                            where it is met
===========  ===========================================================  ================================
``none``     nothing: m_t, v_t as they are                                Zaheer et al., the paper's cite
``adam``     m_t / (1 - beta_1^t), v_t / (1 - beta_2^t)                   ``optax.scale_by_yogi``
``tff``      the rate: a_t = sqrt(1 - beta_2^t) / (1 - beta_1^t)          TensorFlow Federated
===========  ===========================================================  ================================

``adam`` and ``tff`` are the same but for epsilon, which ``tff`` leaves uncorrected.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree

BiasCorrection = Literal["none", "adam", "tff"]


class YogiState(NamedTuple):
    """Step count t and the two moments."""

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
    """Yogi's direction, before the learning rate and its sign."""
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
        m = jax.tree.map(lambda p: jnp.full_like(p, initial_accumulator), params)
        v = jax.tree.map(lambda p: jnp.full_like(p, initial_accumulator), params)
        return YogiState(jnp.zeros((), jnp.int32), m, v)

    def update(updates: PyTree, state: Any, params: PyTree | None = None) -> tuple[PyTree, YogiState]:
        del params
        count = state.t + 1
        m = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, updates, state.m)
        v = jax.tree.map(lambda g, v: v - (1 - b2) * jnp.sign(v - g * g) * (g * g), updates, state.v)

        def direction(m, v):
            t = count.astype(m.dtype)
            m_left, v_left = 1 - b1**t, 1 - b2**t
            if bias_correction == "adam":
                m, v = m / m_left, v / v_left
            scaled = m / (jnp.sqrt(v) + eps)
            return scaled * jnp.sqrt(v_left) / m_left if bias_correction == "tff" else scaled

        return jax.tree.map(direction, m, v), YogiState(count, m, v)

    return optax.GradientTransformation(init, update)


def yogi(learning_rate: Any, **options: Any) -> optax.GradientTransformation:
    """Yogi, a server optimiser: ``lur.local_update(loss_fn, theta, server=lur.optimizers.yogi)``.

    Options are those of `scale_by_yogi`; ``functools.partial`` makes a factory with other ones.
    """
    return optax.chain(scale_by_yogi(**options), optax.scale_by_learning_rate(learning_rate))
