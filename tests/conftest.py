"""Fixtures for all tests: strict dtype promotion and single precision by default, markers for the exceptions."""

import json
import os
import shutil
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "theory" / "claims.json"

# Property tests draw the same examples in every run; `--hypothesis-profile=random` draws new ones.
settings.register_profile("fixed", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("random", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("fixed")
# Nor do they depend on the modules that a worker has imported so far, whose constants hypothesis would draw.
providers._get_local_constants = lambda: providers._local_constants


def pytest_configure(config):
    """Shares one compilation cache among all workers and their subprocesses, deleted at the end of the session."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = TemporaryDirectory(prefix="lur-tests-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder.name
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
        jax.config.update("jax_compilation_cache_dir", folder.name)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture(autouse=True)
def strict_dtypes(request):
    """Forbids implicit promotion except in tests marked `promote`: optax's Adam, among others, relies on it."""
    promotes = request.node.get_closest_marker("promote") is not None
    with jax.numpy_dtype_promotion("standard" if promotes else "strict"):
        yield


@pytest.fixture(autouse=True)
def precision(request):
    """Enables double precision in tests marked `x64` only."""
    with jax.enable_x64(request.node.get_closest_marker("x64") is not None):
        yield


@pytest.fixture(scope="session")
def published():
    """The published instances of the claims and their problems; skips the test if the file is absent."""
    if not SHARED.exists():
        pytest.skip("the published instances (shared/theory/claims.json) are not available")
    content = json.loads(SHARED.read_text())
    return {claim["claim_id"]: claim for claim in content["claims"]}, content["problems"]


def number(text) -> float:
    """Converts '3/4', '0.25' or 2 to the nearest float."""
    return float(Fraction(str(text)))


@pytest.fixture
def lur(monkeypatch, capsys, tmp_path):
    """Runs the command line in this process; each call returns its exit status, stdout and stderr."""
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
    """A headless Chromium."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    executable = next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        pytest.skip(f"none of {', '.join(names)} is installed")
    with api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield chromium
        chromium.close()
