"""Meshes with two axes: models or cells sharded over one, clients over the other, with the numbers of one device."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lur.parallel.layouts import Layout, parse_layout

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("arguments", "count"), [(["first"], 2), pytest.param([], 7, marks=pytest.mark.full)])
def test_meshes_of_eight_devices_equal_one_device(arguments, count):
    process = subprocess.run(
        [sys.executable, "-m", "tests.lur.parallel.mesh_runs", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "JAX_NUM_CPU_DEVICES": "8"},
    )
    assert process.returncode == 0, process.stderr[-3000:]
    assert len(process.stdout.splitlines()) == count


@pytest.mark.parametrize("text", ["vmap,model:2", "sharded,model:0", "sharded,model:x", "sharded,model:"])
def test_invalid_model_axes_are_rejected(text):
    with pytest.raises(ValueError, match="layout must be one of"):
        parse_layout(text)


def test_a_model_axis_that_does_not_divide_the_devices_is_rejected():
    with pytest.raises(ValueError, match="model must divide the 1 devices, got 2"):
        parse_layout("sharded,model:2")


def test_sharded_layouts_are_printed_as_they_are_parsed():
    assert [str(layout) for layout in (Layout(None, 4), Layout(1, 4, 2), Layout(2, 1, 4))] == [
        "sharded:vmap",
        "sharded:sequential,model:2",
        "sharded:chunked:2,model:4",
    ]
