"""The falsifier on trial: every planted error is refuted, no true form is."""

import pytest

import lur
from theory.trials import implementation_of
from theory.trials.planted_errors import PLANTED_ERRORS, Outcome, table, try_planted_error


@pytest.mark.promote
@pytest.mark.parametrize("planted", PLANTED_ERRORS, ids=[f"{p.id}-{p.error.replace(' ', '-')}" for p in PLANTED_ERRORS])
def test_planted_error_is_refuted(planted):
    outcome = try_planted_error(planted, implementation=implementation_of(lur))
    assert outcome.spoilt_refuted == 1
    assert outcome.true_refuted == 0


def test_planted_errors_are_many_and_of_three_kinds():
    assert len({planted.id for planted in PLANTED_ERRORS}) >= 12
    assert len({planted.error for planted in PLANTED_ERRORS}) == 3


def test_table():
    markdown = table([Outcome(PLANTED_ERRORS[0], 2, 2, 0)])
    assert "Planted errors refuted: 2 of 2 (100%)" in markdown
    assert "| D4 | eq:surrogate_i (corrected) | square forgotten | 2/2 | 0/2 |" in markdown
