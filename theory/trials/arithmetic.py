"""The arithmetic of the trials in double precision: `theory.numeric` and the implementation on trial."""

import functools
from types import SimpleNamespace

from theory import numeric
from theory.trials import experiments
from theory.trials.implementation import REFERENCE, Implementation


@functools.cache
def arithmetic(implementation: Implementation = REFERENCE) -> SimpleNamespace:
    """Returns the arithmetic that a claim's sides are computed with, the implementation's experiments included."""
    names = {name: value for name, value in vars(numeric).items() if not name.startswith("_")}
    bound = {function.__name__: functools.partial(function, implementation) for function in experiments.EXPERIMENTS}
    return SimpleNamespace(**names, **bound, steps=implementation.steps, rounds_to_see=implementation.rounds_to_see)
