"""Splits of a store: disjoint, complete, independent of the order of the clients, recorded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lur.data.ragged import from_rows
from lur.data.splits import clients_in, split_clients, split_examples
from lur.data.writer import in_memory, write_store


def numbered(sizes, order=None):
    """Clients whose examples carry a number that occurs once, dense and as text."""
    starts = np.cumsum([0, *sizes])
    numbers = [np.arange(starts[i], starts[i + 1]) for i in range(len(sizes))]
    clients = [
        (f"client {i}", {"x": own, "text": [b"a" * (k % 3) + b"%d" % k for k in own.tolist()]})
        for i, own in enumerate(numbers)
    ]
    return in_memory([clients[i] for i in (range(len(sizes)) if order is None else order)], {"dataset": "numbers"})


def by_id(store):
    """The numbers of each client's examples, checked against the text."""
    found = {}
    for id, examples in store.items():
        assert [text.lstrip(b"a") for text in examples["text"].texts()] == [b"%d" % k for k in examples["x"]]
        found[id] = examples["x"].tolist()
    return found


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=8),
    st.floats(0.01, 0.99),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["random", "last"]),
)
def test_parts_are_disjoint_and_complete(sizes, fraction, seed, rule):
    store = numbered(sizes)
    train, test = split_examples(store, fraction, seed=seed, rule=rule)
    whole, kept, tested = by_id(store), by_id(train), {} if test is None else by_id(test)
    assert kept.keys() == whole.keys()
    for id, numbers in whole.items():
        assert sorted([*kept[id], *tested.get(id, [])]) == numbers
        assert kept[id] == sorted(kept[id])
        count = len(tested.get(id, []))
        assert count == min(int(np.floor(fraction * len(numbers) + 0.5)), len(numbers) - 1)
        if rule == "last":
            assert kept[id] == numbers[: len(numbers) - count]
    if test is not None:
        assert [train.id(i) for i in clients_in(test, train)] == [*tested]


@given(st.permutations(range(6)), st.integers(0, 100))
def test_the_order_of_the_clients_changes_nothing(order, seed):
    sizes = (5, 9, 2, 7, 1, 6)
    for split in (split_examples, split_clients):
        parts, others = (split(numbered(sizes, how), 0.4, seed=seed) for how in (None, order))
        assert [by_id(part) for part in parts] == [by_id(part) for part in others]


@given(st.integers(2, 12), st.floats(0.01, 0.99), st.integers(0, 1000))
def test_held_out_clients_are_never_trained_on(N, fraction, seed):
    store = numbered([2] * N)
    train, held_out = map(by_id, split_clients(store, fraction, seed=seed))
    assert not train.keys() & held_out.keys()
    assert train | held_out == by_id(store)
    assert len(held_out) == min(max(int(np.floor(fraction * N + 0.5)), 1), N - 1)


def test_seeds_differ():
    store = numbered([40] * 3)
    (_, first), (_, second) = (split_examples(store, 0.5, seed=seed) for seed in (0, 1))
    assert by_id(first) != by_id(second)


def test_the_rule_is_recorded_in_both_parts():
    train, held_out = split_clients(numbered([4] * 4), 0.25, seed=3)
    clients = {"clients": 0.25, "seed": 3}
    assert held_out.about == {"dataset": "numbers", "splits": [{**clients, "part": "held out"}]}
    own, test = split_examples(train, 0.5, seed=7, rule="last")
    examples = {"examples": "last", "fraction": 0.5, "seed": 7}
    assert own.about["splits"] == [{**clients, "part": "train"}, {**examples, "part": "train"}]
    assert test is not None
    assert test.about["splits"] == [{**clients, "part": "train"}, {**examples, "part": "test"}]


def test_a_store_on_disk_is_split_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("LUR_CACHE", str(tmp_path / "cache"))
    store = numbered((5, 9, 2))
    on_disk = write_store(tmp_path / "store", store.items(), store.about)
    for in_ram, mapped in zip(split_examples(store, 0.3), split_examples(on_disk, 0.3), strict=True):
        assert mapped.path is not None
        assert by_id(in_ram) == by_id(mapped)


def test_no_test_examples_at_all():
    train, test = split_examples(numbered((1, 1)), 0.5)
    assert test is None
    assert by_id(train) == {"client 0": [0], "client 1": [1]}


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan")])
def test_fractions_outside_of_0_and_1_are_refused(fraction):
    for split in (split_examples, split_clients):
        with pytest.raises(ValueError, match="fraction must be between 0 and 1, both excluded"):
            split(numbered((3, 3)), fraction)


def test_other_mistakes_are_refused():
    with pytest.raises(ValueError, match="rule must be 'random' or 'last', got 'first'"):
        split_examples(numbered((3,)), 0.5, rule="first")  # pyright: ignore
    with pytest.raises(ValueError, match="store must have at least 2 clients"):
        split_clients(numbered((3,)), 0.5)
    other = in_memory([("stranger", {"x": np.arange(2), "text": from_rows([b"0", b"1"])})])
    with pytest.raises(ValueError, match=r"test must have clients of the training store only, .*stranger"):
        clients_in(other, numbered((3,)))
