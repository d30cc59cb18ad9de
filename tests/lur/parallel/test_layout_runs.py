"""Every layout gives the same run: 20 rounds of each task, in single and in double precision."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SMALL = ("quadratic", "digits", "stackoverflow_tp")
LARGE = ("femnist", "shakespeare", "stackoverflow_nwp", "cifar100")
TOLERANCE = {"float32": 1e-4, "float64": 1e-10}
"""Relative to the distance between the initial and the final parameters."""
ROUNDING_FACTOR = 4
"""Allowed difference as a multiple of the effect of the last bit of the initial parameters, if that is larger.

Layouts differ by the rounding errors of every round, a perturbed run by those of its initial parameters only.
"""


QUICK = [("digits", "float32"), *((task, "float64") for task in SMALL)]
CASES = [(task, dtype) for task in (*SMALL, *LARGE) for dtype in TOLERANCE]


@pytest.mark.parametrize(
    ("task", "dtype"), [case if case in QUICK else pytest.param(*case, marks=pytest.mark.full) for case in CASES]
)
def test_every_layout_gives_the_same_run(task, dtype):
    process = subprocess.run(
        [sys.executable, "-m", "tests.lur.parallel.layout_runs", task, dtype],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "JAX_NUM_CPU_DEVICES": "2"},
    )
    assert process.returncode == 0, process.stderr[-2000:]
    differences = json.loads(process.stdout)
    assert differences["difference"] < max(TOLERANCE[dtype], ROUNDING_FACTOR * differences["last_bit"])
