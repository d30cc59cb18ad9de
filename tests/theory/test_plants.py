"""The falsifier on trial: every planted error is refuted, no right form is."""

import pytest

from theory.trials.plants import PLANTS, table, try_plant


@pytest.mark.promote
@pytest.mark.parametrize("plant", PLANTS, ids=[f"{p.id}-{p.error.replace(' ', '-')}" for p in PLANTS])
def test_plant(plant):
    outcome = try_plant(plant)
    assert outcome.spoilt_refuted == 1
    assert outcome.right_refuted == 0


def test_there_are_enough_of_them():
    assert len({plant.id for plant in PLANTS}) >= 12
    assert len({plant.error for plant in PLANTS}) == 3


def test_table():
    from theory.trials.plants import Outcome

    text = table([Outcome(PLANTS[0], 2, 2, 0)])
    assert "Planted errors refuted: 2 of 2 (100%)" in text
    assert "| D4 | eq:surrogate_i (corrected) | square forgotten | 2/2 | 0/2 |" in text
