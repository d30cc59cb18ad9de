"""Notebooks equal their paired scripts, contain no output, and run.

By default each one runs at a tiny size: two as notebooks, the others as scripts without an installed lur. With
`-m full` each one runs both as a notebook and as a script at the size a reader gets, and its seconds are printed.
"""

import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import jupytext
import nbclient
import nbformat
import pytest

COLAB = Path(__file__).resolve().parents[2] / "colab"
NOTEBOOKS = sorted(COLAB.glob("*.ipynb"))
TINY = "0.05"
AS_NOTEBOOKS = ("quickstart", "theorems")
AS_SCRIPTS = ("learning_rates", "scale", "surrogate", "your_method")  # the last two enable float64
OUTPUTS = {
    "quickstart": r"after \d+ rounds: loss",
    "surrogate": r"FedAvg converged to \[0\.68421053\]",
    "theorems": r"HOLDS in .*verdict: FALSE",
    "learning_rates": r"best eta .*decayed",
    "your_method": r"SCAFFOLD: converges to a point [\de.-]+ away.*6 of 6 exact errors.*SCAFFOLD, best rates",
    "scale": r"8 devices: the largest relative difference.*2 processes, 2 devices: the largest",
}
"""Regular expressions that the output must match."""

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_every_notebook_has_a_script():
    assert [path.stem for path in NOTEBOOKS] == sorted(path.stem for path in COLAB.glob("*.py"))
    assert {path.stem for path in NOTEBOOKS} == {*OUTPUTS}


@each
def test_notebook_matches_its_script_and_has_no_output(path):
    notebook, script = nbformat.read(path, as_version=4), jupytext.read(path.with_suffix(".py"))
    assert [(cell.cell_type, cell.source) for cell in notebook.cells] == [
        (cell.cell_type, cell.source) for cell in script.cells
    ]
    assert all(not cell.get("outputs") for cell in notebook.cells)
    assert all(cell.get("execution_count") is None for cell in notebook.cells)


@each
def test_notebook_opens_in_colab_and_installs_in_one_cell(path):
    first, install, *others = nbformat.read(path, as_version=4).cells
    project = tomllib.loads((COLAB.parent / "pyproject.toml").read_text())["project"]
    repository = project["urls"]["Repository"]
    place = repository.removeprefix("https://github.com/")
    assert f"(https://colab.research.google.com/github/{place}/blob/main/colab/{path.name})" in first.source
    assert f'%pip install -q "lur-jax[all] @ git+{repository}"\n' in install.source
    assert not any("pip install" in cell.source for cell in others if cell.cell_type == "code")
    for link in re.findall(r"\]\(([\w./]+)\)", "".join(cell.source for cell in (first, *others))):
        assert (COLAB / link).exists(), link


def environment(scale, tmp_path):
    """Environment variables of a child process that imports lur from the checkout."""
    variables = {"LUR_SCALE": scale, "IPYTHONDIR": str(tmp_path), "PYTHONPATH": str(COLAB.parent)}
    if scale == TINY:
        variables["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # nearly all of its time is compiling
    return {**os.environ, **variables}


def run_notebook(path, scale, tmp_path):
    """Executes a notebook and returns its output."""
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=1800, kernel_name="python3")
    client.execute(cwd=str(COLAB), env=environment(scale, tmp_path))
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs), "no figure"
    return "".join(output.get("text", "") for output in outputs)


def run_script(path, scale, tmp_path):
    """Runs a script from the checkout and returns its output."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(path.with_suffix(".py"))],
        capture_output=True, text=True, check=False, cwd=COLAB.parent,
        env=environment(scale, tmp_path) | {"MPLBACKEND": "agg"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", AS_NOTEBOOKS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_notebook_runs(name, tmp_path):
    assert re.search(OUTPUTS[name], run_notebook(COLAB / f"{name}.ipynb", TINY, tmp_path), flags=re.DOTALL)


RUNNER = """
import importlib.util, runpy, sys
from pathlib import Path
sys.path = [part for part in sys.path if not (Path(part) / "lur" / "theta.py").exists()]
hidden = importlib.util.find_spec("lur") is None
for script in sys.argv[1:]:
    print("==", Path(script).stem, flush=True)
    runpy.run_path(script)
print("==", sys.modules["lur"].__file__, "hidden" if hidden else "installed")
"""
"""Runs scripts in one process in which lur cannot be imported until the first script finds it in the checkout."""


def test_scripts_run_where_lur_is_not_installed(tmp_path):
    assert {*AS_NOTEBOOKS, *AS_SCRIPTS} == {*OUTPUTS}
    variables = {name: value for name, value in environment(TINY, tmp_path).items() if name != "PYTHONPATH"}
    scripts = [str(COLAB / f"{name}.py") for name in AS_SCRIPTS]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUNNER, *scripts], capture_output=True, text=True, cwd=COLAB,
        env=variables | {"MPLBACKEND": "agg"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    *outputs, last = re.split(r"^== ", done.stdout, flags=re.MULTILINE)[1:]
    for name, output in zip(AS_SCRIPTS, outputs, strict=True):
        assert output.startswith(f"{name}\n")
        assert re.search(OUTPUTS[name], output, flags=re.DOTALL), output
    assert str(COLAB.parent) in last
    if "hidden" not in last:
        pytest.skip("all scripts ran, but lur is installed in a way that cannot be hidden")


@pytest.mark.full
@each
@pytest.mark.parametrize("run", [run_notebook, run_script], ids=["notebook", "script"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_full_size(run, path, tmp_path, capsys):
    began = time.monotonic()
    assert re.search(OUTPUTS[path.stem], run(path, "1", tmp_path), flags=re.DOTALL)
    with capsys.disabled():
        print(f"\n{path.stem}, {run.__name__}: {time.monotonic() - began:.1f} s")
