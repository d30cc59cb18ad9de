"""Strict by default: no silent dtype promotion, warnings are errors (pyproject); x64 only where the marker asks."""

import json
from fractions import Fraction
from pathlib import Path

import jax
import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "theory" / "claims.json"


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
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "jax"))
    monkeypatch.chdir(tmp_path)

    from lur.cli import main

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["lur", *map(str, arguments)])
        status = main()
        return status, *capsys.readouterr()

    return call
