"""f(x) is the mean over clients of each client's mean loss, whatever the batches it is streamed in."""

import jax
import numpy as np
import pytest

from lur import tasks
from lur.training.evaluation import evaluate


@pytest.fixture(scope="module")
def digits():
    return tasks.load("digits", clients=12, heterogeneity=3.0)


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
    found = evaluate(digits, params, clients, batch)
    loss, accuracy, n = by_hand(digits, params, range(digits.store.clients) if clients is None else clients)
    np.testing.assert_allclose(found.loss, loss, rtol=1e-5)
    np.testing.assert_allclose(found.accuracy, accuracy, rtol=1e-12)
    assert found.examples == n


@pytest.mark.parametrize("clients", [[], [-1], [99]])
def test_clients_that_are_not_there(digits, clients):
    with pytest.raises(ValueError, match="clients must be indices from 0 to"):
        evaluate(digits, digits.init(jax.random.key(0)), clients)


def test_no_answers_no_accuracy():
    task = tasks.load("quadratic", clients=3)
    assert np.isnan(evaluate(task, task.init(jax.random.key(0))).accuracy)
