"""Published instances beyond the paper, reproduced by general tools to 1e-12 relative or to their own tolerance."""

import pytest

from tests.theory.evaluate import check
from tests.theory.evaluate.beyond import EVALUATE
from tests.theory.published_beyond import INSTANCES
from tests.theory.published_paper import PROBLEMS

pytestmark = pytest.mark.x64


def comparable(instance):
    """The instance without weights that are not unique (see test_optimal_theta_is_not_unique_with_a_bound)."""
    if instance["inputs"].get("chi_mu_min") is None:
        return instance
    return instance | {"expected": {k: v for k, v in instance["expected"].items() if k != "Theta_normalised"}}


@pytest.mark.parametrize(("id", "instance"), INSTANCES, ids=[f"{id}-{i}" for i, (id, _) in enumerate(INSTANCES)])
def test_instances_of_the_table(id, instance):
    check(id, comparable(instance), PROBLEMS, EVALUATE)


def test_the_table_is_the_published_one(published):
    claims, _ = published
    listed = [(id, instance) for id, claim in claims.items() if id.startswith("B") for instance in claim["instances"]]
    assert listed == INSTANCES
    assert {id for id, _ in INSTANCES} == EVALUATE.keys()
