"""The best eta for each gamma, chosen as the paper chooses."""

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest

from lur.runs.sweep_results import (
    CellResult,
    SweepResults,
    as_csv,
    as_json,
    as_text,
    best_cells,
    final_loss,
    final_window,
    format_rate,
    has_trained,
    tune_server_lr,
)
from lur.training.configuration import RunConfig
from lur.training.sweep_plan import ETAS, GAMMAS, SweepConfig


def cell(index, gamma, eta, losses, diverged=None, f=0.5):
    losses = np.asarray(losses, float)
    return CellResult(index, gamma, eta, losses, losses, np.zeros(0), ((len(losses), f, math.nan),), diverged)


def swept(cells, rounds=8):
    gammas, etas = dict.fromkeys(c.gamma for c in cells), dict.fromkeys(c.eta for c in cells)
    return SweepResults(
        Path("x"), SweepConfig(RunConfig("digits", rounds), tuple(gammas), tuple(etas)), True, {}, tuple(cells)
    )


FOUND = swept(
    [
        cell(0, 0.0, 0.1, [4] * 6 + [1.0, 3.0]),
        cell(1, 0.0, 1.0, [1] * 6 + [2.5, 2.5]),  # lower at first, higher at the end
        cell(2, 1.0, 0.1, [4] * 6 + [3.0, 3.5]),
        cell(3, 1.0, 1.0, [4, 1e9], (2, "loss is 1e+09")),
        cell(4, 9.0, 0.1, [math.nan], (1, "loss is nan")),
        cell(5, 9.0, 1.0, [math.nan], (1, "loss is nan")),
    ]
)


def test_the_paper_s_grids():
    assert GAMMAS == (0, 1e-3, 1e-2, 1e-1, 1, 10, 100)
    np.testing.assert_allclose(ETAS, [1e-3, 10**-2.5, 1e-2, 10**-1.5, 1e-1, 10**-0.5, 1, 10**0.5, 10])
    assert [format_rate(eta) for eta in ETAS[:3]] == ["0.001", "10^-2.5", "0.01"]


def test_the_best_eta():
    rows = tune_server_lr(FOUND)
    assert [(r.gamma, r.eta, r.cells, r.diverged) for r in rows] == [
        (0.0, 0.1, 2, 0),
        (1.0, 0.1, 2, 1),
        (9.0, None, 2, 2),
    ]
    assert [r.loss for r in rows[:2]] == [2.0, 3.25]
    assert rows[0].at_the_edge
    assert [c.number for c in best_cells(FOUND)] == [0, 2]


def test_which_rounds_count():
    assert [final_window(n) for n in (1, 3, 8, 100, 399, 400, 10_000)] == [1, 1, 2, 25, 99, 100, 100]
    assert final_loss(cell(0, 0, 0, range(1000)), 1000) == np.mean(range(900, 1000))
    assert math.isnan(final_loss(cell(0, 0, 0, range(999)), 1000))


@pytest.mark.parametrize(("losses", "trains"), [([2, 1], True), ([2, 1.95], False), ([2, 3], False), ([], False)])
def test_what_trains(losses, trains):
    assert has_trained(cell(0, 0, 0, losses), 2) is trains


def test_the_table():
    rows = tune_server_lr(FOUND)
    table = [*csv.DictReader(io.StringIO(as_csv(rows)))]
    assert [row["eta"] for row in table] == ["0.1", "0.1", ""]
    assert json.loads(as_json(rows))[2] == {
        "gamma": 9.0, "eta": None, "loss": None, "f": None, "cells": 2, "diverged": 2, "at_the_edge": False,
    }  # fmt: skip
    assert "all diverged" in as_text(rows, 2).splitlines()[-1]
