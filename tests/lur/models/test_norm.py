"""Group norm against flax, far from zero, and invalid arguments."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lur.models.layers import GroupNorm, group_norm
from tests.lur.models.forms import assert_close, compiled, normal, random_params


@pytest.mark.promote
@pytest.mark.x64
def test_flax_agrees():
    x = 3.0 + normal(0, 3, 4, 5, 6)
    theirs = nn.GroupNorm(2, epsilon=1e-3, dtype=jnp.float64, param_dtype=jnp.float64, use_fast_variance=False)
    params = random_params(GroupNorm(dtype=jnp.float64), x)

    def value_and_gradients(apply):
        return compiled(jax.value_and_grad(lambda p, x: jnp.sum(jnp.sin(apply(p, x))), argnums=(0, 1)))(params, x)

    assert_close(value_and_gradients(GroupNorm(dtype=jnp.float64).apply), value_and_gradients(theirs.apply))


def test_far_from_zero():
    """A mean of 1000 standard deviations loses no more digits than necessary."""
    x = normal(0, 2, 4, 4, 4, dtype=jnp.float32)
    y = group_norm(x + 1000, jnp.ones(4), jnp.zeros(4))
    np.testing.assert_allclose(y, group_norm(x, jnp.ones(4), jnp.zeros(4)), atol=1e-3)


def test_invalid_arguments_are_refused():
    x = jnp.zeros((1, 2, 2, 6))
    with pytest.raises(ValueError, match="groups must divide the 6 channels, got 4"):
        group_norm(x, jnp.ones(6), jnp.zeros(6), groups=4)
    with pytest.raises(ValueError, match=r"scale and bias must be \(C,\)"):
        group_norm(x, jnp.ones(5), jnp.zeros(5))
