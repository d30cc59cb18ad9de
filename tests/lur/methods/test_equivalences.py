"""The methods that LocalUpdate contains (Section 2.2), each written out in plain numpy from its own paper."""

import chex
import numpy as np
import pytest

import lur
import theory
import theory.maml
from tests.lur.problems import (
    add,
    descent_batches,
    logistic_batches,
    logistic_gradient,
    logistic_loss,
    logistic_params,
    quadratic_loss,
    random_quadratic,
    take,
)

pytestmark = pytest.mark.x64
ROUNDS, M, K, B = 4, 3, 4, 2
GAMMA, ETA = 0.3, 0.15


def run(theta, batches, gamma=GAMMA, eta=ETA):
    """lur's LocalUpdate on batches (ROUNDS, M, K, B, ...)."""
    algorithm = lur.local_update(logistic_loss, theta)
    state = algorithm.init(logistic_params(0), gamma, eta)
    for t in range(ROUNDS):
        state, _ = algorithm.round(state, take(batches, t))
    return state.params


def local_steps(x, batches, gamma):
    """K steps of mini-batch SGD: the client model and the gradients on the way."""
    gradients = []
    for k in range(len(batches["y"])):
        gradients.append(logistic_gradient(x, take(batches, k)))
        x = add(x, gradients[-1], -gamma)
    return x, gradients


def average(trees):
    return {name: sum(tree[name] for tree in trees) / len(trees) for name in trees[0]}


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_minibatch_sgd_one_example_per_client(gamma):
    """Each client one example, Theta_1: SGD with batches of M; gamma plays no part."""
    batches = logistic_batches(1, ROUNDS, M, 1, 1)
    x = logistic_params(0)
    for t in range(ROUNDS):
        batch = {name: value[t, :, 0, 0] for name, value in batches.items()}
        x = add(x, logistic_gradient(x, batch), -ETA)
    chex.assert_trees_all_close(run(lur.theta.minibatch_sgd(), batches, gamma), x, rtol=1e-11)


def test_minibatch_sgd_one_client():
    """A single client, Theta_1: SGD with batches of B."""
    batches = logistic_batches(1, ROUNDS, 1, 1, B)
    x = logistic_params(0)
    for t in range(ROUNDS):
        x = add(x, logistic_gradient(x, take(batches, t, 0, 0)), -ETA)
    chex.assert_trees_all_close(run(lur.theta.minibatch_sgd(), batches), x, rtol=1e-11)


def test_distributed_minibatch_sgd():
    """Theta_1 in general: batches of M B in all."""
    batches = logistic_batches(1, ROUNDS, M, 1, B)
    x = logistic_params(0)
    for t in range(ROUNDS):
        batch = {name: value[t, :, 0].reshape(M * B, *value.shape[4:]) for name, value in batches.items()}
        x = add(x, logistic_gradient(x, batch), -ETA)
    chex.assert_trees_all_close(run(lur.theta.minibatch_sgd(), batches), x, rtol=1e-11)


def test_lookahead():
    """One client: slow weights move a fraction alpha towards the fast ones. eta = alpha gamma."""
    alpha, batches = 0.5, logistic_batches(1, ROUNDS, 1, K, B)
    slow = logistic_params(0)
    for t in range(ROUNDS):
        fast, _ = local_steps(slow, take(batches, t, 0), GAMMA)
        slow = {name: slow[name] + alpha * (fast[name] - slow[name]) for name in slow}
    chex.assert_trees_all_close(run(lur.theta.fedavg(K), batches, GAMMA, alpha * GAMMA), slow, rtol=1e-11)


def test_local_sgd():
    """Workers step on their own and are averaged every K steps; written as one long loop. eta = gamma."""
    batches = logistic_batches(1, ROUNDS, M, K, B)
    workers = [logistic_params(0) for _ in range(M)]
    for step in range(ROUNDS * K):
        t, k = divmod(step, K)
        workers = [add(x, logistic_gradient(x, take(batches, t, i, k)), -GAMMA) for i, x in enumerate(workers)]
        if k == K - 1:
            workers = [average(workers)] * M
    chex.assert_trees_all_close(run(lur.theta.fedavg(K), batches, GAMMA, GAMMA), workers[0], rtol=1e-11)


def test_fedavg_averages_models():
    """McMahan et al.: the server's model is the mean of the clients' models. eta = gamma."""
    batches = logistic_batches(2, ROUNDS, M, K, B)
    x = logistic_params(0)
    for t in range(ROUNDS):
        x = average([local_steps(x, take(batches, t, i), GAMMA)[0] for i in range(M)])
    chex.assert_trees_all_close(run(lur.theta.fedavg(K), batches, GAMMA, GAMMA), x, rtol=1e-11)


def test_fedavg_weighted_by_examples():
    """As FedAvg is often run: client models weighted by their numbers of examples."""
    batches, examples = logistic_batches(2, M, K, B), np.array([5.0, 1.0, 2.0])
    x = logistic_params(0)
    algorithm = lur.local_update(logistic_loss, lur.theta.fedavg(K))
    state, _ = algorithm.round(algorithm.init(x, GAMMA, GAMMA), batches, examples)
    models = [local_steps(x, take(batches, i), GAMMA)[0] for i in range(M)]
    expected = {name: sum(n * model[name] for n, model in zip(examples, models, strict=True)) / 8 for name in x}
    chex.assert_trees_all_close(state.params, expected, rtol=1e-11)


@pytest.mark.parametrize("eta_delta", [0.25, 1.0, 2.0])
def test_reptile_and_generalised_fedavg(eta_delta):
    """Model deltas as a gradient with rate eta_delta: LocalUpdate with eta = eta_delta gamma."""
    batches = logistic_batches(3, ROUNDS, M, K, B)
    x = logistic_params(0)
    for t in range(ROUNDS):
        deltas = [add(x, local_steps(x, take(batches, t, i), GAMMA)[0], -1.0) for i in range(M)]
        x = add(x, average(deltas), -eta_delta)
    chex.assert_trees_all_close(run(lur.theta.fedavg(K), batches, GAMMA, eta_delta * GAMMA), x, rtol=1e-11)


def test_at_gamma_zero_model_deltas_stand_still_and_local_update_does_not():
    batches, x = logistic_batches(3, ROUNDS, M, K, B), logistic_params(0)
    delta = add(x, local_steps(x, take(batches, 0, 0), 0.0)[0], -1.0)
    assert all(np.all(leaf == 0) for leaf in delta.values())
    moved = x
    for t in range(ROUNDS):
        gradients = [average(local_steps(moved, take(batches, t, i), 0.0)[1]) for i in range(M)]
        moved = add(moved, average(gradients), -ETA * K)
    chex.assert_trees_all_close(run(lur.theta.fedavg(K), batches, 0.0), moved, rtol=1e-11)
    assert np.abs(moved["w"] - x["w"]).max() > 1e-2


def test_fomaml():
    """First-order MAML: the gradient after K - 1 adaptation steps, taken as if it were the meta-gradient."""
    batches = logistic_batches(4, ROUNDS, M, K, B)
    x = logistic_params(0)
    for t in range(ROUNDS):
        messages = []
        for i in range(M):
            support = {name: value[t, i, : K - 1] for name, value in batches.items()}
            adapted, _ = local_steps(x, support, GAMMA)
            messages.append(logistic_gradient(adapted, take(batches, t, i, K - 1)))
        x = add(x, average(messages), -ETA)
    chex.assert_trees_all_close(run(lur.theta.fomaml(K), batches), x, rtol=1e-11)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_K_MAML_is_theta_2K_plus_1_on_quadratics(steps):
    """Rounds of true MAML, by the chain rule in numpy, are rounds of LocalUpdate with Theta_{2K+1}."""
    A, c, _ = random_quadratic(0, M, 3)
    x = np.ones(3)
    algorithm = lur.local_update(quadratic_loss, lur.theta.maml(steps))
    state = algorithm.init(x, GAMMA, ETA)
    for _ in range(ROUNDS):
        q = np.zeros(3)
        for i in range(M):
            y, jacobian = x, np.eye(3)
            for _ in range(steps):
                y, jacobian = y - GAMMA * A[i] @ (y - c[i]), (np.eye(3) - GAMMA * A[i]) @ jacobian
            q += jacobian.T @ A[i] @ (y - c[i]) / M
        x = x - ETA * q
        state, _ = algorithm.round(state, descent_batches(A, c, 2 * steps + 1))
    np.testing.assert_allclose(state.params, x, rtol=1e-11)


def test_K_MAML_is_not_theta_2K_plus_1_for_other_losses():
    """The equivalence is one of quadratics: on logistic regression it fails."""
    batch, x = logistic_batches(0, 1, 4), logistic_params(0)
    repeated = {name: np.repeat(value, 3, axis=0) for name, value in batch.items()}
    true = lur.maml.maml_gradient(logistic_loss, x, repeated, 1.0, 1)
    surrogate, _ = lur.inner_loop(logistic_loss, x, repeated, 1.0, lur.theta.maml(1))
    assert np.abs(true["w"] - surrogate["w"]).max() > 1e-3


def test_SGD_MAML_has_the_predicted_bias():
    """Over mini-batches the mean of many true MAML gradients is the biased closed form, not Theta_{2K+1}'s."""
    A_z, c_z = np.array([[[1.0]], [[3.0]]]), np.array([[0.0], [2.0]])
    stochastic = theory.StochasticProblem(A_z[None], c_z[None])
    client, x, gamma = stochastic.problem, np.array([1.0]), 0.25
    mean = 0.0
    for z in range(2):  # the inner example; the outer loss is the client's own
        A = np.stack([A_z[z][None], np.asarray(client.A[0])[None]])
        c = np.stack([c_z[z][None], np.asarray(client.c[0])[None]])
        mean += float(lur.maml.maml_gradient(quadratic_loss, x, (A, c), gamma, 1)[0]) / 2
    predicted = float(theory.maml.stochastic_maml_gradient(stochastic, 0, x, gamma, 1, 1)[0])
    assert mean == pytest.approx(predicted, rel=1e-12) == -0.5
    assert float(theory.maml.maml_gradient(client.A[0], client.c[0], x, gamma, 1)[0]) == pytest.approx(-0.25)
