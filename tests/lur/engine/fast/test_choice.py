"""The dispatcher chooses a rewrite for `lur.local_update` alone: every other method runs as it is written."""

import jax.numpy as jnp
import optax
import pytest

import lur
from lur.engine.fast.choice import choose_form
from lur.methods.registry import METHODS
from lur.training.configuration import RunConfig, resolve_config
from lur.training.method_choice import make_method
from tests.lur.problems import quadratic_loss

PARAMS = jnp.zeros(3)
PLAIN = lur.local_update(quadratic_loss, lur.theta.fedavg(2))


def form(method):
    return choose_form(method, PARAMS, 0.1).name


def test_local_update_has_a_rewrite():
    assert form(PLAIN) == "fast steps"


@pytest.mark.parametrize(
    "changes",
    [
        {"init_client": lambda params: jnp.zeros(())},
        {"broadcast": lambda state: lur.Broadcast(state.params, state.client_lr / 2)},
        {"prepare": lambda broadcast, state, batches: broadcast.params},
        {"server_update": lambda state, update, cohort: (state, cohort.update_norms)},
        {"init_server": lambda params, client_lr, server_lr: None},
        {"model": lambda state: 2 * state.params},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_method_that_differs_in_one_function_runs_as_it_is(changes):
    """The client alone is that of local_update; a rewrite would drop its state, or the norms that its server reads."""
    method = PLAIN._replace(**changes)
    assert choose_form(method, PARAMS, 0.1).method == method
    assert form(method) == "reference"


@pytest.mark.parametrize("name", METHODS)
def test_a_rewrite_is_for_methods_in_theta_alone(name):
    settings = lur.tasks.Settings(2, 2, 1, 0.1, 0.1)
    method = make_method(quadratic_loss, resolve_config(RunConfig("quadratic", method=name), settings), None)
    in_theta = name == "local_update" or METHODS[name].theta is not None
    assert (form(method) == "fast steps") == in_theta
    assert form(method._replace(server_update=lambda state, update, cohort: state)) == "reference"


def test_other_clients_run_as_they_are():
    for options in ({"prox": 0.1}, {"client": optax.adam}, {"loss_on": "all"}):
        assert form(lur.local_update(quadratic_loss, lur.theta.fedavg(2), **options)) == "reference"
