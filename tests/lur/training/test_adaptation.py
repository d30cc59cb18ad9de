"""Clients adapt to their own training examples and are tested on their test examples, against a loop in numpy."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
from lur import tasks
from lur.data.sampling import client_key, round_key, with_replacement
from lur.training import adaptation
from lur.training.adaptation import evaluate_adapted
from lur.training.configuration import RunConfig
from lur.training.experiment import load_task, resolve
from lur.training.loop import train


@pytest.fixture(scope="module")
def task():
    whole = tasks.load("digits", clients=14, heterogeneity=3.0, test_fraction=0)
    rest, held_out = lur.data.split_clients(whole.store, 0.25)
    (train, test), (own, own_test) = (lur.data.split_examples(part, 0.3) for part in (rest, held_out))
    return dataclasses.replace(whole, store=train, test=test, held_out=own, held_out_test=own_test)


def softmax(z):
    p = np.exp(z - z.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def measured(w, b, examples):
    """The mean loss of a client, and its right answers."""
    x, y = examples["pixels"].astype(np.float64), examples["label"]
    p = softmax(x @ w + b)
    return -np.log(p[np.arange(len(y)), y]).mean(), (p.argmax(1) == y).sum()


def by_hand(train, test, params, gamma, k, batches, clients=None):
    """f(x) and accuracy after k steps of gradient descent, client by client."""
    losses, right, count = [], 0, 0
    for j in range(test.clients) if clients is None else clients:
        (i,) = [i for i in range(train.clients) if train.id(i) == test.id(j)]
        own = train.client(i)
        w, b = (np.asarray(params["params"]["logits"][name], np.float64) for name in ("kernel", "bias"))
        for rows in batches(i, len(own["label"]))[:k]:
            x, y = own["pixels"][rows].astype(np.float64), own["label"][rows]
            error = (softmax(x @ w + b) - np.eye(10)[y]) / len(y)
            w, b = w - gamma * x.T @ error, b - gamma * error.sum(0)
        loss, correct = measured(w, b, test.client(j))
        losses.append(loss)
        right, count = right + correct, count + len(test.client(j)["label"])
    return np.mean(losses), right / count


def all_examples(i, n):
    return [np.arange(n)] * 10


def mini_batches(i, n, B, seed):
    return np.asarray(with_replacement(client_key(round_key(np.uint32(seed), 0), i), n, 5, B).positions)


@pytest.mark.parametrize("on", ["test", "clients"])
@pytest.mark.parametrize("B", [None, 4])
def test_each_client_adapts_by_itself(task, on, B, monkeypatch):
    monkeypatch.setattr(adaptation, "CHUNK_BYTES", 2**15)  # several chunks, the last one padded
    params = task.init(jax.random.key(0))
    found = evaluate_adapted(task, params, 0.5, steps=(5, 0, 1), batch_size=B, on=on, seed=3)
    train, test = (task.store, task.test) if on == "test" else (task.held_out, task.held_out_test)
    batches = all_examples if B is None else partial(mini_batches, B=B, seed=3)
    assert [*found] == [0, 1, 5]
    for k, evaluation in found.items():
        loss, accuracy = by_hand(train, test, params, 0.5, k, batches)
        np.testing.assert_allclose(evaluation.loss, loss, rtol=1e-5)
        np.testing.assert_allclose(evaluation.accuracy, accuracy, rtol=1e-12)
        assert (evaluation.split, evaluation.clients, evaluation.examples) == (on, test.clients, test.examples)
    assert found[5].loss < found[0].loss


def test_no_step_is_the_plain_evaluation(task):
    params = jax.tree.map(lambda leaf: leaf + 0.1, task.init(jax.random.key(0)))
    plain = lur.evaluate(task, params, on="test")
    adapted = evaluate_adapted(task, params, 0.5, steps=[0])[0]
    np.testing.assert_allclose(adapted.loss, plain.loss, rtol=1e-6)
    assert adapted.accuracy_quantiles == plain.accuracy_quantiles


def test_some_clients_and_another_optimizer(task):
    params = task.init(jax.random.key(0))
    found = evaluate_adapted(task, params, 0.01, steps=[1], optimizer=optax.adam, clients=[2, 0])[1]
    alone = [evaluate_adapted(task, params, 0.01, steps=[1], optimizer=optax.adam, clients=[j])[1] for j in (2, 0)]
    np.testing.assert_allclose(found.loss, np.mean([one.loss for one in alone]), rtol=1e-6)
    # Adam's first step has the size of its rate in every coordinate that has a gradient
    store, i = task.store, 0
    assert store.id(i) == task.test.id(0)
    gradient = jax.grad(task.loss)(params, task.eval_view(store.client(i)))
    moved = jax.tree.map(lambda w, g: w - 0.01 * jnp.sign(g), params, gradient)
    w, b = (np.asarray(moved["params"]["logits"][name], np.float64) for name in ("kernel", "bias"))
    np.testing.assert_allclose(alone[1].loss, measured(w, b, task.test.client(0))[0], rtol=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": ()}, "steps must be integers >= 0, at least one"),
        ({"steps": (1, -1)}, "steps must be integers >= 0"),
        ({"steps": (0.5,)}, "steps must be integers >= 0"),
        ({"on": "train"}, "on must be 'test' or 'clients', got 'train'"),
        ({"batch_size": 0}, "batch_size must be an integer >= 1"),
        ({"client_lr": -1.0}, "client_lr must be finite and >= 0"),
        ({"clients": [99]}, "clients must be indices from 0 to"),
    ],
)
def test_mistaken_arguments(task, options, message):
    with pytest.raises(ValueError, match=message):
        evaluate_adapted(task, task.init(jax.random.key(0)), **({"client_lr": 0.1} | options))


def test_a_task_without_test_examples_is_refused(task):
    params = task.init(jax.random.key(0))
    with pytest.raises(ValueError, match="the task digits has no test examples"):
        evaluate_adapted(dataclasses.replace(task, test=None), params, 0.1)
    with pytest.raises(ValueError, match="the held-out clients of the task digits have no test examples to adapt for"):
        evaluate_adapted(dataclasses.replace(task, held_out_test=None), params, 0.1, on="clients")


def run(**options):
    """The last progress of two rounds on digits."""
    config = RunConfig("digits", rounds=2, clients=12, clients_per_round=2, client_lr=0.5, **options)
    *_, last = train(resolve(config, load_task(config)))
    return last


def test_a_run_is_evaluated_on_all_splits_that_it_has():
    last = run(held_out=0.25, adapt="0,5")
    assert [*last.held_out] == ["test", "test after 5 steps", "clients", "clients after 5 steps"]
    assert last.evaluation.split == "train"
    assert {one.split for one in last.held_out.values()} == {"test", "clients"}
    for split in ("test", "clients"):
        assert last.held_out[f"{split} after 5 steps"].loss < last.held_out[split].loss


def test_a_run_is_evaluated_on_the_splits_asked_for():
    assert [*run(evaluate_on="train").held_out] == []
    assert [*run(held_out=0.25, evaluate_on="train,clients").held_out] == ["clients"]
    assert run(test_fraction=0.0).held_out == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"evaluate_on": "test"}, "evaluate_on must contain train"),
        (
            {"evaluate_on": "train,tets"},
            "evaluate_on must be among train, test, clients, got 'tets'; did you mean test",
        ),
        ({"evaluate_on": "train,clients"}, "the task digits has no held-out clients"),
        ({"adapt": "1,x"}, "adapt must be integers from 0 to 10,000, such as 0,1,5, got '1,x'"),
        ({"adapt": "1", "test_fraction": 0.0}, "adapt needs test examples, which the task digits does not have"),
        ({"test_fraction": 1.0}, "test_fraction must be >= 0 and below 1, got 1.0"),
        ({"held_out": -0.1}, "held_out must be >= 0 and below 1, got -0.1"),
    ],
)
def test_mistaken_splits_of_a_run(options, message):
    with pytest.raises(ValueError, match=message):
        run(**options)
