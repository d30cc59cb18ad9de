"""The README's code runs and says what it says."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_example_runs():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    example = "\n".join(block for block in blocks if "local_update" in block)
    assert "lur.run_grid" in example
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reached, predicted = (float(value) for value in re.findall(r"\[([0-9.]+)\]", done.stdout))
    assert abs(reached - 13 / 19) < 1e-6
    assert abs(predicted - 13 / 19) < 1e-8
