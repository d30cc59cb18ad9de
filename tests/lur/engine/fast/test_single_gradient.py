"""gamma = 0 and Theta_1: one gradient of all examples, with the numbers of the clients' loops."""

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
def test_the_numbers_of_the_clients_loops(theta, gamma, layout, weighted):
    batches = logistic_batches(1, 5, len(theta) + 1, 4)
    weights = np.array([1.0, 2.0, 0.0, 4.0, 3.0]) if weighted else None
    ends = []
    method = local_update(logistic_loss, theta, MOMENTUM)
    for algo in (method, single_gradient_form(method)):
        state = algo.init(logistic_params(0), gamma, 0.1)
        for _ in range(3):
            state, info = algo.round(state, batches, weights, layout=layout)
        ends.append((state, info._replace(client_norms=None)))
    chex.assert_trees_all_close(*ends, rtol=1e-12)
    chex.assert_trees_all_equal_dtypes(*ends)


def shapes(jaxpr):
    """The shapes of all values in a program."""
    for equation in jaxpr.eqns:
        yield from (getattr(v.aval, "shape", ()) for v in (*equation.invars, *equation.outvars))
        for inner in jaxprs_in_params(equation.params):
            yield from shapes(getattr(inner, "jaxpr", inner))


@pytest.mark.parametrize(("update", "expected"), [(lambda method: method, True), (single_gradient_form, False)])
def test_no_model_per_client(update, expected):
    M, K, B, d = 7, 3, 2, 11
    loss = lambda params, batch: jnp.mean((batch @ params) ** 2)  # noqa: E731
    algo = update(local_update(loss, [1.0] * K))
    state = algo.init(jnp.ones((d, 5)), 0.0, 0.1)
    program = jax.make_jaxpr(algo.round)(state, jnp.ones((M, K, B, d)))
    assert ((M, d, 5) in set(shapes(program.jaxpr))) == expected


def test_one_gradient_of_a_written_out_layer():
    M, K, B, d = 7, 3, 2, 11
    loss = lambda params, batch: jnp.mean(dense(batch, params, jnp.zeros(5), form="fast") ** 2)  # noqa: E731
    algo = single_gradient_form(local_update(loss, [1.0] * K))
    run = functools.partial(algo.round, layout="sequential")
    program = jax.make_jaxpr(run)(algo.init(jnp.ones((d, 5)), 0.0, 0.1), jnp.ones((M, K, B, d)))
    assert not {(1, K, d, 5), (K, d, 5), (M, K, d, 5)} & set(shapes(program.jaxpr))


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
def test_chosen_only_where_no_client_moves(theta, gamma, options, name):
    method = local_update(logistic_loss, theta, **options)
    assert choose_form(method, logistic_params(0), gamma, client_norms=False).name == name
    assert choose_form(method, logistic_params(0), gamma).name != "single gradient"
