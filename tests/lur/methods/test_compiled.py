"""Compiled programs: those used last are kept, all others are freed with what they hold."""

import gc
import subprocess
import sys
import weakref
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
from lur.methods.compiled import KEPT_PROGRAMS, jit_per_settings
from tests.lur.numpy_loop import random_store

ROOT = Path(lur.__file__).parent


class Scale:
    """A setting that compares by identity, as functions do."""

    def __init__(self, factor):
        self.factor = factor


def test_settings_that_are_not_used_any_more_are_freed():
    traces = []

    @jit_per_settings(1)
    def scaled(scale, x):
        traces.append(scale.factor)
        return scale.factor * x

    first = Scale(2.0)
    assert scaled(first, jnp.float32(3)) == 6
    assert scaled(first, jnp.float32(4)) == 8
    assert traces == [2.0]
    dropped = weakref.ref(first)
    traces.clear()
    del first
    for k in range(KEPT_PROGRAMS):
        assert dropped() is not None  # its program is kept so far
        scaled(Scale(float(k)), jnp.float32(1))
    gc.collect()
    assert dropped() is None


def test_programs_in_use_are_not_compiled_again():
    traces = []

    @jit_per_settings(1)
    def shifted(shift, x):
        traces.append(shift)
        return x + shift

    for k in range(KEPT_PROGRAMS + 1):
        assert shifted(-1, jnp.int32(1)) == 0
        shifted(k, jnp.int32(1))
    assert traces.count(-1) == 1


def test_a_dropped_method_is_freed_with_its_loss():
    """The loss may hold a data set."""
    params, batches = np.ones(2, np.float32), np.ones((1, 1, 1, 2), np.float32)

    def run_a_round(factor):
        def loss(w, batch):
            return factor * (w * batch).sum()

        method = lur.local_update(loss, [1.0])
        method.round(method.init(params, 0.1, 0.1), batches)
        return weakref.ref(loss)

    losses = [run_a_round(float(k)) for k in range(KEPT_PROGRAMS + 1)]
    gc.collect()
    assert losses[0]() is None


def test_no_function_keeps_a_program_for_every_value_of_a_static_argument():
    assert not [path for path in ROOT.rglob("*.py") if "static_arg" in path.read_text()]


class Doubled(NamedTuple):
    """A view of a mini-batch."""

    factor: float

    def __call__(self, key, examples):
        return {name: self.factor * 2 * value for name, value in examples.items()}


class Halved(NamedTuple):
    """Another view with the same fields."""

    factor: float

    def __call__(self, key, examples):
        return {name: self.factor / 2 * value for name, value in examples.items()}


@pytest.mark.parametrize("data", [None, "host"])
def test_views_with_equal_fields_are_different_programs(data):
    """Tuples of different types compare equal; a shared program would see the other view's batches."""

    def loss(w, batch):
        return ((batch["x"] @ w - batch["y"]) ** 2).mean()

    store = random_store(0, (3, 4), dtype=np.float32)
    method = lur.local_update(loss, [1.0], optax.sgd)
    options = {"rounds": 1, "clients_per_round": 2, "batch_size": 2, "data": data}
    losses = [
        lur.run(method, method.init(np.zeros(3, np.float32), 0.1, 0.5), store, view=view, **options)[1].loss
        for view in (Doubled(1.0), Halved(1.0))
    ]
    assert losses[0] == 16 * losses[1]  # the mean of (factor y)^2


TRIALS = """
import sys
import numpy as np
import lur
from tests.lur.numpy_loop import random_store

def loss(w, batch):
    return ((batch["x"] @ w - batch["y"]) ** 2).mean() / 2

store, data = random_store(0, (6, 6, 6, 6), dtype=np.float32), {"resident": None, "host": "host"}.get(sys.argv[1])
options = {"rounds": 2, "clients_per_round": 2, "batch_size": 2}
w, batches = np.zeros(3, np.float32), {"x": np.ones((2, 3, 2, 3), np.float32), "y": np.ones((2, 3, 2), np.float32)}
for i in range(int(sys.argv[2])):
    method = lur.local_update(loss, [1 + i / 1000, 1.0, 1.0])
    if sys.argv[1] == "grid":
        lur.run_grid(method, w, store, client_lr=(0.1, 0.2), server_lr=(0.5,), **options)
    elif sys.argv[1] == "round":
        method.round(method.init(w, 0.1, 0.5), batches)
    else:
        lur.run(method, method.init(w, 0.1, 0.5), store, data=data, **options)
    with open("/proc/self/statm") as file:
        print(int(file.read().split()[1]) * 4096 / 2**20)
"""


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads resident memory from /proc")
@pytest.mark.parametrize(("place", "count"), [("resident", 300), ("host", 100), ("grid", 100), ("round", 100)])
def test_resident_memory_is_flat_after_twenty_methods(place, count):
    """Each kept program has a megabyte or more, so one that is not freed shows after some twenty methods."""
    command = [sys.executable, "-c", TRIALS, place, str(count)]
    done = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, check=True)
    mebibytes = [float(line) for line in done.stdout.split()]
    assert len(mebibytes) == count
    print(place, {i: round(mebibytes[i - 1]) for i in (1, 10, 20, 40, 60, 100, 200, 300) if i <= count})
    assert mebibytes[-1] < 1000
    assert mebibytes[-1] - max(mebibytes[:20]) < 100
