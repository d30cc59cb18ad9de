"""All layouts are the same run: 20 rounds of each task, in single and in double precision."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("quadratic", "digits", "stackoverflow_tp")
LARGE = ("femnist", "shakespeare", "stackoverflow_nwp", "cifar100")
TOLERANCE = {"float32": 1e-4, "float64": 1e-10}


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("task", [*SMALL, *(pytest.param(name, marks=pytest.mark.full) for name in LARGE)])
def test_every_layout_is_the_same_run(task, dtype):
    done = subprocess.run(
        [sys.executable, "-m", "tests.lur.layout_runs", task, dtype],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "JAX_NUM_CPU_DEVICES": "2"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) < TOLERANCE[dtype]
