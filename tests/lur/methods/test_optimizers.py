"""Yogi against its formulas in plain numpy, and against optax where the two coincide."""

import jax
import numpy as np
import optax
import pytest

import lur
from lur.methods.optimizers import scale_by_yogi, yogi

pytestmark = pytest.mark.x64


def plain_yogi(x, gradients, lr, b1, b2, eps, start, correction):
    """Zaheer et al.'s Yogi, written out."""
    m, v = np.full_like(x, start), np.full_like(x, start)
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


def run(optimizer, x, gradients):
    state = optimizer.init(x)
    step = jax.jit(optimizer.update)
    for g in gradients:
        updates, state = step(g, state)
        x = optax.apply_updates(x, updates)
    return np.asarray(x)


@pytest.mark.parametrize("correction", ["none", "adam", "tff"])
@pytest.mark.parametrize("start", [0.0, 1e-6])
def test_yogi_is_its_formula(correction, start):
    generator = np.random.default_rng(0)
    x, gradients = generator.standard_normal(7), generator.standard_normal((50, 7)) * np.logspace(-3, 1, 7)
    found = run(yogi(0.1, bias_correction=correction, initial_accumulator=start), x, gradients)
    expected = plain_yogi(x, gradients, 0.1, 0.9, 0.99, 1e-5, start, correction)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_adam_correction_is_optax():
    """Outside of strict promotion, under which optax's own form does not run."""
    generator = np.random.default_rng(1)
    x, gradients = generator.standard_normal(5), generator.standard_normal((40, 5))
    ours = run(scale_by_yogi(0.9, 0.99, 1e-5, 1e-6, "adam"), x, gradients)
    with jax.numpy_dtype_promotion("standard"):
        theirs = run(optax.scale_by_yogi(0.9, 0.99, 1e-5, 0.0, 1e-6), x, gradients)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_corrections_differ():
    """None of the three is another in disguise."""
    generator = np.random.default_rng(2)
    x, gradients = generator.standard_normal(5), 1e-4 * generator.standard_normal((5, 5))
    results = [run(yogi(0.1, bias_correction=name), x, gradients) for name in ("none", "adam", "tff")]
    for i in range(3):
        assert np.abs(results[i] - results[i - 1]).max() > 1e-6


def test_defaults_are_the_papers():
    state = lur.optimizers.yogi(0.1).init(np.zeros(2))
    assert np.asarray(state[0].v).tolist() == [0.0, 0.0]
    x, g = np.zeros(1), np.array([[0.5]])
    expected = -0.1 * (0.1 * 0.5) / (np.sqrt(0.01 * 0.25) + 1e-5)
    np.testing.assert_allclose(run(yogi(0.1), x, g), [expected], rtol=1e-13)


@pytest.mark.parametrize(
    "options",
    [{"b1": 1.0}, {"b2": -0.1}, {"eps": 0.0}, {"initial_accumulator": -1.0}, {"bias_correction": "half"}],
)
def test_bad_options(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        yogi(0.1, **options)
