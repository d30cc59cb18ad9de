"""Yogi compared with its formulas in numpy, and with optax where the two coincide."""

import jax
import numpy as np
import optax
import pytest

import lur
from lur.methods.optimizers import scale_by_yogi, yogi

pytestmark = pytest.mark.x64


def numpy_yogi(x, gradients, lr, b1, b2, eps, accumulator, correction):
    """Yogi as in Zaheer et al., whose first moment starts at 0; optax's starts both moments at the accumulator."""
    m, v = np.full_like(x, accumulator if correction == "adam" else 0.0), np.full_like(x, accumulator)
    for t, g in enumerate(gradients, start=1):
        m = b1 * m + (1 - b1) * g
        v = v - (1 - b2) * np.sign(v - g**2) * g**2
        if correction == "none":
            x = x - lr * m / (np.sqrt(v) + eps)
        elif correction == "adam":
            x = x - lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        else:
            x = x - lr * np.sqrt(1 - b2**t) / (1 - b1**t) * m / (np.sqrt(v) + eps)
    return x


def apply_optimizer(optimizer, x, gradients):
    """Parameters after one step for each gradient."""
    state = optimizer.init(x)
    step = jax.jit(optimizer.update)
    for g in gradients:
        updates, state = step(g, state)
        x = optax.apply_updates(x, updates)
    return np.asarray(x)


@pytest.mark.parametrize("correction", ["none", "adam", "tff"])
@pytest.mark.parametrize("accumulator", [0.0, 1e-6, 1.0])
def test_yogi_follows_its_formulas(correction, accumulator):
    generator = np.random.default_rng(0)
    x, gradients = generator.standard_normal(7), generator.standard_normal((50, 7)) * np.logspace(-3, 1, 7)
    params = apply_optimizer(yogi(0.1, bias_correction=correction, initial_accumulator=accumulator), x, gradients)
    expected = numpy_yogi(x, gradients, 0.1, 0.9, 0.99, 1e-5, accumulator, correction)
    np.testing.assert_allclose(params, expected, rtol=1e-12, atol=1e-12)


def test_adam_correction_equals_optax_yogi():
    """Uses standard promotion for optax, whose Yogi fails under strict promotion."""
    generator = np.random.default_rng(1)
    x, gradients = generator.standard_normal(5), generator.standard_normal((40, 5))
    params = apply_optimizer(scale_by_yogi(0.9, 0.99, 1e-5, 1e-6, "adam"), x, gradients)
    with jax.numpy_dtype_promotion("standard"):
        expected = apply_optimizer(optax.scale_by_yogi(0.9, 0.99, 1e-5, 0.0, 1e-6), x, gradients)
    np.testing.assert_allclose(params, expected, rtol=1e-12)


def test_the_three_bias_corrections_differ():
    generator = np.random.default_rng(2)
    x, gradients = generator.standard_normal(5), 1e-4 * generator.standard_normal((5, 5))
    results = [apply_optimizer(yogi(0.1, bias_correction=name), x, gradients) for name in ("none", "adam", "tff")]
    for i in range(3):
        assert np.abs(results[i] - results[i - 1]).max() > 1e-6


def test_defaults_are_those_of_the_paper():
    state = lur.optimizers.yogi(0.1).init(np.zeros(2))
    assert np.asarray(state[0].v).tolist() == [0.0, 0.0]
    x, g = np.zeros(1), np.array([[0.5]])
    expected = -0.1 * (0.1 * 0.5) / (np.sqrt(0.01 * 0.25) + 1e-5)
    np.testing.assert_allclose(apply_optimizer(yogi(0.1), x, g), [expected], rtol=1e-13)


@pytest.mark.parametrize(
    "options",
    [{"b1": 1.0}, {"b2": -0.1}, {"eps": 0.0}, {"initial_accumulator": -1.0}, {"bias_correction": "half"}],
)
def test_invalid_options_are_rejected(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        yogi(0.1, **options)
