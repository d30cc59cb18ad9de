"""`lur train` decides each thing once, and a reader meets few functions before its first log line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MAX_FUNCTIONS, MAX_FILES = 266, 56
"""What holds today, with data that are generated first; the goal is 120 functions in 28 files."""


@pytest.mark.parametrize("options", [(), ("--without-folder",)], ids=["with a run folder", "without a run folder"])
def test_configuration_layout_and_method_are_made_once(options):
    command = [sys.executable, "-m", "tests.count_calls", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    counts = json.loads(done.stdout)
    assert counts["made"] == {"configuration": 1, "layout": 1, "method": 1}
    assert counts["functions"] <= MAX_FUNCTIONS
    assert counts["files"] <= MAX_FILES
