"""The atlas: known ratios, known ranges, and its pages."""

import csv

import jax
import numpy as np
import pytest

from lur import plots
from theory.claims import find
from theory.claims.claim import Claim, Trial
from theory.claims.spaces import inverse_KL, space
from theory.reports import atlas, tightness
from theory.reports.tightness import Effort, Panel

TINY = Effort((0.1, 0.3, 0.9, 1.5), (2, 5), restarts=4, steps=40)
SLOW = space("A gamma", ({"d": 1, "n": 2, "K": 2},), edge=inverse_KL)


def _with_planted_claim(monkeypatch, left, right, space=SLOW, **options):
    claim = Claim("X", "planted", 1, r"$\gamma L \leq 1$", (Trial(space, left, right, "<="),), "HOLDS", **options)
    monkeypatch.setattr(tightness, "find", lambda id: claim)
    return claim


@pytest.mark.promote
def test_known_ratios_and_ranges(tmp_path):
    """Lemma QA_structure_fedavg is attained at every gamma < 1/L, by the client with the largest curvature."""
    lines = []
    paths = atlas.draw(tmp_path, style=plots, ids=["L9", "L5"], effort=TINY, report=lines.append)
    assert [path.name for path in paths] == ["atlas.csv", "atlas.md", "atlas.html"]
    assert lines == ["atlas 1/1 L9 printed"]
    with (tmp_path / "atlas.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["K"], row["gamma_L"]) for row in rows] == [(K, g) for K in "25" for g in ("0.1", "0.3", "0.9", "1.5")]
    for row in rows:
        if float(row["gamma_L"]) < 1:
            assert abs(float(row["ratio"]) - 1) < 1e-9
        else:
            assert row["ratio"] == ""
    assert {path.name for path in tmp_path.iterdir()} == {"L9.png", "L9.svg", "atlas.csv", "atlas.md", "atlas.html"}
    page = (tmp_path / "atlas.html").read_text()
    assert '<img src="L9.png"' in page
    assert "<math" in page
    assert "<script" not in page
    assert "[![L9](L9.png)](L9.svg)" in (tmp_path / "atlas.md").read_text()


@pytest.mark.promote
def test_gamma_L_is_held_fixed(monkeypatch):
    """A ratio that is gamma L itself, in a range that ends at 1 / K."""
    _with_planted_claim(monkeypatch, lambda xp, I: I.gamma * xp.maximum(*I.A.ravel()), lambda xp, I: 1.0)
    cells = tightness.chart(Panel("X", "printed", 0), TINY)
    found = {(cell.K, cell.gamma_L): cell.ratio for cell in cells}
    assert [key for key, ratio in found.items() if ratio is not None] == [(2, 0.1), (2, 0.3), (5, 0.1)]
    assert all(abs(ratio - g) < 1e-9 for (_, g), ratio in found.items() if ratio is not None)


@pytest.mark.promote
def test_two_rates(monkeypatch):
    """Without a gamma the first rate is on the axis, and a rate derived from it is free."""
    rates = space(
        "A",
        ({"d": 1, "n": 1, "K": 2},),
        extra={
            "gamma2": lambda raw, built, dims: (0.01 + 0.98 * jax.nn.sigmoid(raw)) / built["A"].max(),
            "gamma1": lambda raw, built, dims: built["gamma2"] * jax.nn.sigmoid(raw),
        },
    )
    _with_planted_claim(monkeypatch, lambda xp, I: I.gamma1, lambda xp, I: I.gamma2, rates)
    assert tightness.rate_of(rates) == "gamma2"
    cells = tightness.chart(Panel("X", "printed", 0), TINY._replace(steps=100))
    assert [cell.ratio is None for cell in cells] == [False, False, False, True] * 2
    assert all(0.98 < cell.ratio <= 1 for cell in cells if cell.ratio is not None)


@pytest.mark.promote
def test_sides_that_both_vanish_are_not_tight(monkeypatch):
    _with_planted_claim(monkeypatch, lambda xp, I: 1e-12 * I.gamma, lambda xp, I: 2e-12 * I.gamma)
    cells = tightness.chart(Panel("X", "printed", 0), TINY)
    assert max(cell.ratio for cell in cells if cell.ratio is not None) < 1e-8


@pytest.mark.promote
def test_a_violation_that_is_only_rounding_is_not_drawn(monkeypatch):
    """(1 + t) - 1 <= t for a t as small as a rounding error: in floating point the left side is larger."""

    def left(xp, I):
        one = I.A.max() / I.A.max()  # which the compiler does not see through
        return (one + I.gamma * I.A.max() / 10**15) - one

    _with_planted_claim(monkeypatch, lambda xp, I: left(xp, I) * 10**15, lambda xp, I: I.gamma * I.A.max())
    cells = tightness.chart(Panel("X", "printed", 0), TINY._replace(gamma_L=(0.15, 0.19)))
    assert [cell.ratio for cell in cells] == [None] * 4


@pytest.mark.promote
def test_a_violation_of_a_zero_bound_is_drawn(monkeypatch):
    _with_planted_claim(monkeypatch, lambda xp, I: I.gamma * I.A.max(), lambda xp, I: 0 * I.gamma)
    cells = tightness.chart(Panel("X", "printed", 0), TINY)
    assert min(cell.ratio for cell in cells if cell.ratio is not None) > 1e6


def test_which_claims_are_charted():
    assert tightness.panels_of(find("L9")) == [Panel("L9", "printed", 1)]
    assert tightness.panels_of(find("L5")) == []  # an equality
    assert tightness.panels_of(find("D2")) == []  # an inspection
    with pytest.raises(ValueError, match="inequality in gamma, got only L5, D2"):
        atlas.check_ids(["L5", "D2"])


def test_sizes():
    one = space("A gamma theta", ({"d": 2, "n": 1, "K": 1},))
    batches = space("A_z c_z p_z gamma", ({"d": 1, "m": 2, "K": 2, "B": 1}, {"d": 2, "m": 2, "K": 3, "B": 1}))
    without = space("A gamma", ({"d": 1, "n": 1}, {"d": 1, "n": 2}))
    assert [dims["K"] for dims in tightness.sizes(SLOW, (2, 5))] == [2, 5]
    assert [dims["K"] for dims in tightness.sizes(SLOW._replace(dims=({"d": 1, "n": 2, "K": 80},)), (2, 5))] == [
        2,
        5,
        80,
    ]
    assert [dims["K"] for dims in tightness.sizes(one, (2, 5))] == [1]  # K = 1 is what it is about
    assert [dims["K"] for dims in tightness.sizes(batches, (2, 5))] == [2, 3]  # enumerated: m^(K B) draws
    assert tightness.sizes(without, (2, 5)) == [{"d": 1, "n": 2}]


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (0.0, "0"),
        (1e-30, "0"),
        (0.004, "0.004"),
        (0.5, ".50"),
        (1.0, "1.00"),
        (34.2, "34"),
        (5e8, "5e8"),
        (2e12, "2e12"),
    ],
)
def test_short_ratio(ratio, shown):
    assert atlas.short_ratio(ratio) == shown


def test_picture_of_a_violation_and_of_gaps(tmp_path):
    panels = Panel("L10p", "printed", 0), Panel("L10p", "corrected", 0)
    cells = [
        tightness.Cell(panel, 1, 2, K, g, None if g > 0.5 and K > 2 else 3.0 * g)
        for panel in panels
        for K in (2, 5)
        for g in (0.1, 0.9)
    ]
    figure = atlas.picture(find("L10p"), cells, plots)
    texts = [text.get_text() for axis in figure.axes for text in axis.texts]
    assert texts == [".30", "2.70", ".30"] * 2
    assert [axis.get_title(loc="left") for axis in figure.axes[:2]] == ["printed", "corrected"]
    assert figure.axes[1].get_xlabel() == r"$\gamma L$"
    assert np.allclose(figure.axes[0].collections[0].norm.vmin, atlas.FAINTEST)
