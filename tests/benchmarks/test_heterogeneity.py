"""The verdict is computed from the curves: it says yes only where they show the effect."""

import csv

import pytest

from benchmarks.paper.heterogeneity import SETTINGS, Curve, comparisons, curves, verdict, write

ROUNDS = (10, 20, 30, 40, 50)


def curve(dial, gamma, *losses):
    return Curve(dial, gamma, ROUNDS, losses, (0.5,) * 5)


EARLY_LATE = [curve(2, 0.1, 4, 3, 2, 1, 0.5), curve(2, 1.0, 3, 2, 2.5, 2, 1.5)]
ALIKE = [curve(0, 0.1, 4, 3, 2, 1, 0.5), curve(0, 1.0, 3, 2, 1.5, 1, 0.51)]
STILL_BEHIND = [curve(0, 0.1, 4, 3, 2, 1, 0.5), curve(0, 1.0, 3, 2, 2.5, 2, 1.4)]
NEVER_AHEAD = [curve(2, 0.1, 1, 1, 1, 1, 0.5), curve(2, 1.0, 3, 2, 2.5, 2, 1.5)]
NEVER_BEHIND = [curve(2, 0.1, 4, 3, 2, 1, 0.5), curve(2, 1.0, 3, 2, 1, 0.5, 0.1)]


@pytest.mark.parametrize(
    ("found", "appears", "fades"),
    [
        (EARLY_LATE + ALIKE, "yes", "yes"),
        (EARLY_LATE + STILL_BEHIND, "yes", "no"),
        (NEVER_AHEAD + ALIKE, "no", "yes"),
        (NEVER_BEHIND + ALIKE, "no", "yes"),
    ],
)
def test_the_verdict(found, appears, fades):
    last = verdict(found)[-1]
    assert f"highest dial: {appears};" in last
    assert last.endswith(f"fades with the dial: {fades}")


def test_where_it_led_and_how_it_ended():
    (row,) = comparisons(EARLY_LATE)
    assert (row.lead, row.late) == (20, 3.0)


def test_a_short_run_of_digits(tmp_path):
    setting = SETTINGS["digits"]._replace(rounds=10, every=5, dials=(0.0, 10.0), gammas=(0.01, 1.0))
    found = curves(setting)
    assert [(c.dial, c.gamma, c.rounds) for c in found] == [(d, g, (5, 10)) for d in (0.0, 10.0) for g in (0.01, 1.0)]
    svg, png, table = write(setting, found, tmp_path)
    assert svg.read_text().startswith("<?xml")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert len([*csv.reader(table.read_text().splitlines())]) == 9
