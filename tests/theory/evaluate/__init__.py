"""What lur and theory say about a published instance, under the names the instance uses.

One function per claim id: inputs in, the expected quantities out; one module per section of the paper.
`tests.theory.tables` holds our own copy of a few instances; the whole file is read where it is at hand.
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
    """The largest relative error per expected quantity; entries expected to be 0 count a thousandfold."""
    found, expected = evaluate[id](instance["inputs"], problems), instance["expected"]
    if not isinstance(expected, dict):
        found, expected = {"value": found}, {"value": expected}
    worst = {}
    for name, value in expected.items():
        if value is not None:
            value, got = array(value), np.asarray(found[name], float)
            assert got.shape == value.shape, f"{id} {name}: got shape {got.shape}, expected {value.shape}"
            worst[name] = float(np.max(np.abs(got - value) / np.where(value == 0, 1e-3, np.abs(value))))
    return worst


def check(id, instance, problems, evaluate=EVALUATE):
    """Every expected quantity of an instance, to 1e-12 relative (1e-15 where it is 0) or to its own tolerance."""
    tolerance = instance.get("tolerance", 1e-12)
    for name, error in errors(id, instance, problems, evaluate).items():
        assert error <= tolerance, f"{id} {name}: relative error {error:.3g} > {tolerance:g}"
