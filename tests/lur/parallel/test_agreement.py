"""What processes compare before the first round, and the words for what differs."""

from functools import partial

import jax
import numpy as np
import optax
import pytest

import lur
from lur.data.writer import in_memory
from lur.engine.batches import as_stored
from lur.engine.rounds import Rounds
from lur.engine.run_description import describe_run
from lur.engine.sampling_plan import plan_sampling
from lur.parallel.agreement import describe, differences, versions
from lur.parallel.layouts import parse_layout


def test_equal_descriptions_have_no_differences():
    assert differences([{"seed": "0", "jax": "0.10"}] * 3) == []


def test_each_difference_names_the_field_and_both_values():
    first = {"seed": "0", "jax": "0.10.2", "rounds": "4"}
    found = differences([first, first | {"seed": "1"}, first | {"seed": "1", "jax": "0.11.0"}])
    assert found == [
        "seed 0 in process 0 and 1 in process 1",
        "seed 0 in process 0 and 1 in process 2",
        "jax 0.10.2 in process 0 and 0.11.0 in process 2",
    ]


def test_a_field_that_a_process_lacks_is_none_there():
    assert differences([{"a": "1"}, {"b": "2"}]) == [
        "a 1 in process 0 and none in process 1",
        "b none in process 0 and 2 in process 1",
    ]


def test_long_values_are_cut_and_told_apart():
    (found,) = differences([{"x": "a" * 5000 + "b"}, {"x": "a" * 5000 + "c"}])
    assert len(found) < 400
    first, second = found.removeprefix("x ").split(" in process 0 and ")
    assert first != second.removesuffix(" in process 1")


def test_versions_name_what_the_numbers_depend_on():
    assert {"lur", "jax", "jaxlib", "numpy", "optax", "python"} <= versions().keys()
    assert versions()["jax"] == jax.__version__


def loss(params, batch):
    return ((params - batch["x"]) ** 2).mean()


def other_loss(params, batch):
    return ((params - batch["x"]) ** 4).mean()


def closed(scale):
    return lambda params, batch: scale * loss(params, batch)


def method(loss_fn=loss, theta=(1.0, 1.0), server=optax.sgd, **options):
    return lur.local_update(loss_fn, theta, server, **options)


@pytest.mark.parametrize(
    "other",
    [
        method(theta=(1.0, 2.0)),
        method(other_loss),
        method(server=optax.adam),
        method(server=partial(optax.adam, b1=0.5)),
        method(prox=0.5),
        method(loss_on="all"),
        method(client=optax.sgd(1.0, momentum=0.9)),
        method(decay=lur.decay.plateau("paper")),
    ],
)
def test_methods_with_different_settings_have_different_descriptions(other):
    assert describe("method", method()) != describe("method", other)


def test_values_in_closures_and_arrays_are_part_of_the_description():
    assert describe("f", closed(1.0)) == describe("f", closed(1.0))
    assert describe("f", closed(1.0)) != describe("f", closed(2.0))
    assert describe("f", closed(np.zeros(3))) != describe("f", closed(np.ones(3)))
    assert describe("s", optax.sgd(1.0, momentum=0.9)) != describe("s", optax.sgd(1.0, momentum=0.8))


def test_equal_methods_have_equal_descriptions_without_addresses():
    one, two = describe("method", method()), describe("method", method())
    assert one == two
    assert not any("0x" in value for value in one.values())


def test_a_description_ends_where_a_value_contains_itself():
    loop = []
    loop.append(loop)
    assert describe("loop", loop)


def test_a_run_is_described_by_everything_that_its_numbers_depend_on():
    store = in_memory([("a", {"x": np.ones(2, np.float32)}), ("b", {"x": np.ones(3, np.float32)})], {})
    other_store = in_memory([("a", {"x": np.ones(2, np.float32)}), ("b", {"x": np.zeros(3, np.float32)})], {})
    base = {"method": method(), "store": store, "rounds": 3, "seed": 0, "batch_size": 1, "params": np.float32(0)}

    def description(**changes):
        settings = base | changes
        chosen = settings["method"]
        state = chosen.init(jax.numpy.asarray(settings["params"]), 0.1, 1.0)
        plan = plan_sampling(settings["store"], chosen, 2, settings["batch_size"])
        program = Rounds(chosen, plan, as_stored, parse_layout("vmap"), 4)
        return describe_run(program, state, settings["store"], settings["seed"], settings["rounds"])

    assert description() == description()
    for name, value in {
        "method": method(theta=(1.0, 2.0)), "store": other_store, "rounds": 4, "seed": 1, "batch_size": 2,
        "params": np.float32(1),
    }.items():  # fmt: skip
        assert len(differences([description(), description(**{name: value})])) >= 1, name
