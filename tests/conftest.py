"""Strict by default: no silent dtype promotion, warnings are errors (pyproject); x64 only where the marker asks."""

import json
import os
import shutil
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "theory" / "claims.json"


def pytest_configure(config):
    """One cache of compiled programs for all workers and the processes they start, gone with the session."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = TemporaryDirectory(prefix="lur-tests-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder.name
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
        jax.config.update("jax_compilation_cache_dir", folder.name)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture(autouse=True)
def strict_dtypes(request):
    """No implicit promotion, but for tests marked promote: optax's Adam, among others, needs it."""
    loose = request.node.get_closest_marker("promote") is not None
    with jax.numpy_dtype_promotion("standard" if loose else "strict"):
        yield


@pytest.fixture(autouse=True)
def precision(request):
    """Double precision for tests marked x64, single for the others."""
    with jax.enable_x64(request.node.get_closest_marker("x64") is not None):
        yield


@pytest.fixture(scope="session")
def published():
    """The published instances of the claims, where the file is at hand."""
    if not SHARED.exists():
        pytest.skip("the file of published instances (shared/theory/claims.json) is not here")
    content = json.loads(SHARED.read_text())
    return {claim["claim_id"]: claim for claim in content["claims"]}, content["problems"]


def number(text) -> float:
    """'3/4', '0.25', 2 as a float, correctly rounded."""
    return float(Fraction(str(text)))


@pytest.fixture
def lur(monkeypatch, capsys, tmp_path):
    """The command line in this process: exit status, what it printed, what it complained of."""
    monkeypatch.setenv("LUR_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    from lur.cli import main

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["lur", *map(str, arguments)])
        status = main()
        return status, *capsys.readouterr()

    return call


@pytest.fixture(scope="module")
def browser():
    """A real Chromium without a window."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip(f"none of {', '.join(names)} is installed")
    with api.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()
