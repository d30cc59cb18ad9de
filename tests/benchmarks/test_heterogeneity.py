"""The verdict on heterogeneity follows from the curves: it says yes only if they show the effect."""

import csv

import pytest

from benchmarks.paper.heterogeneity import SETTINGS, Curve, comparisons, curves, verdict, write

ROUNDS = (10, 20, 30, 40, 50)


def curve(heterogeneity, gamma, *losses):
    return Curve(heterogeneity, gamma, ROUNDS, losses, (0.5,) * 5)


EARLY_LATE = [curve(2, 0.1, 4, 3, 2, 1, 0.5), curve(2, 1.0, 3, 2, 2.5, 2, 1.5)]
SIMILAR = [curve(0, 0.1, 4, 3, 2, 1, 0.5), curve(0, 1.0, 3, 2, 1.5, 1, 0.51)]
STILL_BEHIND = [curve(0, 0.1, 4, 3, 2, 1, 0.5), curve(0, 1.0, 3, 2, 2.5, 2, 1.4)]
NEVER_AHEAD = [curve(2, 0.1, 1, 1, 1, 1, 0.5), curve(2, 1.0, 3, 2, 2.5, 2, 1.5)]
NEVER_BEHIND = [curve(2, 0.1, 4, 3, 2, 1, 0.5), curve(2, 1.0, 3, 2, 1, 0.5, 0.1)]


@pytest.mark.parametrize(
    ("runs", "appears", "fades"),
    [
        (EARLY_LATE + SIMILAR, "yes", "yes"),
        (EARLY_LATE + STILL_BEHIND, "yes", "no"),
        (NEVER_AHEAD + SIMILAR, "no", "yes"),
        (NEVER_BEHIND + SIMILAR, "no", "yes"),
    ],
)
def test_the_verdict_says_whether_the_effect_appears_and_fades(runs, appears, fades):
    last = verdict(runs)[-1]
    assert f"highest heterogeneity: {appears};" in last
    assert last.endswith(f"fades with the heterogeneity: {fades}")


def test_a_comparison_has_the_last_round_of_the_lead_and_the_ratio_of_final_losses():
    (row,) = comparisons(EARLY_LATE)
    assert (row.lead, row.late) == (20, 3.0)


def test_a_short_run_of_digits_writes_its_figure_and_table(tmp_path):
    setting = SETTINGS["digits"]._replace(rounds=10, every=5, heterogeneities=(0.0, 10.0), gammas=(0.01, 1.0))
    runs = curves(setting)
    assert [(c.heterogeneity, c.gamma, c.rounds) for c in runs] == [
        (d, g, (5, 10)) for d in (0.0, 10.0) for g in (0.01, 1.0)
    ]
    svg, png, table = write(setting, runs, tmp_path)
    assert svg.read_text().startswith("<?xml")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert len([*csv.reader(table.read_text().splitlines())]) == 9
