"""Verdicts follow from the curves; figures come with their numbers, data and environment."""

import csv
import json
import math
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from benchmarks.paper import verdicts
from benchmarks.paper.experiments import DecayResult, PaperRuns
from benchmarks.paper.scales import ETA, case, tasks_of
from lur.cli.reproduce import FIGURES, TABLES
from lur.runs.sweep_results import CellResult, SweepResults
from lur.training.configuration import RunConfig
from lur.training.sweep_plan import ETAS, GAMMAS, SweepConfig

ROUNDS = (10, 20, 30, 40, 50)


def cell(gamma, eta, losses, norm=1.0, diverged=None, gammas=()):
    evaluations = tuple((t, f, math.nan) for t, f in zip(ROUNDS, losses, strict=True))
    loss = np.repeat(np.asarray(losses, float), 10)
    return CellResult(0, gamma, eta, loss, np.full(50, norm), np.asarray(gammas), evaluations, diverged)


def swept(*cells):
    gammas, etas = dict.fromkeys(c.gamma for c in cells), dict.fromkeys(c.eta for c in cells)
    return SweepResults(Path("x"), SweepConfig(RunConfig("digits", 50), tuple(gammas), tuple(etas)), True, {}, cells)


SMALL = (4, 3, 2, 1, 0.5)
BEHIND = (5, 4, 3, 2, 1.5)


@pytest.mark.parametrize(
    ("other", "agrees"),
    [
        (cell(1.0, ETA, (3, 2, 2.5, 2, 1.5)), True),
        (cell(1.0, ETA, (5, 4, 3, 2, 1.5)), False),  # never ahead
        (cell(1.0, ETA, (3, 2, 1, 0.5, 0.1)), False),  # never behind
        (cell(1.0, ETA, (3, 2, 2.5, 2, 1.5), diverged=(50, "loss is nan")), None),
    ],
)
def test_a_larger_gamma_leads_early_and_loses_late(other, agrees):
    verdict = verdicts.early_and_late("digits", swept(cell(0.0, ETA, SMALL), other), ETA, 10, True)
    assert verdict.agrees is agrees
    if agrees:
        assert "leads gamma 0 up to round 20 and ends at 3 times its loss" in verdict.shows


def test_the_verdict_lists_the_other_etas_that_show_the_effect():
    cells = [
        cell(0.0, ETA, SMALL),
        cell(1.0, ETA, (5, 4, 3, 2, 1.5)),
        cell(0.0, 1.0, SMALL),
        cell(1.0, 1.0, (3, 2, 2, 2, 2)),
    ]
    verdict = verdicts.early_and_late("digits", swept(*cells), ETA, 10, True)
    assert verdict.agrees is False
    assert verdict.shows.endswith("of the grid's other etas it appears at 1")


@pytest.mark.parametrize(("better", "agrees"), [(0.6, True), (1.5, True), (1.6, False), (3.0, False)])
def test_tuning_helps(better, agrees):
    """Over the last 12 rounds gamma = 1 has 1.5 x 10/12 + 2 x 2/12 = 1.583 at eta = 0.01."""
    cells = [
        cell(0.0, ETA, SMALL),
        cell(1.0, ETA, (5, 4, 3, 2, 1.5)),
        cell(0.0, 1.0, (9,) * 5),
        cell(1.0, 1.0, (better,) * 5),
    ]
    assert verdicts.tuning_helps("digits", swept(*cells), ETA).agrees is agrees


@pytest.mark.parametrize(("norms", "agrees"), [((3, 2, 1), True), ((3, 1, 2), False)])
def test_norms_fall_with_gamma(norms, agrees):
    cells = [cell(gamma, ETA, SMALL, norm) for gamma, norm in zip((0.0, 0.1, 1.0), norms, strict=True)]
    assert verdicts.norms_fall("digits", swept(*cells), ETA).agrees is agrees
    assert verdicts.norms_fall("digits", swept(cells[0]), ETA).agrees is None


@pytest.mark.parametrize(("end", "agrees"), [(0.4, True), (0.52, True), (0.6, False)])
def test_decay_matches_the_best_tuned_gamma(end, agrees):
    grid = swept(cell(0.0, ETA, SMALL))
    decayed = cell(1.0, 0.1, (4, 3, 2, 1, end), gammas=[1.0, 1.0, 0.1, 0.01])
    verdict = verdicts.decay_matches("digits", grid, DecayResult(1.0, decayed, grid, ()))
    assert verdict.agrees is agrees
    assert "2 decays" in verdict.shows
    assert verdicts.decay_matches("digits", grid, DecayResult(None, None, None, (1.0,))).agrees is None


def test_tied_rates_and_tuned_rates():
    cells = [cell(a, b, (2, 2, 2, 2, x)) for a, b, x in ((0.1, 0.1, 1), (0.1, 1.0, 0.5), (1.0, 0.1, 3), (1.0, 1.0, 2))]
    assert verdicts.tied_is_not_best("digits", swept(*cells)).agrees is True
    assert verdicts.tied_is_not_best("digits", swept(cells[0], cells[3], cells[2])).agrees is False
    assert verdicts.small_gamma_wins("digits", swept(*cells)).agrees is True
    assert verdicts.large_gamma_wins("digits", swept(*cells)).agrees is True
    assert verdicts.etas_rise("digits", swept(*cells)).agrees is False


def test_every_scale_has_the_constant_eta():
    for scale in ("smoke", "small", "paper"):
        for group in ("sgd", "yogi"):
            assert all(ETA in case(task, scale).etas for task in tasks_of(group, scale))
    whole = case("cifar100", "paper")
    assert (whole.gammas, whole.etas, whole.wait, whole.block) == (GAMMAS, ETAS, 100, 1000)
    assert tasks_of("sgd", "paper") == ("femnist", "cifar100", "shakespeare")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return PaperRuns(tmp_path_factory.mktemp("runs"), "smoke", lambda line: None, tasks=("digits",))


@pytest.mark.parametrize("name", ["fig2", "fig3", "fig4", "fig5", "fig8", "table1", "table2"])
def test_a_figure_of_digits_at_scale_smoke(runs, tmp_path, name):
    result = import_module(f"benchmarks.paper.{name}").make(runs, tmp_path)
    entry = json.loads((tmp_path / f"{name}.json").read_text())
    assert entry["scale"] == "smoke"
    assert "load_digits" in entry["data"]["digits"]
    assert entry["environment"]["jax"]
    assert [v["shows"] for v in entry["verdicts"]] == [statement.shows for statement in result.statements]
    rows = [*csv.DictReader((tmp_path / f"{name}.csv").read_text().splitlines())]
    assert rows
    assert {row["task"] for row in rows} == {"digits"}
    if name.startswith("fig"):
        assert result.statements
        svg = (tmp_path / f"{name}.svg").read_text()
        assert svg.startswith("<?xml")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_every_figure_and_table_has_a_module_with_its_command():
    for name in (*FIGURES, *TABLES):
        module = import_module(f"benchmarks.paper.{name}")
        assert f"lur reproduce {name}" in module.__doc__
        assert "Expect:" in module.__doc__
        assert callable(module.make)
