"""Published instances beyond the paper, reproduced to 1e-12 relative, or to their own tolerance, by general tools."""

import pytest

from tests.theory.beyond import INSTANCES
from tests.theory.evaluate import check
from tests.theory.evaluate.beyond import EVALUATE
from tests.theory.tables import PROBLEMS

pytestmark = pytest.mark.x64

OURS = [(id, instance) for id, instance in INSTANCES if id in EVALUATE]


@pytest.mark.parametrize(("id", "instance"), OURS, ids=[f"{id}-{i}" for i, (id, _) in enumerate(OURS)])
def test_our_table(id, instance):
    check(id, instance, PROBLEMS, EVALUATE)
