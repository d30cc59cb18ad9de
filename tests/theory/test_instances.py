"""Published instances of the claims, reproduced in float64 to 1e-12 relative."""

import pytest

from tests.theory.evaluate import EVALUATE, check
from tests.theory.tables import INSTANCES, PROBLEMS

pytestmark = pytest.mark.x64


@pytest.mark.parametrize(("id", "instance"), INSTANCES, ids=[f"{id}-{i}" for i, (id, _) in enumerate(INSTANCES)])
def test_our_table(id, instance):
    check(id, instance, PROBLEMS)


@pytest.mark.parametrize("id", EVALUATE)
def test_published_file(id, published):
    claims, problems = published
    assert claims[id]["instances"]
    for instance in claims[id]["instances"]:
        check(id, instance, problems)
