"""What an import loads: the core needs no extra, and loads no model, reader, task or plot."""

import subprocess
import sys
from pathlib import Path

import pytest

from lur._extras import EXTRAS

ROOT = Path(__file__).resolve().parents[1]
OPTIONAL = sorted({module for modules in EXTRAS.values() for module in modules})
OUTSIDE = ("lur.models", "lur.tasks", "lur.data.readers", "lur.plots", "lur.runs", "lur.cli", "theory", *OPTIONAL)
CORE = ("lur.methods", "lur.parallel", "lur.engine")

HIDE_EXTRAS = f"import sys; sys.modules.update(dict.fromkeys({OPTIONAL!r}))  # as if they were not installed\n"
IMPORT_ALL = """
import importlib, pkgutil
for name in {names!r}:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        importlib.import_module(module.name)
"""


def run(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "statement",
    ["import lur", *(f"import {name}" for name in CORE), IMPORT_ALL.format(names=CORE)],
    ids=["lur", *CORE, "every module of the core"],
)
def test_the_core_loads_nothing_beyond_itself(statement):
    loaded = run(f"{statement}\nimport sys\nprint(*sys.modules)").split()
    assert not [name for name in loaded if any(name == other or name.startswith(f"{other}.") for other in OUTSIDE)]


def test_importing_lur_does_not_load_jax():
    """`lur --help` and completion would wait for it."""
    assert "jax" not in run("import lur, sys; print(*sys.modules)").split()


def test_the_core_imports_without_extras():
    run(HIDE_EXTRAS + IMPORT_ALL.format(names=CORE) + "import lur, theory")


def test_a_round_and_a_closed_form_need_no_extra():
    run(
        HIDE_EXTRAS
        + """
import jax.numpy as jnp, lur, theory
algo = lur.local_update(lambda x, batch: 0.5 * jnp.mean((x - batch) ** 2), lur.theta.fedavg(2))
state, info = algo.round(algo.init(jnp.zeros(1), 0.25, 0.5), jnp.ones((3, 2, 1, 1)))
assert state.params.shape == (1,)
theory.optimal_theta(1.0, 2.0, 0.25, 2)
"""
    )
