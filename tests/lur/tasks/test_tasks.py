"""The seven tasks: shapes, losses, masks, parameter counts, training; `quadratic` against `theory`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
import theory
from lur import tasks
from lur.data import prepare
from lur.data.gather import gather
from lur.data.store import StoreError
from lur.data.writer import in_memory
from lur.training.configuration import RunConfig
from lur.training.experiment import num_parameters, resolve
from lur.training.loop import train

PARAMETERS = {
    "femnist": 1_690_046,
    "shakespeare": 820_522,
    "stackoverflow_nwp": 4_050_748,
    "stackoverflow_tp": 5_000_500,
    "digits": 650,
    "quadratic": 20,
}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LUR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module", params=tasks.NAMES)
def task(request, cache):
    return tasks.load(request.param, clients=3)


def batch_of(task, rows, train=True):
    examples = gather(dict(task.store.features), task.store.widths, np.asarray(rows))
    return task.view(jax.random.key(0), examples) if train else task.eval_view(examples)


def test_shapes_dtypes_and_parameter_counts(task):
    shaped = jax.eval_shape(task.init, jax.random.key(0))
    if task.name in PARAMETERS:
        assert num_parameters(shaped) == PARAMETERS[task.name]
    assert {leaf.dtype for leaf in jax.tree.leaves(shaped)} == {jnp.dtype("float32")}
    batch = batch_of(task, [0, 1, 2])
    loss = jax.eval_shape(task.loss, shaped, batch)
    assert (loss.shape, loss.dtype) == ((), jnp.float32)
    outcomes = jax.eval_shape(task.outcomes, shaped, batch_of(task, [0, 1, 2], train=False))
    assert {leaf.shape for leaf in outcomes} == {(3,)}
    assert task.store.about["dataset"]
    assert "generated" in task.store.about


@pytest.mark.parametrize("name", ["digits", "quadratic", "stackoverflow_tp"])
def test_masked_examples_do_not_count(name):
    task = tasks.load(name, clients=3)
    params = jax.tree.map(lambda leaf: leaf + 0.1, task.init(jax.random.key(0)))
    kept = task.loss(params, batch_of(task, [0, 2]))
    masked = task.loss(params, {**batch_of(task, [0, 1, 2]), "mask": jnp.array([True, False, True])})
    np.testing.assert_allclose(kept, masked, rtol=1e-6)
    all_masked = {**batch_of(task, [0, 1, 2]), "mask": jnp.zeros(3, bool)}
    value, gradient = jax.value_and_grad(task.loss)(params, all_masked)
    assert value == 0
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("name", ["digits", "quadratic", "stackoverflow_tp"])
def test_training_decreases_the_loss(name):
    task = tasks.load(name, clients=20)
    *_, last = train(resolve(RunConfig(name, rounds=30, clients_per_round=5), task))
    first = next(train(resolve(RunConfig(name, rounds=1, clients_per_round=5), task))).infos.loss[0]
    assert last.evaluation.loss < 0.8 * first
    assert last.rounds == 30


def test_padding_counts_in_neither_loss_nor_accuracy():
    raw = in_memory([("a", {"snippets": [b"to be or not", b"x" * 100]})])
    task = tasks.load("shakespeare", store=raw)
    tokens = np.asarray(task.store.features["tokens"])
    assert tokens.shape == (3, 81)
    params = task.init(jax.random.key(0))
    found = task.outcomes(params, {"tokens": jnp.asarray(tokens.astype(np.int32))})
    assert found.answers.tolist() == [13.0, 80.0, 20.0]  # the text and EOS; 81 tokens are 80 answers; 102 - 81 - 1
    np.testing.assert_allclose(found.loss, np.log(90), rtol=0.01)  # untrained: uniform over 90


def test_next_word_without_the_projection_is_the_direct_softmax():
    direct = tasks.load("stackoverflow_nwp", clients=2, projection=None)
    # 10,004 x 96 + 4 x 670 x (96 + 670 + 1) + (670 + 1) x 10,004
    assert num_parameters(jax.eval_shape(direct.init, jax.random.key(0))) == 960_384 + 2_055_560 + 6_712_684


def test_weights_of_a_bag_sum_to_one_or_count_unknown_words_in_the_denominator():
    post = {"tokens": [b"how to x y"], "title": [b"x zzz"], "tags": [b"p|q"]}
    raw = in_memory([("a", post)])
    options = {"vocabulary": [b"x", b"how"], "tags": [b"q"]}
    paper = tasks.load("stackoverflow_tp", store=raw, **options)
    code = tasks.load("stackoverflow_tp", store=raw, normalise="mean", **options)
    np.testing.assert_allclose(np.asarray(paper.store.features["weights"].values), [2 / 3, 1 / 3])
    np.testing.assert_allclose(np.asarray(code.store.features["weights"].values), [2 / 6, 1 / 6])
    assert paper.store.features["tags"].row(0).tolist() == [0]


def test_tag_loss_and_recall_by_hand():
    raw = in_memory([("a", {"tokens": [b"w0 w1"], "title": [b""], "tags": [b"t0|t2"]})])
    task = tasks.load(
        "stackoverflow_tp",
        store=raw,
        vocabulary=[b"w0", b"w1"],
        tags=[b"t0", b"t1", b"t2"],
        vocabulary_size=2,
        tags_size=3,
    )
    kernel, bias = np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]]), np.array([0.1, -0.2, 0.3])
    params = {"params": {"kernel": jnp.asarray(kernel, jnp.float32), "bias": jnp.asarray(bias, jnp.float32)}}
    z, y = kernel.mean(0) + bias, np.array([1, 0, 1])
    found = task.outcomes(params, batch_of(task, [0]))
    np.testing.assert_allclose(found.loss, [(np.log1p(np.exp(z)) - z * y).mean()], rtol=1e-6)
    assert (found.correct.tolist(), found.answers.tolist()) == ([2.0], [2.0])


def test_training_crops_are_random_and_evaluation_crops_are_central():
    image = np.arange(32 * 32 * 3, dtype=np.uint32).reshape(1, 32, 32, 3)
    raw = in_memory([("a", {"image": (image % 251).astype(np.uint8), "label": np.array([7], np.int32)})])
    task = tasks.load("cifar100", store=raw)
    central = np.asarray(batch_of(task, [0], train=False)["image"][0])
    window = (image[0, 4:28, 4:28] % 251).astype(np.float64)
    np.testing.assert_allclose(central, (window - window.mean()) / window.std(), rtol=2e-4, atol=1e-5)
    examples = gather(dict(task.store.features), {}, np.zeros(1, int))
    views = [np.asarray(task.view(jax.random.key(k), examples)["image"][0]) for k in range(12)]
    assert len({view.tobytes() for view in views}) == 12
    assert all(view.shape == (24, 24, 3) and abs(view.mean()) < 1e-5 for view in views)
    assert tasks.load("cifar100", store=raw, crop=32).eval_view(examples)["image"].shape == (1, 32, 32, 3)


@pytest.mark.x64
def test_quadratic_trains_to_the_surrogate_minimizer():
    """FedAvg on a `theory.Problem`, with all clients and exact gradients, converges to the surrogate's minimiser."""
    rng = np.random.default_rng(3)
    root = rng.normal(size=(4, 3, 3))
    A, c = root @ root.swapaxes(1, 2) / 6 + 0.3 * np.eye(3), rng.normal(size=(4, 3))
    problem = theory.Problem(A, c, np.full(4, 0.25))
    task = tasks.load("quadratic", A=problem.A, c=problem.c, p=problem.p, dtype=jnp.float64)
    L = float(np.linalg.eigvalsh(A).max())
    algo = lur.local_update(task.loss, lur.theta.fedavg(5), optax.sgd)
    state = algo.init(task.init(jax.random.key(0)), 0.5 / L, 0.2 / L)
    state, _ = lur.run(algo, state, task.store, rounds=600, clients_per_round=4, batch_size=1, view=task.view)
    expected = theory.surrogate_minimizer(problem, 0.5 / L, lur.theta.fedavg(5))
    np.testing.assert_allclose(state.params, expected, rtol=1e-9)
    assert np.linalg.norm(expected - theory.minimizer(problem)) > 1e-3


def test_prepared_stores_are_cached_and_recognised():
    raw = in_memory([("a", {"snippets": [b"hello"]})], {"dataset": "shakespeare", "generated": False})
    one, two = (tasks.load("shakespeare", store=raw) for _ in range(2))
    assert one.store.path == two.store.path
    assert tasks.load("shakespeare", store=one.store).store is one.store
    other = in_memory([("a", {"snippets": [b"other"]})], {"dataset": "shakespeare", "generated": False})
    assert tasks.load("shakespeare", store=other).store.path != one.store.path


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("femist", {}, "got 'femist'; did you mean femnist"),
        ("femnist", {"clients": 0}, "clients must be an integer >= 1, got 0"),
        ("femnist", {"heterogeneity": -1.0}, "heterogeneity must be finite and >= 0, got -1.0"),
        ("cifar100", {"crop": 33}, "crop must be between 1 and 32, got 33"),
        ("stackoverflow_tp", {"over_tags": "max"}, "over_tags must be 'mean' or 'sum'"),
        ("stackoverflow_tp", {"vocabulary_size": 0}, "size of a vocabulary must be >= 1, got 0"),
        ("quadratic", {"A": np.zeros((2, 3, 3)), "c": np.zeros((2, 2))}, "A and c must be"),
        ("quadratic", {"A": np.ones((2, 1, 1)), "c": np.ones((2, 1)), "p": [0.3, 0.7]}, "p must be uniform"),
    ],
)
def test_invalid_options_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        tasks.load(name, **options)


def test_a_store_of_another_task_is_refused():
    raw = in_memory([("a", {"snippets": [b"hello"]})])
    with pytest.raises(StoreError, match="expected pixels"):
        tasks.load("femnist", store=raw)
    with pytest.raises(StoreError, match="expected the text tokens"):
        tasks.load("stackoverflow_nwp", store=raw, vocabulary=[b"a"])


def test_words_are_counted_by_clients():
    raw = in_memory([("a", {"tokens": [b"x y y"]}), ("b", {"tokens": [b"y z"]}), ("c", {"tokens": [b"z y"]})])
    assert [word for word, _ in prepare.count_words(raw)][:2] == [b"y", b"z"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"rounds": 0}, "rounds must be an integer >= 1"),
        ({"evaluate_every": 0}, "evaluate_every must be an integer >= 1"),
        ({"epochs": 1, "theta": (1.0,)}, "theta must be left out with epochs"),
        ({"clients_per_round": 99}, "clients_per_round must be at most"),
        ({"client_lr": -1.0}, "client_lr must be finite and >= 0"),
    ],
)
def test_invalid_configurations_are_refused(config, message):
    with pytest.raises(ValueError, match=message):
        next(train(resolve(RunConfig("digits", **config), tasks.load("digits", clients=5))))


def test_epochs_and_evaluation_points():
    task = tasks.load("digits", clients=10)
    found = [
        *train(resolve(RunConfig("digits", rounds=7, epochs=1, clients_per_round=3, evaluate_every=3), task), chunk=2)
    ]
    assert [at.rounds for at in found] == [2, 3, 5, 6, 7]
    assert [at.rounds for at in found if at.evaluation] == [3, 6, 7]


def test_the_linear_form_of_a_task_trains_as_the_general_form():
    """`train` runs the linear form for tags."""
    task = tasks.load("stackoverflow_tp", clients=4, vocabulary_size=300, tags_size=20)
    assert task.linear is not None
    config = RunConfig(
        "stackoverflow_tp", rounds=3, clients_per_round=2, batch_size=4, epochs=None, server="sgd", server_lr=1.0
    )
    *_, linear = train(resolve(config, task), chunk=3)
    *_, general = train(resolve(config, dataclasses.replace(task, linear=None)), chunk=3)
    np.testing.assert_allclose(linear.infos.loss, general.infos.loss, rtol=1e-5)
    for a, b in zip(jax.tree.leaves(linear.state.params), jax.tree.leaves(general.state.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-7)
