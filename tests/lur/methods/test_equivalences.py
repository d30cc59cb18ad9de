"""Special cases of LocalUpdate (Section 2.2), each compared with the method of its own paper written out in numpy."""

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


def run_local_update(theta, batches, gamma=GAMMA, eta=ETA):
    """Parameters after ROUNDS rounds of `lur.local_update` on batches (ROUNDS, M, K, B, ...)."""
    method = lur.local_update(logistic_loss, theta)
    state = method.init(logistic_params(0), gamma, eta)
    for t in range(ROUNDS):
        state, _ = method.round(state, take(batches, t))
    return state.params


def local_steps(x, batches, gamma):
    """Returns the model after K steps of mini-batch SGD, and the K gradients."""
    gradients = []
    for k in range(len(batches["y"])):
        gradients.append(logistic_gradient(x, take(batches, k)))
        x = add(x, gradients[-1], -gamma)
    return x, gradients


def average(trees):
    """Mean of dicts of arrays."""
    return {name: sum(tree[name] for tree in trees) / len(trees) for name in trees[0]}


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_theta_1_with_one_example_per_client_is_minibatch_sgd(gamma):
    """SGD with batches of size M, independent of gamma."""
    batches = logistic_batches(1, ROUNDS, M, 1, 1)
    x = logistic_params(0)
    for t in range(ROUNDS):
        batch = {name: value[t, :, 0, 0] for name, value in batches.items()}
        x = add(x, logistic_gradient(x, batch), -ETA)
    chex.assert_trees_all_close(run_local_update(lur.theta.minibatch_sgd(), batches, gamma), x, rtol=1e-11)


def test_theta_1_with_one_client_is_minibatch_sgd():
    """SGD with batches of size B."""
    batches = logistic_batches(1, ROUNDS, 1, 1, B)
    x = logistic_params(0)
    for t in range(ROUNDS):
        x = add(x, logistic_gradient(x, take(batches, t, 0, 0)), -ETA)
    chex.assert_trees_all_close(run_local_update(lur.theta.minibatch_sgd(), batches), x, rtol=1e-11)


def test_theta_1_is_distributed_minibatch_sgd():
    """SGD with batches of size M B."""
    batches = logistic_batches(1, ROUNDS, M, 1, B)
    x = logistic_params(0)
    for t in range(ROUNDS):
        batch = {name: value[t, :, 0].reshape(M * B, *value.shape[4:]) for name, value in batches.items()}
        x = add(x, logistic_gradient(x, batch), -ETA)
    chex.assert_trees_all_close(run_local_update(lur.theta.minibatch_sgd(), batches), x, rtol=1e-11)


def test_one_client_is_lookahead():
    """The slow weights move a fraction alpha towards the fast ones: eta = alpha gamma."""
    alpha, batches = 0.5, logistic_batches(1, ROUNDS, 1, K, B)
    slow = logistic_params(0)
    for t in range(ROUNDS):
        fast, _ = local_steps(slow, take(batches, t, 0), GAMMA)
        slow = {name: slow[name] + alpha * (fast[name] - slow[name]) for name in slow}
    chex.assert_trees_all_close(run_local_update(lur.theta.fedavg(K), batches, GAMMA, alpha * GAMMA), slow, rtol=1e-11)


def test_theta_1_to_K_with_equal_rates_is_local_sgd():
    """Workers take steps independently and are averaged every K steps: eta = gamma."""
    batches = logistic_batches(1, ROUNDS, M, K, B)
    workers = [logistic_params(0) for _ in range(M)]
    for step in range(ROUNDS * K):
        t, k = divmod(step, K)
        workers = [add(x, logistic_gradient(x, take(batches, t, i, k)), -GAMMA) for i, x in enumerate(workers)]
        if k == K - 1:
            workers = [average(workers)] * M
    chex.assert_trees_all_close(run_local_update(lur.theta.fedavg(K), batches, GAMMA, GAMMA), workers[0], rtol=1e-11)


def test_theta_1_to_K_with_equal_rates_is_fedavg():
    """McMahan et al.: the server model is the mean of the client models: eta = gamma."""
    batches = logistic_batches(2, ROUNDS, M, K, B)
    x = logistic_params(0)
    for t in range(ROUNDS):
        x = average([local_steps(x, take(batches, t, i), GAMMA)[0] for i in range(M)])
    chex.assert_trees_all_close(run_local_update(lur.theta.fedavg(K), batches, GAMMA, GAMMA), x, rtol=1e-11)


def test_weights_are_those_of_fedavg_over_examples():
    """Client models are averaged with weights proportional to their numbers of examples."""
    batches, examples = logistic_batches(2, M, K, B), np.array([5.0, 1.0, 2.0])
    x = logistic_params(0)
    method = lur.local_update(logistic_loss, lur.theta.fedavg(K))
    state, _ = method.round(method.init(x, GAMMA, GAMMA), batches, examples)
    models = [local_steps(x, take(batches, i), GAMMA)[0] for i in range(M)]
    expected = {name: sum(n * model[name] for n, model in zip(examples, models, strict=True)) / 8 for name in x}
    chex.assert_trees_all_close(state.params, expected, rtol=1e-11)


@pytest.mark.parametrize("eta_delta", [0.25, 1.0, 2.0])
def test_theta_1_to_K_is_reptile_and_generalised_fedavg(eta_delta):
    """The server takes a step of size eta_delta along the mean model delta: eta = eta_delta gamma."""
    batches = logistic_batches(3, ROUNDS, M, K, B)
    x = logistic_params(0)
    for t in range(ROUNDS):
        deltas = [add(x, local_steps(x, take(batches, t, i), GAMMA)[0], -1.0) for i in range(M)]
        x = add(x, average(deltas), -eta_delta)
    chex.assert_trees_all_close(run_local_update(lur.theta.fedavg(K), batches, GAMMA, eta_delta * GAMMA), x, rtol=1e-11)


def test_gamma_zero_moves_the_model_though_model_deltas_vanish():
    batches, x = logistic_batches(3, ROUNDS, M, K, B), logistic_params(0)
    delta = add(x, local_steps(x, take(batches, 0, 0), 0.0)[0], -1.0)
    assert all(np.all(leaf == 0) for leaf in delta.values())
    expected = x
    for t in range(ROUNDS):
        gradients = [average(local_steps(expected, take(batches, t, i), 0.0)[1]) for i in range(M)]
        expected = add(expected, average(gradients), -ETA * K)
    chex.assert_trees_all_close(run_local_update(lur.theta.fedavg(K), batches, 0.0), expected, rtol=1e-11)
    assert np.abs(expected["w"] - x["w"]).max() > 1e-2


def test_theta_K_is_fomaml():
    """First-order MAML uses the gradient after K - 1 adaptation steps as the meta-gradient."""
    batches = logistic_batches(4, ROUNDS, M, K, B)
    x = logistic_params(0)
    for t in range(ROUNDS):
        updates = []
        for i in range(M):
            support = {name: value[t, i, : K - 1] for name, value in batches.items()}
            adapted, _ = local_steps(x, support, GAMMA)
            updates.append(logistic_gradient(adapted, take(batches, t, i, K - 1)))
        x = add(x, average(updates), -ETA)
    chex.assert_trees_all_close(run_local_update(lur.theta.fomaml(K), batches), x, rtol=1e-11)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_theta_2K_plus_1_is_maml_on_quadratics(steps):
    """Rounds of LocalUpdate equal rounds of MAML, whose gradient follows from the chain rule in numpy."""
    A, c, _ = random_quadratic(0, M, 3)
    x = np.ones(3)
    method = lur.local_update(quadratic_loss, lur.theta.maml(steps))
    state = method.init(x, GAMMA, ETA)
    for _ in range(ROUNDS):
        q = np.zeros(3)
        for i in range(M):
            y, jacobian = x, np.eye(3)
            for _ in range(steps):
                y, jacobian = y - GAMMA * A[i] @ (y - c[i]), (np.eye(3) - GAMMA * A[i]) @ jacobian
            q += jacobian.T @ A[i] @ (y - c[i]) / M
        x = x - ETA * q
        state, _ = method.round(state, descent_batches(A, c, 2 * steps + 1))
    np.testing.assert_allclose(state.params, x, rtol=1e-11)


def test_theta_2K_plus_1_is_not_maml_on_logistic_regression():
    """The equivalence holds for quadratics only."""
    batch, x = logistic_batches(0, 1, 4), logistic_params(0)
    repeated = {name: np.repeat(value, 3, axis=0) for name, value in batch.items()}
    maml_update = lur.maml.maml_gradient(logistic_loss, x, repeated, 1.0, 1)
    local_update, _ = lur.inner_loop(logistic_loss, x, repeated, 1.0, lur.theta.maml(1))
    assert np.abs(maml_update["w"] - local_update["w"]).max() > 1e-3


def test_stochastic_maml_has_the_predicted_bias():
    """The mean MAML gradient over mini-batches is the closed form with its bias, not the update of Theta_{2K+1}."""
    A_z, c_z = np.array([[[1.0]], [[3.0]]]), np.array([[0.0], [2.0]])
    stochastic = theory.StochasticProblem(A_z[None], c_z[None])
    client, x, gamma = stochastic.problem, np.array([1.0]), 0.25
    mean = 0.0
    for z in range(2):  # the inner example; the outer loss is the client's loss
        A = np.stack([A_z[z][None], np.asarray(client.A[0])[None]])
        c = np.stack([c_z[z][None], np.asarray(client.c[0])[None]])
        mean += float(lur.maml.maml_gradient(quadratic_loss, x, (A, c), gamma, 1)[0]) / 2
    predicted = float(theory.maml.stochastic_maml_gradient(stochastic, 0, x, gamma, 1, 1)[0])
    assert mean == pytest.approx(predicted, rel=1e-12) == -0.5
    assert float(theory.maml.maml_gradient(client.A[0], client.c[0], x, gamma, 1)[0]) == pytest.approx(-0.25)
