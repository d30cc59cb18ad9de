"""`surrogate_of` against closed forms, for the clients of `theory.clients`, lur's clients and one written by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
import theory
import theory.maml
from tests.lur.problems import descent_batches, quadratic_loss, random_quadratic
from theory import clients, methods

pytestmark = pytest.mark.x64

GAMMA, K, THETA, RHO, BETA = 0.3, 4, (1.0, 0.5, 0.0, 2.0), 0.7, 0.6
GAMMAS = np.array([0.4, 0.1, 0.3, 0.2])
D = np.array([[1.0, 0.3, 0.0], [0.3, 2.0, 0.1], [0.0, 0.1, 0.5]])
ONES = (1.0,) * K


def close(actual, expected):
    """Asserts agreement to 1e-10, relative to the largest entry."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= 1e-10 * np.abs(expected).max()


def lur_client(theta=THETA, **options):
    """lur's InnerLoop as a client ``(params, batches, gamma) -> (update, loss_before)``."""
    return functools.partial(lur.inner_loop, quadratic_loss, theta=theta, **options)


def handwritten_client(batches, x):
    y = x
    for A, c in zip(*batches, strict=True):
        y = y - GAMMA * (A @ (y - c)[..., None])[..., 0].mean(0)
    return (x - y) / GAMMA


def delta_over_gamma(A):
    return theory.distortion(A, GAMMA, ONES) @ A


CLOSED = {
    "SGD": (clients.sgd(GAMMA, THETA), lambda A: theory.distortion(A, GAMMA, THETA) @ A),
    "prox": (clients.sgd(GAMMA, THETA, rho=RHO), lambda A: methods.prox_distortion(A, GAMMA, THETA, RHO) @ A),
    "prox, raw": (
        clients.sgd(GAMMA, THETA, rho=RHO, raw=True),
        lambda A: methods.prox_distortion(A, GAMMA, THETA, RHO, raw=True) @ A,
    ),
    "prox, exact": (clients.exact_prox(RHO), lambda A: methods.moreau_hessian(A, RHO)),
    "heavy ball": (clients.momentum(GAMMA, BETA, THETA), lambda A: methods.momentum_hessian(A, GAMMA, BETA, THETA)),
    "heavy ball, delta": (
        clients.momentum(GAMMA, BETA, THETA, send="delta"),
        lambda A: methods.momentum_hessian(A, GAMMA, BETA, THETA, send="delta"),
    ),
    "Nesterov": (
        clients.momentum(GAMMA, BETA, THETA, nesterov=True),
        lambda A: methods.momentum_hessian(A, GAMMA, BETA, THETA, nesterov=True),
    ),
    "Nesterov, delta": (
        clients.momentum(GAMMA, BETA, THETA, nesterov=True, send="delta"),
        lambda A: methods.momentum_hessian(A, GAMMA, BETA, THETA, nesterov=True, send="delta"),
    ),
    "varying steps": (clients.sgd(GAMMAS, THETA), lambda A: methods.varying_distortion(A, GAMMAS, THETA) @ A),
    "Chebyshev steps": (
        clients.delta(methods.chebyshev_steps(0.5, 2.0, K), K),
        lambda A: np.eye(3) - product(np.eye(3) - g * A for g in np.asarray(methods.chebyshev_steps(0.5, 2.0, K))),
    ),
    "preconditioned": (
        clients.preconditioned(GAMMA, THETA, D),
        lambda A: methods.preconditioned_hessian(A, GAMMA, THETA, D),
    ),
    "MAML": (clients.maml(GAMMA, 2), lambda A: theory.distortion(A, GAMMA, lur.theta.maml(2)) @ A),
    "model delta": (clients.delta(GAMMA, K), lambda A: GAMMA * delta_over_gamma(A)),
    "handwritten": (handwritten_client, delta_over_gamma),
    "without a rate, lur": (
        lambda batches, x: lur.inner_loop(quadratic_loss, x, batches, GAMMA, THETA)[0],
        lambda A: theory.distortion(A, GAMMA, THETA) @ A,
    ),
}
LUR_CLIENTS = {
    "SGD": (lur_client(), GAMMA, lambda A: theory.distortion(A, GAMMA, THETA) @ A),
    "varying steps": (lur_client(), GAMMAS, lambda A: methods.varying_distortion(A, GAMMAS, THETA) @ A),
    "prox": (lur_client(prox=RHO), GAMMA, lambda A: methods.prox_distortion(A, GAMMA, THETA, RHO) @ A),
    "prox, raw": (
        lur_client(prox=RHO, send="loss_gradients"),
        GAMMA,
        lambda A: methods.prox_distortion(A, GAMMA, THETA, RHO, raw=True) @ A,
    ),
    "heavy ball": (
        lur_client(client=lambda rate: optax.sgd(rate, momentum=BETA), send="gradients"),
        GAMMA,
        lambda A: methods.momentum_hessian(A, GAMMA, BETA, THETA),
    ),
    "MAML": (
        lambda params, batches, gamma: (lur.maml.maml_gradient(quadratic_loss, params, batches, gamma, 2), 0.0),
        GAMMA,
        lambda A: theory.distortion(A, GAMMA, lur.theta.maml(2)) @ A,
    ),
}


def product(matrices):
    total = np.eye(3)
    for matrix in matrices:
        total = matrix @ total
    return total


@pytest.mark.parametrize("name", CLOSED)
def test_surrogate_is_the_closed_form(name):
    client, hessian = CLOSED[name]
    A, c, p = random_quadratic(7, 4, 3)
    check_closed_form(theory.surrogate_of(client, theory.Problem(A, c, p), steps=K), hessian, A, c, p)


@pytest.mark.parametrize("name", LUR_CLIENTS)
def test_lur_clients_have_the_surrogate_of_their_closed_form(name):
    """The client that `lur.from_client` runs is the one that `surrogate_of` takes."""
    client, gamma, hessian = LUR_CLIENTS[name]
    A, c, p = random_quadratic(7, 4, 3)
    check_closed_form(theory.surrogate_of(client, theory.Problem(A, c, p), gamma=gamma, steps=K), hessian, A, c, p)


def test_the_same_client_in_lur_converges_to_the_minimizer_of_its_surrogate():
    A, c, p = random_quadratic(7, 4, 3)
    client = lur_client(prox=RHO)
    surrogate = theory.surrogate_of(client, theory.Problem(A, c, p), gamma=GAMMA, steps=K)
    method = lur.from_client(client, optax.sgd, local_steps=K)
    state, batches = method.init(jnp.zeros(3), GAMMA, 0.1), descent_batches(A, c, K)
    end = theory.fixed_point_of(lambda x: method.round(state._replace(params=x), batches, p)[0].params, state.params)
    close(end.state, surrogate.minimizer)
    close(end.matrix, np.eye(3) - 0.1 * surrogate.hessian)


def check_closed_form(found, hessian, A, c, p):
    expected = np.asarray(hessian(A))
    close(found.client_hessians, expected)
    close(found.client_minimizers, c)
    close(found.hessian, np.einsum("n,nij->ij", p, expected))
    mean = np.einsum("n,nij->ij", p, expected)
    close(found.minimizer, np.linalg.solve(mean, np.einsum("n,nij,nj->i", p, expected, c)))
    assert found.has_loss
    assert found.verdict == "the gradient of a strictly convex surrogate loss"
    spectrum = np.linalg.eigvalsh(mean)
    np.testing.assert_allclose(found.condition_number, spectrum[-1] / spectrum[0], rtol=1e-10)


def test_weight_decay_moves_the_clients_minimisers():
    A, c, p = random_quadratic(8, 4, 3)
    problem = theory.Problem(A, c, p)
    found = theory.surrogate_of(clients.sgd(GAMMA, THETA, weight_decay=0.2), problem, steps=K)
    decayed = methods.decayed(problem, 0.2)
    close(found.client_hessians, theory.client_hessians(decayed, GAMMA, THETA))
    close(found.client_minimizers, decayed.c)
    close(found.minimizer, theory.surrogate_minimizer(decayed, GAMMA, THETA))


def test_fednova_divides_by_the_number_of_steps():
    A, c, p = random_quadratic(9, 4, 3)
    steps = np.array([1, 2, 4, 3])
    for normalised in (False, True):
        found = theory.surrogate_of(
            clients.uneven(GAMMA, normalised=normalised), theory.Problem(A, c, p), steps=4, own=steps
        )
        expected = [
            theory.distortion(A[i], GAMMA, (1.0,) * k) @ A[i] / (float(k) if normalised else 1.0)
            for i, k in enumerate(steps)
        ]
        close(found.client_hessians, expected)
        close(found.client_minimizers, c)


def examples(n=2, m=3, d=2):
    A_z, c_z, _ = random_quadratic(10, n * m, d)
    return theory.StochasticProblem(A_z.reshape(n, m, d, d), c_z.reshape(n, m, d))


@pytest.mark.parametrize(
    ("client", "gamma"),
    [(clients.sgd(GAMMA, (1.0, 2.0)), None), (lur_client(theta=(1.0, 2.0)), GAMMA)],
    ids=["theory", "lur"],
)
def test_mini_batches_average_to_the_distortion_of_the_mean(client, gamma):
    """Theorem 1, by every sequence of mini-batches."""
    stochastic = examples()
    found = theory.surrogate_of(client, stochastic, gamma=gamma, steps=2, B=2)
    close(found.client_hessians, theory.client_hessians(stochastic.problem, GAMMA, (1.0, 2.0)))
    close(found.client_minimizers, stochastic.problem.c)


def test_mini_batches_bias_maml():
    stochastic = examples()
    found = theory.surrogate_of(clients.maml(GAMMA, 2), stochastic, steps=3)
    for i in range(2):
        at = [theory.maml.stochastic_maml_gradient(stochastic, i, x, GAMMA, 2, 1) for x in (np.zeros(2), *np.eye(2))]
        close(found.client_gradients_at_0[i], at[0])
        close(found.client_hessians[i], jnp.stack([at[1] - at[0], at[2] - at[0]], axis=1))
    assert found.has_loss


@pytest.mark.parametrize("drawing", ["reshuffled", "ordered"])
def test_epochs(drawing):
    """Reshuffling keeps a loss, though with another minimiser; a fixed order has none."""
    stochastic = examples()
    found = theory.surrogate_of(clients.sgd(GAMMA, (1.0,) * 3), stochastic, drawing=drawing)
    for i in range(2):
        hessian, pull = methods.epoch(stochastic.A_z[i], stochastic.c_z[i], GAMMA, reshuffled=drawing == "reshuffled")
        close(found.client_hessians[i], hessian)
        close(-found.client_gradients_at_0[i], pull)
    assert np.abs(found.client_minimizers - stochastic.problem.c).max() > 1e-3
    assert found.has_loss == (drawing == "reshuffled")


def test_an_epoch_of_two_examples():
    A, c, _ = random_quadratic(11, 2, 3)
    hessian, pull = methods.epoch(A, c, GAMMA, reshuffled=True)
    both = A[0] @ A[1] + A[1] @ A[0]
    close(hessian, A[0] + A[1] - GAMMA / 2 * both)
    twice = A[1] @ A[0] @ c[0] + A[0] @ A[1] @ c[1]
    close(pull, A[0] @ c[0] + A[1] @ c[1] - GAMMA / 2 * twice)


A_2 = np.array([[[2.0, 0.5], [0.5, 1.0]], [[1.5, 0.75], [0.75, 2.0]]])
ASYMMETRIC = {
    "fixed preconditioner, model delta": (
        clients.preconditioned(0.1, (1.0,) * 3, np.diag([1.0, 3.0]), send="delta"),
        {},
    ),
    "preconditioners that vary": (
        clients.preconditioned(0.1, (0.0, 0.0, 1.0), np.stack([np.diag([1.0, 3.0]), np.diag([2.0, 1.0])])),
        {},
    ),
    "mini-batches in a fixed order": (clients.sgd(0.1, (1.0, 1.0)), {"drawing": "ordered"}),
}


@pytest.mark.parametrize("name", ASYMMETRIC)
def test_clients_without_a_loss_are_recognised(name):
    client, options = ASYMMETRIC[name]
    c = np.array([[1.0, -1.0], [0.0, 2.0]])
    problem = theory.StochasticProblem(A_2[None], c[None]) if options else theory.Problem(A_2, c)
    found = theory.surrogate_of(client, problem, **(options or {"steps": 3}))
    assert not found.has_loss
    assert found.verdict.startswith("not the gradient of any loss: ||J - J^T|| = ")
    assert found.asymmetry > 1e-2
    same = theory.Problem(np.broadcast_to(np.diag([1.0, 2.0]), (2, 2, 2)), c)  # all commute: a loss again
    if not options:
        assert theory.surrogate_of(client, same, steps=3).has_loss


def test_a_delta_has_a_loss_in_the_preconditioners_own_metric():
    D = np.diag([1.0, 3.0])
    problem = theory.Problem(A_2, np.zeros((2, 2)))
    found = theory.surrogate_of(clients.preconditioned(0.1, (1.0,) * 3, D, send="delta"), problem, steps=3)
    close(found.client_hessians, methods.preconditioned_hessian(A_2, 0.1, (1.0,) * 3, D, send="delta"))
    scaled = np.linalg.solve(D, found.hessian)
    np.testing.assert_allclose(scaled, scaled.T, rtol=1e-12)


def test_verdict_names_a_loss_without_a_minimum():
    found = theory.surrogate_of(clients.sgd(1.5, (1.0, 1.0)), theory.two_clients(), steps=2)
    assert found.has_loss
    assert "without a strict minimum: the Hessian has the eigenvalue -0.75" in found.verdict


def test_bad_clients_and_rounds_are_refused():
    problem = theory.two_clients()
    signs = lur_client(theta=(1.0, 1.0), client=optax.sign_sgd)
    with pytest.raises(ValueError, match="client_fn must be affine in x"):
        theory.surrogate_of(signs, problem, gamma=GAMMA, steps=2)
    with pytest.raises(ValueError, match=r"client_fn must return an update of shape \(1,\)"):
        theory.surrogate_of(lambda batches, x: jnp.concatenate([x, x]), problem)
    with pytest.raises(ValueError, match=r"client_fn must return \(update, loss_before\) if gamma is given"):
        theory.surrogate_of(lambda params, batches, gamma: gamma * params, problem, gamma=GAMMA)
    with pytest.raises(ValueError, match="drawing must be"):
        theory.surrogate_of(handwritten_client, problem, drawing="some")  # pyright: ignore
    uneven = theory.StochasticProblem(np.ones((1, 2, 1, 1)), np.ones((1, 2, 1)), np.array([[0.3, 0.7]]))
    with pytest.raises(ValueError, match="p_z must be uniform"):
        theory.surrogate_of(handwritten_client, uneven, drawing="ordered")
    with pytest.raises(ValueError, match="too many to enumerate"):
        theory.surrogate_of(handwritten_client, examples(m=3), steps=20)
    with pytest.raises(ValueError, match="single fixed point"):
        theory.fixed_point_of(lambda x: x, np.zeros(2))
    with pytest.raises(ValueError, match="round_fn must be affine"):
        theory.fixed_point_of(jnp.cos, np.zeros(2))
    with pytest.raises(ValueError, match="like must have floating-point leaves"):
        theory.fixed_point_of(lambda t: t + 1, 0)
    with pytest.raises(ValueError, match="round_fn must return a state like"):
        theory.fixed_point_of(lambda x: (x, x), np.zeros(2))


def test_own_state_is_the_fourth_argument():
    """FedNova through the signature with a rate: what differs between clients follows gamma."""
    A, c, p = random_quadratic(9, 4, 3)
    steps = np.array([1, 2, 4, 3])

    def client(params, batches, gamma, own_steps):
        return clients.uneven(gamma, normalised=True)(batches, params, own_steps), 0.0

    problem = theory.Problem(A, c, p)
    found = theory.surrogate_of(client, problem, gamma=GAMMA, steps=4, own=steps)
    expected = theory.surrogate_of(clients.uneven(GAMMA, normalised=True), problem, steps=4, own=steps)
    close(found.client_hessians, expected.client_hessians)


def test_fixed_point_holds_integer_leaves():
    """A round counter is not part of the affine state."""
    state = {"x": np.array([3.0, -1.0]), "round": 7, "seen": np.array([1, 2])}

    def round_fn(state):
        return {"x": 0.5 * state["x"] + 1, "round": state["round"] + 1, "seen": 2 * state["seen"]}

    end = theory.fixed_point_of(round_fn, state)
    close(end.state["x"], [2.0, 2.0])
    close(end.matrix, 0.5 * np.eye(2))
    assert end.radius == 0.5
    assert end.state["round"] == 7
    assert end.state["seen"].tolist() == [1, 2]


def test_fixed_point_of_a_lur_round_with_server_momentum():
    """The state of a round is the model and the server's momentum; rates and counters stay outside."""
    A, c, p = random_quadratic(12, 3, 2)
    method = lur.local_update(quadratic_loss, (1.0, 1.0), server=lambda rate: optax.sgd(rate, momentum=0.5))
    state, batches = method.init(jnp.zeros(2), 0.2, 0.1), descent_batches(A, c, 2)

    def round_fn(pair):
        after = method.round(state._replace(params=pair[0], server_state=pair[1]), batches, p)[0]
        return after.params, after.server_state

    end = theory.fixed_point_of(round_fn, (state.params, state.server_state))
    close(end.state[0], theory.surrogate_minimizer(theory.Problem(A, c, p), 0.2, (1.0, 1.0)))
    assert 0 < end.radius < 1


def test_results_are_float64_in_a_single_precision_program():
    with jax.enable_x64(False):
        found = theory.surrogate_of(handwritten_client, theory.two_clients(), steps=2)
        close(found.minimizer, theory.surrogate_minimizer(theory.two_clients(), GAMMA, (1.0, 1.0)))
        assert found.minimizer.dtype == jnp.float64
        assert "strictly convex" in str(found)
