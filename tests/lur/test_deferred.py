"""A linear model's deferred round against the general path: `lur.local_update` with the flax model's own loss."""

import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
from lur import deferred
from lur.models.layers.sparse import dense_bags
from lur.models.linear import LogisticRegression, TagRegression

M, K, B, W = 3, 4, 5, 6
WORDS, TAGS = 20, 7
FEATURES, CLASSES = 9, 4


def bags(seed, *leading, dtype=np.float64, words=WORDS):
    """Bags with padding, repeated words and empty bags; tags that may be none."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, W + 1, leading)
    values = generator.uniform(0.2, 1, (*leading, W)) * (np.arange(W) < lengths[..., None])
    return {
        "words": (generator.integers(0, words, (*leading, W)) * (values > 0)).astype(np.int32),
        "weights": values.astype(dtype),
        "tags": generator.integers(0, TAGS, (*leading, 3)).astype(np.int32),
        "tagged": np.arange(3) < generator.integers(0, 4, (*leading, 1)),
    }


def images(seed, *leading, dtype=np.float64):
    generator = np.random.default_rng(seed)
    return {
        "pixels": generator.uniform(0, 1, (*leading, FEATURES)).astype(dtype),
        "label": generator.integers(0, CLASSES, leading).astype(np.int32),
    }


def mean(losses, batch):
    if "mask" not in batch:
        return losses.mean()
    mask = batch["mask"].astype(losses.dtype)
    return (losses * mask).sum() / jnp.maximum(mask.sum(), 1)


def tags_loss(params, batch):
    """As `stackoverflow_tp`'s: the tags' logits are picked, not multiplied by labels."""
    z = TagRegression(WORDS, TAGS, params["params"]["kernel"].dtype).apply(params, batch["words"], batch["weights"])
    tagged = batch["tagged"].astype(z.dtype)
    positive = (jnp.take_along_axis(z, batch["tags"], -1) * tagged).sum(-1)
    return mean((jax.nn.softplus(z).sum(-1) - positive) / TAGS, batch)


def digits_loss(params, batch):
    z = LogisticRegression(CLASSES, params["params"]["logits"]["kernel"].dtype).apply(params, batch["pixels"])
    return mean(optax.softmax_cross_entropy_with_integer_labels(z, batch["label"]), batch)


def weights_of(d, outputs, dtype=np.float64):
    generator = np.random.default_rng(7)
    return {
        "kernel": generator.standard_normal((d, outputs)).astype(dtype),
        "bias": generator.standard_normal(outputs).astype(dtype),
    }


def tags_problem(dtype=np.float64):
    return deferred.tag_regression(TAGS), tags_loss, bags, {"params": weights_of(WORDS, TAGS, dtype)}


def digits_problem(dtype=np.float64):
    params = {"params": {"logits": weights_of(FEATURES, CLASSES, dtype)}}
    return deferred.logistic_regression(), digits_loss, images, params


def both(problem, theta, server=optax.sgd, *, form="auto", **options):
    model, loss, *_ = problem
    return (
        lur.local_update(loss, theta, server, **options),
        deferred.linear_update(model, theta, server, form=form, **options),
    )


def assert_same(one, other, rtol=1e-12):
    for found, expected in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        scale = np.abs(expected).max(initial=0) if np.size(expected) else 0
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * scale)


PROBLEMS = {"bags": (tags_problem, "auto"), "written out": (tags_problem, "plain"), "dense": (digits_problem, "auto")}
THETAS = {
    "sgd": (1.0,),
    "fedavg": lur.theta.fedavg(K),
    "fomaml": lur.theta.fomaml(K),
    "random": (0.3, 0.0, 2.1, 0.7),
    "shorter": (1.0, 0.0, 0.5),
}


@pytest.mark.x64
@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("theta", THETAS)
def test_rounds_are_the_general_path(kind, theta):
    """Messages (through the parameters), losses, norms and their means, over four rounds."""
    make, form = PROBLEMS[kind]
    _, _, batches, params = problem = make()
    general, linear = both(problem, THETAS[theta], form=form)
    assert general.steps == linear.steps
    expected, found = (algo.init(params, 0.8, 0.5) for algo in (general, linear))
    chex.assert_trees_all_equal(expected, found)
    for t in range(4):
        expected, info = general.round(expected, batches(t, M, K, B))
        found, other = linear.round(found, batches(t, M, K, B))
        assert_same(found, expected)
        assert_same(other, info)


@pytest.mark.x64
@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("layout", ["vmap", "sequential", "chunked:2", "sharded"])
@pytest.mark.parametrize("gamma", [0.0, 0.7, "per step"])
def test_masks_weights_rates_and_layouts(kind, layout, gamma):
    """Some mini-batches are masked altogether; one client has weight 0."""
    make, form = PROBLEMS[kind]
    _, _, batches, params = problem = make()
    mask = np.random.default_rng(1).integers(0, 2, (M, K, B)).astype(bool)
    mask[0, 1] = mask[1] = False
    batches = {**batches(0, M, K, B), "mask": mask}
    gamma = np.array([0.5, 0.0, 2.0, 1.0]) if gamma == "per step" else gamma
    general, linear = both(problem, THETAS["random"], form=form)
    expected = general.round(general.init(params, gamma, 1.0), batches, np.array([3.0, 1.0, 0.0]))
    found = linear.round(linear.init(params, gamma, 1.0), batches, np.array([3.0, 1.0, 0.0]), layout=layout)
    assert_same(found, expected)


@pytest.mark.x64
@pytest.mark.parametrize("make", [tags_problem, digits_problem])
def test_one_client_of_single_examples(make):
    _, _, batches, params = problem = make()
    general, linear = both(problem, lur.theta.fedavg(3))
    batches = batches(5, 1, 3, 1)
    expected, found = (algo.round(algo.init(params, 0.5, 1.0), batches) for algo in (general, linear))
    assert_same(found, expected)


@pytest.mark.x64
@pytest.mark.promote
@pytest.mark.parametrize(
    "server", [lambda rate: optax.sgd(rate, momentum=0.9), optax.adam, lur.optimizers.yogi], ids=["momentum", "adam", "yogi"]
)
@pytest.mark.parametrize("make", [tags_problem, digits_problem])
def test_servers_and_decay(make, server):
    """The server's step and the decay are the general path's own; Adam's division may enlarge the rounding."""
    _, _, batches, params = problem = make()
    decay = lur.decay.plateau(window=2, patience=1, cooldown=0)
    general, linear = both(problem, lur.theta.fedavg(K), server, decay=decay)
    expected, found = (algo.init(params, 0.5, 0.1) for algo in (general, linear))
    decays = 0
    for t in range(12):
        expected, info = general.round(expected, batches(t, M, K, B))
        found, other = linear.round(found, batches(t, M, K, B))
        assert_same(found, expected, rtol=1e-9)
        assert_same(other, info, rtol=1e-9)
        decays += int(other.decayed)
    assert decays > 0


@pytest.mark.parametrize("make", [tags_problem, digits_problem])
def test_single_precision(make):
    """Sums of about 100 terms of one size, four steps: some 100 roundings of 6e-8, relative to the largest."""
    _, _, batches, params = problem = make(np.float32)
    general, linear = both(problem, lur.theta.fedavg(K))
    batches = batches(0, M, K, B, dtype=np.float32)
    expected, found = (algo.round(algo.init(params, 0.5, 1.0), batches) for algo in (general, linear))
    assert_same(found, expected, rtol=6e-6)


@pytest.mark.x64
def test_gradient_at_zero():
    """sigmoid(0) - y, by hand; the loss there is log 2."""
    batches = bags(0, 1, 1, B)
    params = {"params": {"kernel": np.zeros((WORDS, TAGS)), "bias": np.zeros(TAGS)}}
    algo = deferred.linear_update(deferred.tag_regression(TAGS), [1.0])
    state, info = algo.round(algo.init(params, 0.5, 1.0), batches)
    labels = np.zeros((B, TAGS))
    for b in range(B):
        np.add.at(labels[b], batches["tags"][0, 0, b][batches["tagged"][0, 0, b]], 1)
    X = np.asarray(dense_bags(batches["words"], batches["weights"], WORDS))[0, 0]
    residual = (0.5 - labels) / (B * TAGS)
    np.testing.assert_allclose(state.params["params"]["kernel"], -X.T @ residual, rtol=1e-13, atol=1e-16)
    np.testing.assert_allclose(state.params["params"]["bias"], -residual.sum(0), rtol=1e-13, atol=1e-16)
    np.testing.assert_allclose(info.loss, np.log(2), rtol=1e-13)


@pytest.mark.x64
@pytest.mark.parametrize("words", [20, 2**20, 2**28, 2**31 - 1])
def test_transposed_products(words):
    """In one sort, in several, and row by row: the vocabulary decides how many words fit into one sort."""
    n, seen = 3000, 20
    ids, values = (bags(3, n)[name] for name in ("words", "weights"))
    S = np.random.default_rng(0).standard_normal((n, 2))
    expected = np.asarray(dense_bags(ids, values, seen)).T @ S
    given = deferred.Bags(jnp.asarray(ids), jnp.asarray(values))
    if words < 2**25:
        found = deferred.transposed_product(given, jnp.asarray(S), words)
        assert not np.any(found[seen:])
        np.testing.assert_allclose(found[:seen], expected, rtol=1e-12, atol=1e-12)
    else:
        assert jax.eval_shape(lambda b, S: deferred.transposed_product(b, S, words), given, S).shape == (words, 2)
