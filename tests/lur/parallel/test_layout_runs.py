"""All layouts are the same run: 20 rounds of each task, in single and in double precision."""

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
"""Of the way gone."""
MUCH = 4
"""Where the last bit of the initial model makes more than that: so many times as much, since layouts keep rounding."""


QUICK = [("digits", "float32"), *((task, "float64") for task in SMALL)]
CASES = [(task, dtype) for task in (*SMALL, *LARGE) for dtype in TOLERANCE]


@pytest.mark.parametrize(
    ("task", "dtype"), [case if case in QUICK else pytest.param(*case, marks=pytest.mark.full) for case in CASES]
)
def test_every_layout_is_the_same_run(task, dtype):
    done = subprocess.run(
        [sys.executable, "-m", "tests.lur.parallel.layout_runs", task, dtype],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "JAX_NUM_CPU_DEVICES": "2"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["difference"] < max(TOLERANCE[dtype], MUCH * found["last_bit"])
