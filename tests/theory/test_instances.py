"""Published instances of the claims, reproduced in float64 to 1e-12 relative."""

import pytest

from tests.theory.evaluate import EVALUATE, check
from tests.theory.published_paper import INSTANCES, PROBLEMS

pytestmark = pytest.mark.x64

CONVERGENCE = {"L19", "T6", "T7", "C6"}  # in test_convergence


@pytest.mark.parametrize(("id", "instance"), INSTANCES, ids=[f"{id}-{i}" for i, (id, _) in enumerate(INSTANCES)])
def test_instances_of_the_table(id, instance):
    check(id, instance, PROBLEMS)


@pytest.mark.parametrize("id", EVALUATE)
def test_instances_of_the_published_file(id, published):
    claims, problems = published
    assert claims[id]["instances"]
    for instance in claims[id]["instances"]:
        check(id, instance, problems)


def test_every_published_claim_is_reproduced(published):
    """All ids with instances, except those beyond the paper (B...)."""
    claims, _ = published
    of_the_paper = {id for id, claim in claims.items() if claim["instances"] and not id.startswith("B")}
    assert of_the_paper == EVALUATE.keys() | CONVERGENCE


def test_the_table_has_every_id():
    assert {id for id, _ in INSTANCES} == EVALUATE.keys()


def test_check_refuses_wrong_numbers_and_shapes():
    """An error of 1e-11 relative in a small number, a nonzero number for 0, and a wrong shape."""
    instance = {"inputs": {"K": 1, "lam": "1e-20", "gamma": "0"}, "expected": "1.00000000001e-20"}
    with pytest.raises(AssertionError, match="relative error 1e-11"):
        check("D5", instance, PROBLEMS)
    with pytest.raises(AssertionError, match="E1b Q2A2"):
        check("E1b", {"inputs": {"gamma": "0.99999999999999"}, "expected": {"Q2A2": "0"}}, PROBLEMS)
    with pytest.raises(AssertionError, match="got shape"):
        check("D5", {"inputs": {"K": 1, "lam": "1", "gamma": "0"}, "expected": ["1"]}, PROBLEMS)
