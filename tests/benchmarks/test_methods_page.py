"""docs/methods.md is what `benchmarks.methods_page` makes; its fixed points have closed forms."""

import inspect
import json
from fractions import Fraction
from itertools import pairwise

import pytest

import theory
from benchmarks import method_limits, methods_page
from benchmarks.method_cases import ALIASES, CASES
from benchmarks.method_limits import Bias, bias_of, fixed_point
from benchmarks.speed import methods as bench
from lur import tasks
from lur.methods.registry import METHODS

DOC = methods_page.ROOT / "docs" / "methods.md"
F = Fraction
GAMMA = F(1, 4)


def fedavg_limit(gamma, steps, normalised=False):
    """E[Q_i A_i c_i] / E[Q_i A_i], where client i takes K_i steps: Q_i A_i = (1 - (1 - gamma A_i)^K_i) / gamma."""
    weights = [(1 - (1 - gamma * A) ** K) / (K if normalised else 1) for A, K in zip((1, 2), steps, strict=True)]
    return sum(w * c for w, c in zip(weights, (F(1), F(1, 2)), strict=True)) / sum(weights)


def lines():
    return DOC.read_text().splitlines()


@pytest.mark.parametrize(
    ("name", "steps", "expected"),
    [
        ("fedavg", (1, 3), F(11, 18)),
        ("fednova", (1, 3), F(19, 26)),
        ("fedavg", (2, 8), F(479, 734)),
        ("fednova", (2, 8), F(1151, 1406)),
    ],
)
def test_fixed_points_are_those_of_the_closed_form(name, steps, expected):
    assert fedavg_limit(GAMMA, steps, normalised=name == "fednova") == expected
    assert fixed_point(name, GAMMA, steps) == expected


def test_the_bias_of_fedavg_is_that_of_the_theory():
    """x* + gamma / (3 (6 - 5 gamma)) for K = (2, 2), and 4/7 at gamma = 0 for K = (1, 3)."""
    found = bias_of("fedavg", (2, 2), 3)
    assert found.order == 1
    assert found.coefficient == pytest.approx(1 / 18, rel=1e-3)
    unequal = bias_of("fedavg", (1, 3), 3)
    assert unequal.order == 0
    assert unequal.coefficient == pytest.approx(4 / 7 - 2 / 3, rel=1e-3)
    assert bias_of("scaffold", (2, 2), 3) == Bias(None, 0.0)
    assert float(theory.minimizer_slope(theory.two_clients(), [1.0, 1.0])[0]) == pytest.approx(1 / 18)


def test_every_method_of_the_table_has_a_row():
    assert {*CASES} | {*ALIASES} == {*METHODS}
    for name in CASES:
        assert sum(line.startswith(f"| `{name}` |") for line in lines()) == 2


def test_the_costs_are_those_of_the_generator():
    """Sizes of messages, lines of code and seconds, without the fixed points, which take longer."""
    record = json.loads(methods_page.RECORD.read_text()) if methods_page.RECORD.exists() else {}
    rows = [methods_page.cost_row(name, record) for name in CASES]
    assert {"| " + " | ".join(row) + " |" for row in rows} <= {*lines()}


@pytest.mark.parametrize("name", ["fedavg", pytest.param("scaffold", marks=pytest.mark.full)])
def test_a_row_of_fixed_points_is_that_of_the_generator(name):
    assert "| " + " | ".join(methods_page.limit_row(name)) + " |" in lines()


@pytest.mark.full
def test_the_page_is_what_the_generator_makes():
    assert DOC.read_text() == methods_page.page()


def test_lines_of_code_are_without_docstrings_comments_and_blanks():
    source = '"""A docstring\n\nof a file."""\n\nimport os  # why\n\n\n# a comment\ndef f(\n    x,\n):\n'
    source += '    """Return."""\n    return """a\ntext"""\n'
    assert methods_page.lines_of_code(source) == 6
    own = inspect.getsource(inspect.getmodule(test_lines_of_code_are_without_docstrings_comments_and_blanks))
    assert 20 < methods_page.lines_of_code(own) < len(own.splitlines())


def test_text_of_sizes_and_points():
    pairs = {(0, 0): "0", (10, 20): "d", (21, 41): "2 d + 1", (3, 3): "3"}
    assert {pair: methods_page.linear_text(*pair) for pair in pairs} == pairs
    assert methods_page.point(F(2, 3)) == "2/3"
    assert methods_page.point(None) == "does not settle"
    assert methods_page.bias_text(Bias(2, -0.0925)) == "−0.092 γ^2"


@pytest.mark.promote
def test_the_bench_times_the_methods_in_turns(monkeypatch):
    names = ["fedavg", "scaffold", "proxskip"]
    monkeypatch.setattr(bench, "CASES", {name: CASES[name] for name in names})
    said = []
    record = bench.measure(["quadratic"], rounds=2, turns=1, say=said.append)
    found = record["tasks"]["quadratic"]
    settings = tasks.load("quadratic").settings
    assert (found["M"], found["K"], found["B"]) == settings[:3]
    assert {*found["seconds"]} == {"fedavg", "scaffold"} | ({"proxskip"} if found["M"] == found["N"] else set())
    assert all(seconds > 0 for seconds in found["seconds"].values())
    assert methods_page.ratios(record, "quadratic", "fedavg") == "1.00"
    assert methods_page.ratios(record, "femnist", "fedavg") == ""
    assert len(said) == 1 + len(found["seconds"])


def test_a_method_that_is_not_affine_is_not_taken_for_one(monkeypatch):
    monkeypatch.setattr(method_limits, "CASES", {"reptile": CASES["reptile"]._replace(affine=True)})
    with pytest.raises(ValueError, match="a round of reptile must be affine"):
        fixed_point("reptile", GAMMA, (2, 2))
    assert all(small < large for large, small in pairwise(method_limits.SMALL))
