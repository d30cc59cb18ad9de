"""Notebooks are the same as their paired scripts, carry no output, and run."""

from pathlib import Path

import jupytext
import nbclient
import nbformat
import pytest

COLAB = Path(__file__).resolve().parents[2] / "colab"
NOTEBOOKS = sorted(COLAB.glob("*.ipynb"))


def test_every_notebook_is_paired():
    assert [path.stem for path in NOTEBOOKS] == sorted(path.stem for path in COLAB.glob("*.py"))
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_matches_its_script_and_has_no_output(path):
    notebook, script = nbformat.read(path, as_version=4), jupytext.read(path.with_suffix(".py"))
    assert [cell.source for cell in notebook.cells] == [cell.source for cell in script.cells]
    assert all(not cell.get("outputs") for cell in notebook.cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_notebook_runs(path):
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(COLAB))
    text = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert "FedAvg converged to" in text
