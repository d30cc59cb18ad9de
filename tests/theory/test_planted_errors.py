"""The falsifier on trial: planted errors are refuted, true forms are not."""

from collections import Counter

import pytest

import lur
from theory.trials import QUICK, implementation_of
from theory.trials.planted_errors import PLANTED_ERRORS, Outcome, table, try_planted_error

KINDS = {
    "algebra", "off by one", "tight", "loose", "signed", "large K", "large kappa", "d >= 2", "non-commuting",
    "wrong variable",
}  # fmt: skip
MISSED = {"E[A_i]'s condition number <= 10^7"}  # docs/falsifier.md says why
FIRST = [next(planted for planted in PLANTED_ERRORS if planted.kind == kind) for kind in sorted(KINDS - {"loose"})]


def name(planted):
    return f"{planted.kind}-{planted.id}-{planted.error}".replace(" ", "-")


@pytest.mark.promote
@pytest.mark.parametrize("planted", FIRST, ids=name)
def test_one_of_each_kind_is_refuted(planted):
    outcome = try_planted_error(planted, budget=QUICK._replace(samples=256, restarts=8, steps=60))
    assert (outcome.spoilt_refuted, outcome.true_refuted, outcome.true_undecided) == (1, 0, 0)


@pytest.mark.full
@pytest.mark.promote
@pytest.mark.parametrize("planted", PLANTED_ERRORS, ids=name)
def test_planted_error_is_refuted(planted):
    outcome = try_planted_error(planted, seeds=3, implementation=implementation_of(lur))
    assert (outcome.true_refuted, outcome.true_undecided) == (0, 0)
    assert outcome.spoilt_refuted == (0 if planted.error in MISSED else 3)


def test_planted_errors_are_many_and_of_ten_kinds():
    assert len(PLANTED_ERRORS) >= 60
    assert len({name(planted) for planted in PLANTED_ERRORS}) == len(PLANTED_ERRORS)
    kinds = Counter(planted.kind for planted in PLANTED_ERRORS)
    assert set(kinds) == KINDS
    assert min(count for kind, count in kinds.items() if kind != "algebra") >= 5


def test_table():
    markdown = table([Outcome(PLANTED_ERRORS[0], 2, 2, 0), Outcome(PLANTED_ERRORS[-1], 2, 1, 0, 1)])
    assert "Planted errors refuted: 3 of 4 (75%). True forms refuted: 0 of 4 (0%), left undecided: 1." in markdown
    assert "| algebra | 1 | 2 of 2 (100%) | 0 of 2 (0%) |" in markdown
    assert "| wrong variable | 1 | 1 of 2 (50%) | 0 of 2 (0%) |" in markdown
    assert "| D4 (corrected) | algebra | square forgotten | 2/2 | 0/2 |" in markdown
