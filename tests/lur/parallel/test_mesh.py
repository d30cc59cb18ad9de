"""Meshes with two axes are the same runs: models over devices, cells over devices, clients over the others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lur.parallel.layouts import Layout, parse_layout

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("which", "count"), [(["first"], 2), pytest.param([], 7, marks=pytest.mark.full)])
def test_models_and_cells_over_eight_devices(which, count):
    done = subprocess.run(
        [sys.executable, "-m", "tests.lur.parallel.mesh_runs", *which],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "JAX_NUM_CPU_DEVICES": "8"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.splitlines()) == count


@pytest.mark.parametrize("text", ["vmap,model:2", "sharded,model:0", "sharded,model:x", "sharded,model:"])
def test_layouts_that_are_none(text):
    with pytest.raises(ValueError, match="layout must be one of"):
        parse_layout(text)


def test_a_model_axis_needs_devices_that_divide():
    with pytest.raises(ValueError, match="model must divide the 1 devices, got 2"):
        parse_layout("sharded,model:2")


def test_texts_of_layouts():
    assert [str(layout) for layout in (Layout(None, 4), Layout(1, 4, 2), Layout(2, 1, 4))] == [
        "sharded:vmap",
        "sharded:sequential,model:2",
        "sharded:chunked:2,model:4",
    ]
