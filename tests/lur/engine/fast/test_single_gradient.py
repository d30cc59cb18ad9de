"""The single gradient form for gamma = 0 or Theta_1: one gradient over all examples instead of a loop per client."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.extend.core import jaxprs_in_params

from lur.engine.fast.choice import choose_form
from lur.engine.fast.single_gradient import single_gradient_form
from lur.methods.decay import plateau
from lur.methods.local_update import local_update
from lur.models.layers import dense
from tests.lur.problems import logistic_batches, logistic_loss, logistic_params

MOMENTUM = lambda rate: optax.sgd(rate, 0.9)  # noqa: E731
CASES = [([1.0, 1.0, 1.0], 0.0), ([0.0, 0.5, 1.0, 2.0], 0.0), ([1.0], 0.3), ([2.5], 0.0)]


@pytest.mark.x64
@pytest.mark.parametrize(("theta", "gamma"), CASES)
@pytest.mark.parametrize("layout", ["vmap", "sequential", "chunked:2", "sharded"])
@pytest.mark.parametrize("weighted", [False, True])
def test_single_gradient_equals_the_reference(theta, gamma, layout, weighted):
    batches = logistic_batches(1, 5, len(theta) + 1, 4)
    weights = np.array([1.0, 2.0, 0.0, 4.0, 3.0]) if weighted else None
    results = []
    method = local_update(logistic_loss, theta, MOMENTUM)
    for form in (method, single_gradient_form(method)):
        state = form.init(logistic_params(0), gamma, 0.1)
        for _ in range(3):
            state, info = form.round(state, batches, weights, layout=layout)
        results.append((state, info._replace(client_norms=None)))
    chex.assert_trees_all_close(*results, rtol=1e-12)
    chex.assert_trees_all_equal_dtypes(*results)


def value_shapes(jaxpr):
    """Yields the shapes of all values in a program."""
    for equation in jaxpr.eqns:
        yield from (getattr(v.aval, "shape", ()) for v in (*equation.invars, *equation.outvars))
        for inner in jaxprs_in_params(equation.params):
            yield from value_shapes(getattr(inner, "jaxpr", inner))


@pytest.mark.parametrize(("form", "has_client_models"), [(lambda method: method, True), (single_gradient_form, False)])
def test_single_gradient_allocates_no_model_per_client(form, has_client_models):
    M, K, B, d = 7, 3, 2, 11
    loss = lambda params, batch: jnp.mean((batch @ params) ** 2)  # noqa: E731
    method = form(local_update(loss, [1.0] * K))
    state = method.init(jnp.ones((d, 5)), 0.0, 0.1)
    program = jax.make_jaxpr(method.round)(state, jnp.ones((M, K, B, d)))
    assert ((M, d, 5) in set(value_shapes(program.jaxpr))) == has_client_models


def test_single_gradient_of_a_fast_layer_allocates_no_gradient_per_step():
    M, K, B, d = 7, 3, 2, 11
    loss = lambda params, batch: jnp.mean(dense(batch, params, jnp.zeros(5), form="fast") ** 2)  # noqa: E731
    method = single_gradient_form(local_update(loss, [1.0] * K))
    run = functools.partial(method.round, layout="sequential")
    program = jax.make_jaxpr(run)(method.init(jnp.ones((d, 5)), 0.0, 0.1), jnp.ones((M, K, B, d)))
    assert not {(1, K, d, 5), (K, d, 5), (M, K, d, 5)} & set(value_shapes(program.jaxpr))


@pytest.mark.parametrize(
    ("theta", "gamma", "options", "name"),
    [
        ([1.0, 1.0], 0.0, {}, "single gradient"),
        ([1.0], 0.3, {}, "single gradient"),
        ([1.0, 1.0], 0.1, {}, "fast steps"),
        ([1.0, 1.0], None, {}, "fast steps"),
        ([1.0], 0.3, {"decay": plateau()}, "fast steps"),
        ([1.0], 0.3, {"prox": 0.1}, "reference"),
    ],
)
def test_single_gradient_is_chosen_only_if_no_client_moves(theta, gamma, options, name):
    method = local_update(logistic_loss, theta, **options)
    assert choose_form(method, logistic_params(0), gamma, client_norms=False).name == name
    assert choose_form(method, logistic_params(0), gamma).name != "single gradient"
