"""What lur and theory compute for a published instance, under the names that the instance uses.

One function per claim id takes the inputs and returns the expected quantities; one module per section of the paper.
`tests.theory.published_paper` has some of the instances; the whole published file is read if it is available.
"""

import numpy as np

from tests.theory.evaluate import convergence, decay, distance, examples, properties, sgd
from tests.theory.evaluate.inputs import array as array
from tests.theory.evaluate.inputs import number as number
from tests.theory.evaluate.inputs import problem_of as problem_of

EVALUATE = {
    id: function
    for section in (sgd, examples, properties, distance, convergence, decay)
    for id, function in section.EVALUATE.items()
}


def errors(id, instance, problems, evaluate=EVALUATE):
    """Returns the largest relative error of each expected quantity; errors of zero entries count 1000 times."""
    computed, expected = evaluate[id](instance["inputs"], problems), instance["expected"]
    if not isinstance(expected, dict):
        computed, expected = {"value": computed}, {"value": expected}
    worst = {}
    for name, value in expected.items():
        if value is not None:
            value, got = array(value), np.asarray(computed[name], float)
            assert got.shape == value.shape, f"{id} {name}: got shape {got.shape}, expected {value.shape}"
            worst[name] = float(np.max(np.abs(got - value) / np.where(value == 0, 1e-3, np.abs(value))))
    return worst


def check(id, instance, problems, evaluate=EVALUATE):
    """Asserts every expected quantity, to 1e-12 relative (1e-15 absolute if it is 0) or to the instance's tolerance."""
    tolerance = instance.get("tolerance", 1e-12)
    for name, error in errors(id, instance, problems, evaluate).items():
        assert error <= tolerance, f"{id} {name}: relative error {error:.3g} > {tolerance:g}"
