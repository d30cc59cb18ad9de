"""Tasks with test examples and held-out clients."""

import numpy as np
import pytest

import lur
from lur import tasks
from lur.data.splits import clients_in

SMALL = {"clients": 6, "heterogeneity": 2.0}


def ids(store):
    return {store.id(i) for i in range(store.clients)}


def rows(store):
    """Each client's examples, as bytes."""
    return {
        id: sorted(b"".join(np.asarray(value[k]).tobytes() for value in own.values()) for k in range(len(own["label"])))
        for id, own in store.items()
    }


def test_built_in_data_have_a_fifth_for_testing():
    whole, task = tasks.load("digits", **SMALL, test_fraction=0), tasks.load("digits", **SMALL)
    assert whole.test is None
    assert task.test is not None
    assert 0.15 < task.test.examples / whole.store.examples < 0.25
    train, test, everything = map(rows, (task.store, task.test, whole.store))
    for id, own in everything.items():
        assert sorted(train[id] + test.get(id, [])) == own


@pytest.mark.parametrize("name", ["femnist", "shakespeare", "stackoverflow_nwp", "stackoverflow_tp"])
def test_every_split_is_prepared_as_the_training_examples(name):
    task = tasks.load(name, **SMALL, held_out=0.34, split_seed=1)
    stores = [task.store, task.test, task.held_out, task.held_out_test]
    assert all(store is not None for store in stores)
    assert len({(*store.features,) for store in stores}) == 1
    assert len(ids(task.held_out)) == 2
    assert not ids(task.held_out) & ids(task.store)
    clients_in(task.test, task.store)
    clients_in(task.held_out_test, task.held_out)
    assert all(store.about["prepared"] == name for store in stores)
    rule = "random" if name == "femnist" else "last"
    assert [split.get("examples") for split in task.test.about["splits"]] == [None, rule]


def test_words_are_counted_over_training_examples_only():
    """A word that only occurs in test examples is unknown."""
    text = {"tokens": [b"known words here"] * 4 + [b"secret"], "title": [b""] * 5, "tags": [b"a"] * 4 + [b"b"]}
    store = lur.data.in_memory({"user": text})
    task = tasks.load("stackoverflow_nwp", store=store, test_fraction=0.2, vocabulary_size=50)
    expected = tasks.load(
        "stackoverflow_nwp", store=store, vocabulary=[b"known", b"words", b"here"], vocabulary_size=50
    )
    np.testing.assert_array_equal(task.test.client(0)["tokens"], expected.store.client(0)["tokens"][-1:])


def digits_of(n, seed):
    rng = np.random.default_rng(seed)
    return {"pixels": rng.random((n, 64), np.float32), "label": rng.integers(10, size=n).astype(np.int32)}


def test_test_examples_of_ones_own_and_held_out_clients():
    store = lur.data.in_memory({i: digits_of(5, i) for i in range(4)})
    test = lur.data.in_memory({i: digits_of(2, 10 + i) for i in (3, 0, 1)})
    task = tasks.load("digits", store=store, test=test, held_out=0.5)
    assert ids(task.store) | ids(task.held_out) == {"0", "1", "2", "3"}
    assert ids(task.test) == ids(test) & ids(task.store)
    assert (set() if task.held_out_test is None else ids(task.held_out_test)) == ids(test) & ids(task.held_out)


def test_a_store_is_not_split_unless_asked():
    task = tasks.load("digits", store=lur.data.in_memory({0: digits_of(10, 0)}))
    assert (task.test, task.held_out, task.store.examples) == (None, None, 10)


def test_mistakes():
    store, test = (lur.data.in_memory({id: digits_of(5, 0)}) for id in ("a", "b"))
    with pytest.raises(ValueError, match=r"test must have clients of the training store only, .* such as 'b'"):
        tasks.load("digits", store=store, test=test)
    with pytest.raises(ValueError, match="test_fraction must be left out with test"):
        tasks.load("digits", store=store, test=store, test_fraction=0.5)
    with pytest.raises(ValueError, match="fraction must be between 0 and 1"):
        tasks.load("digits", test_fraction=1.5)
    with pytest.raises(ValueError, match="fraction must be between 0 and 1"):
        tasks.load("digits", held_out=-0.5)
    with pytest.raises(ValueError, match="are not for quadratic, which is generated with its splits"):
        tasks.load("quadratic", test_fraction=0.5)


def test_waves_are_sines_and_splits_are_of_different_clients():
    task = tasks.load("sinusoid", clients=8, held_out_clients=5, shots=4, seed=2)
    assert [int(size) for size in task.held_out.sizes] == [4] * 5
    assert not ids(task.store) & ids(task.held_out)
    for part, other in ((task.store, task.test), (task.held_out, task.held_out_test)):
        for i in clients_in(other, part):
            own, test = part.client(i), other.client(i)
            x, y = (np.concatenate([own[name], test[name]]).astype(float) for name in ("x", "y"))
            waves = np.stack([np.sin(x), np.cos(x)], axis=1)  # a sin(x - phi) lies in their span
            (s, c), *_ = np.linalg.lstsq(waves, y, rcond=None)
            np.testing.assert_allclose(waves @ [s, c], y, atol=1e-5)
            assert 0.1 <= np.hypot(s, c) <= 5
            assert c <= 1e-6  # a phase from 0 to pi
            assert not {*own["x"].tolist()} & {*test["x"].tolist()}
