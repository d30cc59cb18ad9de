"""Every method in every layout: the numbers of vmap up to rounding, and after a resume the same bits as without."""

import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest

from lur.methods.registry import METHODS
from lur.parallel import client_states
from lur.parallel.disk_rows import DiskRows
from tests.lur.methods.layout_table import (
    CASES,
    LAYOUTS,
    ROUNDS,
    B,
    D,
    K,
    N,
    advance,
    arrays,
    initial,
    whole_and_resumed,
)

pytestmark = [pytest.mark.x64, pytest.mark.promote]
ROOT = Path(__file__).resolve().parents[3]
ROUNDINGS = 3 * K * (D + B + 2) + N
"""Roundings on the way of a round from state to state, at most: in each of K steps D + B of the residuals and the
gradient, forwards and backwards, and those of the step itself; then the mean over at most N clients."""
QUICK = {("scaffold", "host store"), ("mime", "chunked:2"), ("diloco", "sequential")}
"""The cells of the ordinary suite, which has two devices and processes in `tests.lur.engine.test_client_states`."""


def test_the_table_has_every_method():
    assert CASES.keys() == {name for name, entry in METHODS.items() if entry.theta is None}


@cache
def reference(name):
    """The final state with vmap, and a bound for each of its arrays on the effect of rounding, to first order.

    Each round's roundings change its result as a relative perturbation of `ROUNDINGS` units would, of random sign in
    every entry. Their effect on the final state is measured for each round, and the effects are added up.
    """
    states = [initial(name)]
    for _ in range(ROUNDS):
        states.append(advance(name, states[-1], 1))
    *before, expected = states
    rng, bounds = np.random.default_rng(0), [perturbation(leaf) for leaf in arrays(expected)]
    for t, state in enumerate(before):

        def perturbed(leaf):
            signs = rng.choice([-1.0, 1.0], leaf.shape)
            return leaf + signs * perturbation(np.asarray(leaf)) if is_float(leaf) else leaf

        rates = {"client_lr": state.client_lr, "server_lr": state.server_lr}
        moved = advance(name, jax.tree.map(perturbed, state)._replace(**rates), ROUNDS - t)
        bounds = [
            bound + (np.abs(one - other).max(initial=0) if is_float(one) else 0)
            for bound, one, other in zip(bounds, arrays(moved), arrays(expected), strict=True)
        ]
    return arrays(expected), bounds


def is_float(leaf):
    return np.issubdtype(leaf.dtype, np.floating)


def perturbation(leaf):
    """The roundings of a round, relative to the largest entry; 0 for integers, flags and keys."""
    return ROUNDINGS * np.finfo(leaf.dtype).eps * np.abs(leaf).max(initial=0) if is_float(leaf) else 0.0


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """Returns the states of all methods on two devices or in two processes, which are started once."""

    @cache
    def started(layout):
        folder = tmp_path_factory.mktemp(layout.replace(" ", "_"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        arguments = [["devices"]] if layout == "2 devices" else [["processes", port, index] for index in "01"]
        started = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.lur.methods.layout_table", str(folder), *more],
                cwd=ROOT,
                env={**os.environ, "JAX_NUM_CPU_DEVICES": str(2 // len(arguments)), "JAX_PLATFORMS": "cpu"},
            )
            for more in arguments
        ]
        assert [process.wait() for process in started] == [0] * len(arguments)
        return folder, len(arguments)

    def states(name, layout):
        folder, count = started(layout)
        results = []
        for index in range(count):
            path = folder / f"{name} {index}"
            if path.with_suffix(".txt").exists():
                pytest.fail(path.with_suffix(".txt").read_text())
            saved = np.load(path.with_suffix(".npz"))
            half = len(saved) // 2
            results += [[saved[f"{state} {i}"] for i in range(half)] for state in ("whole", "cut")]
        return results

    return states


def cells():
    for name in CASES:
        for layout in LAYOUTS:
            yield pytest.param(name, layout, marks=() if (name, layout) in QUICK else pytest.mark.full)


@pytest.mark.parametrize(("name", "layout"), [*cells()])
def test_the_numbers_of_vmap_also_after_a_resume(name, layout, tmp_path, sharded, monkeypatch):
    expected, bounds = reference(name)
    if layout.startswith("2 "):
        results = sharded(name, layout)
    else:
        if layout == "host store":
            monkeypatch.setattr(client_states, "DEVICE_BYTES", 0)
        states = whole_and_resumed(name, tmp_path, layout)
        if layout == "host store":
            assert all(isinstance(leaf, DiskRows) for state in states for leaf in jax.tree.leaves(state.clients))
        results = [arrays(state) for state in states]
    for other in results[1:]:
        assert [leaf.tobytes() for leaf in other] == [leaf.tobytes() for leaf in results[0]]
    for found, leaf, bound in zip(results[0], expected, bounds, strict=True):
        assert (found.dtype, found.shape) == (leaf.dtype, leaf.shape)
        if is_float(leaf):
            np.testing.assert_allclose(found, leaf, rtol=0, atol=bound)
        else:
            np.testing.assert_array_equal(found, leaf)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in dict(QUICK) else pytest.mark.full) for name in CASES]
)
def test_the_bound_is_below_the_effect_of_a_small_mistake(name):
    """A client rate that differs by 2^-30 moves the model beyond the bound, so a cell of the table can fail."""
    (expected, *_), (bound, *_) = reference(name)
    state = initial(name)
    moved, *_ = arrays(advance(name, state._replace(client_lr=state.client_lr * (1 + 2.0**-30)), ROUNDS))
    assert np.abs(moved - expected).max() > bound
