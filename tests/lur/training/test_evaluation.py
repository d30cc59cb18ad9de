"""f(x) is the mean over clients of each client's mean loss, whatever the batches it is streamed in."""

import dataclasses

import jax
import numpy as np
import pytest

import lur
from lur import tasks
from lur.training.evaluation import evaluate, evaluate_cells


@pytest.fixture(scope="module")
def digits():
    return tasks.load("digits", clients=12, heterogeneity=3.0, test_fraction=0)


def by_hand(task, params, clients):
    """Softmax regression in numpy, client by client."""
    kernel, bias = (np.asarray(params["params"]["logits"][name], np.float64) for name in ("kernel", "bias"))
    losses, right, n = [], 0, 0
    for i in clients:
        own = task.store.client(i)
        z = own["pixels"].astype(np.float64) @ kernel + bias
        each = np.log(np.exp(z).sum(1)) - z[np.arange(len(z)), own["label"]]
        losses.append(each.mean())
        right, n = right + (z.argmax(1) == own["label"]).sum(), n + len(z)
    return np.mean(losses), right / n, n


@pytest.mark.parametrize("batch", [1, 64, 5000])
@pytest.mark.parametrize("clients", [None, [3], [5, 0, 7]])
def test_loss_and_accuracy_by_hand(digits, batch, clients):
    if batch == 1 and clients is None:
        clients = [2]
    params = digits.init(jax.random.key(0))
    params = jax.tree.map(lambda leaf: leaf + np.random.default_rng(1).normal(size=leaf.shape).astype("f"), params)
    found = evaluate(digits, params, clients=clients, batch=batch)
    loss, accuracy, n = by_hand(digits, params, range(digits.store.clients) if clients is None else clients)
    np.testing.assert_allclose(found.loss, loss, rtol=1e-5)
    np.testing.assert_allclose(found.accuracy, accuracy, rtol=1e-12)
    assert found.examples == n


@pytest.mark.parametrize("clients", [[], [-1], [99]])
def test_clients_that_are_not_there(digits, clients):
    with pytest.raises(ValueError, match="clients must be indices from 0 to"):
        evaluate(digits, digits.init(jax.random.key(0)), clients=clients)


def test_no_answers_no_accuracy():
    task = tasks.load("quadratic", clients=3)
    assert np.isnan(evaluate(task, task.init(jax.random.key(0))).accuracy)


def test_numbers_over_clients_and_over_examples(digits):
    """Quantiles, worst tenth and means, recomputed from one evaluation per client."""
    params = digits.init(jax.random.key(0))
    params = jax.tree.map(lambda leaf: leaf + np.random.default_rng(2).normal(size=leaf.shape).astype("f"), params)
    found = evaluate(digits, params, batch=100)
    each = [by_hand(digits, params, [i]) for i in range(digits.store.clients)]
    losses, accuracies, n = (np.array(column) for column in zip(*each, strict=True))
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    np.testing.assert_allclose(found.loss_quantiles, np.quantile(losses, levels), rtol=1e-5)
    np.testing.assert_allclose(found.accuracy_quantiles, np.quantile(accuracies, levels), rtol=1e-12)
    np.testing.assert_allclose(found.example_loss, (losses * n).sum() / n.sum(), rtol=1e-5)
    np.testing.assert_allclose(found.client_accuracy, accuracies.mean(), rtol=1e-12)
    np.testing.assert_allclose(found.worst_loss, np.sort(losses)[-2:].mean(), rtol=1e-5)  # 12 clients: a tenth is 2
    np.testing.assert_allclose(found.worst_accuracy, np.sort(accuracies)[:2].mean(), rtol=1e-12)
    assert found.split == "train"


def test_many_models_are_evaluated_as_one_by_one(digits):
    keys = jax.random.split(jax.random.key(3), 3)
    params = jax.vmap(
        lambda key: jax.tree.map(lambda leaf: leaf + jax.random.normal(key, leaf.shape), digits.init(key))
    )(keys)
    for k, found in enumerate(evaluate_cells(digits, params, batch=300)):
        alone = evaluate(digits, jax.tree.map(lambda leaf, k=k: leaf[k], params), batch=300)
        jax.tree.map(lambda a, b: a == b or np.testing.assert_allclose(a, b, rtol=1e-5), found, alone)


def squared_distance(w, batch):
    return ((batch["x"] - w) ** 2).mean() / 2


def test_a_loss_and_a_store_of_ones_own():
    store = lur.data.in_memory({0: {"x": np.array([1.0, 3.0], "f")}, 1: {"x": np.array([0.0], "f")}})
    found = lur.evaluate(squared_distance, np.float32(1.0), store)
    assert (found.loss, found.example_loss, found.split) == ((1.0 + 0.5) / 2, 2.5 / 3, "given")
    assert np.isnan(found.accuracy)
    assert np.isnan(found.worst_accuracy)


def outcomes(w, batch):
    right = (batch["x"] > w).astype(np.float32)
    return lur.tasks.Outcomes(batch["x"], right, right * 0 + 1)


def test_outcomes_and_a_store_of_ones_own():
    store = lur.data.in_memory({0: {"x": np.array([1.0, 3.0], "f")}, 1: {"x": np.array([0.0], "f")}})
    found = lur.evaluate(outcomes, np.float32(2.0), store)
    assert (found.loss, found.accuracy, found.client_accuracy) == (1.0, 1 / 3, 1 / 4)


def test_splits_of_a_task(digits):
    train, test = lur.data.split_examples(digits.store, 0.25)
    task = dataclasses.replace(digits, store=train, test=test)
    params = task.init(jax.random.key(0))
    found = {on: lur.evaluate(task, params, on=on) for on in ("train", "test")}
    assert {on: one.split for on, one in found.items()} == {"train": "train", "test": "test"}
    assert found["train"].examples + found["test"].examples == digits.store.examples
    with pytest.raises(ValueError, match="the task digits has no held-out clients: it has the splits train, test"):
        lur.evaluate(task, params, on="clients")
    with pytest.raises(ValueError, match=r"the task digits has no test examples: it has the splits train$"):
        lur.evaluate(digits, params, on="test")
    with pytest.raises(ValueError, match="split must be one of train, test, clients, got 'validation'"):
        lur.evaluate(task, params, on="validation")


@pytest.mark.parametrize(
    ("task", "store", "message"),
    [
        (squared_distance, None, "store must be a store, such as lur.data.in_memory"),
        (squared_distance, {"x": 1}, "store must be a store, .* got dict"),
        ("digits", None, "task must be a lur.tasks.Task or a function"),
    ],
)
def test_mistaken_arguments(task, store, message):
    with pytest.raises(ValueError, match=message):
        lur.evaluate(task, np.float32(0), store)


def test_a_function_without_a_scalar_is_refused():
    store = lur.data.in_memory({0: {"x": np.ones(2, "f")}})
    with pytest.raises(ValueError, match=r"task must return lur.tasks.Outcomes or a scalar loss, got \(2,\)"):
        lur.evaluate(lambda w, batch: batch["x"] - w, np.float32(0), store)
