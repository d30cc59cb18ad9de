"""docs/algorithms.md shows the reference code: what runs when no rewrite applies."""

import sys

import jax
import jax.numpy as jnp
import pytest

import lur
import theory
from website.included_code import ROOT, included_functions

PAGE = (ROOT / "docs" / "algorithms.md").read_text()
PARAMS = jnp.array([3.0])
BATCHES = (jnp.array([[1.0, 2.0], [0.5, 1.0]])[..., None], jnp.array([[1.0, 0.0], [2.0, 1.0]])[..., None])
"""Curvatures and minimisers of one-dimensional quadratics: leading axes (clients, local steps, batch)."""


def new_loss():
    """A quadratic loss that no earlier test has compiled."""
    return lambda x, batch: 0.5 * jnp.mean(batch[0] * (x - batch[1]) ** 2)


def round_of(method):
    """One round of a method with both clients."""
    method.round(method.init(PARAMS, client_lr=0.1, server_lr=0.1), BATCHES)


def fedavg():
    round_of(lur.local_update(new_loss(), lur.theta.fedavg(2)))


def decay():
    rule = lur.decay.plateau("paper", delta=1e-3, window=1, patience=1, cooldown=1)
    round_of(lur.local_update(new_loss(), lur.theta.fedavg(2), decay=rule))


def maml():
    round_of(lur.maml.maml(new_loss(), 1))
    lur.maml.maml_gradient(new_loss(), PARAMS, jax.tree.map(lambda leaf: leaf[0], BATCHES), 0.1, 1)


def surrogate():
    theory.surrogate_gradient(theory.two_clients(), PARAMS, 0.1, lur.theta.fedavg(2))


SCENARIOS = {"lur/methods/decay.py": decay, "lur/methods/maml.py": maml, "theory/surrogate.py": surrogate}
"""What must run the functions of a file; by default a round of FedAvg."""


def functions_entered(scenario):
    """File, name and first line of every Python function that runs or is traced in a scenario."""
    entered = set()

    def record(frame, event, _):
        if event == "call":
            entered.add((frame.f_code.co_filename, frame.f_code.co_name, frame.f_code.co_firstlineno))

    jax.clear_caches()
    sys.setprofile(record)
    try:
        scenario()
    finally:
        sys.setprofile(None)
    return entered


def functions_not_entered(page):
    """The functions that a page includes but that their scenario does not run."""
    entered = {}
    missing = []
    for path, node in included_functions(page):
        scenario = SCENARIOS.get(str(path.relative_to(ROOT)), fedavg)
        if scenario not in entered:
            entered[scenario] = functions_entered(scenario)
        first_line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        if (str(path), node.name, first_line) not in entered[scenario]:
            missing.append(f"{path.relative_to(ROOT)}: {node.name} does not run in `{scenario.__name__}`")
    return missing


def test_the_algorithms_page_shows_what_runs():
    assert not functions_not_entered(PAGE)


@pytest.mark.parametrize("code", ["lur/theta.py fomaml", "website/included_code.py with_code"])
def test_code_that_does_not_run_is_noticed(code):
    assert functions_not_entered(f"<!-- code: {code} -->")
