"""The rewrite for linear models against the reference: `lur.local_update` with the flax model's own loss."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lur
from lur.engine.cells import stack_cells
from lur.engine.fast.bags import Bags, transposed_product
from lur.engine.fast.linear import LinearModel, linear_form
from lur.methods.method import Batches, RoundInputs, method_round
from lur.models.layers.sparse import dense_bags
from lur.models.regression import LogisticRegression, TagRegression
from lur.parallel.layouts import Layout, parse_layout
from lur.tasks.digits import logistic_regression
from lur.tasks.stackoverflow_tp import tag_regression

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
    return tag_regression(TAGS), tags_loss, bags, {"params": weights_of(WORDS, TAGS, dtype)}


def digits_problem(dtype=np.float64):
    params = {"params": {"logits": weights_of(FEATURES, CLASSES, dtype)}}
    return logistic_regression(), digits_loss, images, params


general_path = functools.cache(lur.local_update)


def both(problem, theta, server=optax.sgd, *, is_sparse=None, **options):
    model, loss, *_ = problem
    method = general_path(loss, theta, server, **options)
    return method, linear_form(method, model, is_sparse=is_sparse)


def rewritten(model, theta):
    return linear_form(lur.local_update(None, theta), model)


def assert_same(one, other, rtol=1e-12):
    for found, expected in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        scale = np.abs(expected, where=np.isfinite(expected), out=np.zeros(np.shape(expected))).max()
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * scale)


PROBLEMS = {"bags": (tags_problem, True), "written out": (tags_problem, False), "dense": (digits_problem, None)}
FEDAVG, FOMAML, RANDOM, SHORT = lur.theta.fedavg(K), lur.theta.fomaml(K), (0.3, 0.0, 2.1, 0.7), (1.0, 0.0, 0.5)
PER_STEP = np.array([0.5, 0.0, 2.0, 1.0])
CASES = [
    ("bags", FEDAVG, 0.8, "vmap", "plain"),
    ("bags", RANDOM, PER_STEP, "sequential", "masked"),
    ("bags", FOMAML, 0.7, "chunked:2", "weighted"),
    ("written out", RANDOM, PER_STEP, "vmap", "masked"),
    ("dense", FEDAVG, PER_STEP, "sequential", "masked"),
    ("dense", SHORT, 0.7, "vmap", "weighted"),
]


def momentum(rate):
    return optax.sgd(rate, momentum=0.9)


def masked(batches, seed):
    """Some mini-batches, and one client's all, are masked altogether."""
    mask = np.random.default_rng(seed).integers(0, 2, (M, K, B)).astype(bool)
    mask[0, 1] = mask[1] = False
    return {**batches, "mask": mask}


@pytest.mark.x64
@pytest.mark.parametrize(("kind", "theta", "gamma", "layout", "mean"), CASES)
def test_rounds_are_the_general_path(kind, theta, gamma, layout, mean):
    """Messages (through the parameters), losses, norms and their means, over three rounds."""
    make, is_sparse = PROBLEMS[kind]
    _, _, draw, params = problem = make()
    general, linear = both(problem, theta, is_sparse=is_sparse)
    assert general.local_steps == linear.local_steps
    expected, found = (algo.init(params, gamma, 0.5) for algo in (general, linear))
    chex.assert_trees_all_equal(expected, found)
    weights = np.array([3.0, 1.0, 0.0]) if mean == "weighted" else None
    for t in range(3):
        batches = masked(draw(t, M, K, B), t) if mean == "masked" else draw(t, M, K, B)
        expected, info = general.round(expected, batches, weights)
        found, other = linear.round(found, batches, weights, layout=layout)
        assert_same(found, expected)
        assert_same(other, info)


@pytest.mark.x64
def test_one_client_of_single_examples():
    _, _, batches, params = problem = tags_problem()
    general, linear = both(problem, lur.theta.fedavg(3))
    batches = batches(5, 1, 3, 1)
    expected, found = (algo.round(algo.init(params, 0.5, 1.0), batches) for algo in (general, linear))
    assert_same(found, expected)


@pytest.mark.x64
def test_fetched_batches():
    """A client's batches made where it runs, inside the caller's jit."""
    _, _, draw, params = problem = tags_problem()
    general, algo = both(problem, FEDAVG)
    batches = jax.tree.map(jnp.asarray, draw(0, M, K, B))
    state = algo.init(params, 0.5, 1.0)

    def batches_of(source, i):
        return Batches(jax.tree.map(lambda leaf: leaf[i], source))

    @jax.jit
    def fetched(state):
        inputs = RoundInputs(jnp.arange(M, dtype=jnp.int32), source=batches)
        return method_round(algo, state, inputs, Layout(1), batches_of)

    assert_same(fetched(state), general.round(state, batches, None))


@pytest.mark.x64
@pytest.mark.promote
@pytest.mark.parametrize(
    ("make", "server"),
    [(digits_problem, momentum), (tags_problem, lur.optimizers.yogi)],
    ids=["momentum", "yogi"],
)
def test_servers_and_decay(make, server):
    """The server's step and the decay are the general path's own; yogi's division may enlarge the rounding."""
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


def test_single_precision():
    """Sums of about 100 terms of one size, four steps: some 100 roundings of 6e-8, relative to the largest."""
    _, _, batches, params = problem = tags_problem(np.float32)
    general, linear = both(problem, lur.theta.fedavg(K))
    batches = batches(0, M, K, B, dtype=np.float32)
    expected, found = (algo.round(algo.init(params, 0.5, 1.0), batches) for algo in (general, linear))
    assert_same(found, expected, rtol=6e-6)


@pytest.mark.x64
def test_gradient_at_zero():
    """sigmoid(0) - y, by hand; the loss there is log 2."""
    batches = bags(0, 1, 1, B)
    params = {"params": {"kernel": np.zeros((WORDS, TAGS)), "bias": np.zeros(TAGS)}}
    algo = rewritten(tag_regression(TAGS), [1.0])
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
@pytest.mark.parametrize(("words", "width"), [(20, W), (2**18, W), (2**20, W), (20, 0)])
def test_transposed_products(words, width):
    """In one sort, in two, and row by row: the vocabulary decides how many words fit into one sort."""
    n, seen = 3000, 20
    ids, values = (bags(3, n)[name][:, :width] for name in ("words", "weights"))
    S = np.random.default_rng(0).standard_normal((n, 2))
    expected = np.asarray(dense_bags(ids, values, seen)).T @ S if width else np.zeros((seen, 2))
    found = transposed_product(Bags(*map(jnp.asarray, (ids, values))), jnp.asarray(S), words)
    assert not np.any(found[seen:])
    np.testing.assert_allclose(found[:seen], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.x64
def test_grid_of_rates_is_a_vmap():
    """The library call has no batched form: a vmapped round takes its cells one by one."""
    model, _, draw, params = tags_problem()
    algo = rewritten(model, FEDAVG)
    batches = draw(0, M, K, B)

    def after(gamma):
        return algo.round(algo.init(params, gamma, 1.0), batches)[1].client_norms

    rates = jnp.array([0.0, 0.9])
    np.testing.assert_allclose(jax.vmap(after)(rates), jnp.stack([after(g) for g in rates]), rtol=1e-12)


def scalar_loss(params, batch):
    """A kernel of shape (d,) and no bias."""
    z = batch["pixels"] @ params["kernel"]
    return mean(jax.nn.softplus(z) - z * (batch["label"] > 0).astype(z.dtype), batch)


def scalar_problem():
    model = LinearModel(
        (),
        lambda batch: batch["pixels"],
        lambda batch: batch["label"],
        lambda z, y: jax.nn.softplus(z) - z * (y > 0).astype(z.dtype),
    )
    return model, scalar_loss, images, {"kernel": weights_of(FEATURES, 1)["kernel"][:, 0]}


CELLS = [
    (tags_problem, FEDAVG, [0.8, 0.0, 0.3], "vmap", "plain"),
    (tags_problem, RANDOM, [PER_STEP, 0.5 * PER_STEP], "sequential", "masked"),
    (digits_problem, FEDAVG, [0.7], "vmap", "masked"),
    (digits_problem, SHORT, [0.7, 0.2], "chunked:2", "weighted"),
    (scalar_problem, FEDAVG, [0.7, 0.0, 0.2, 1.5], "vmap", "weighted"),
    (scalar_problem, RANDOM, [0.7, 0.2], "sequential", "masked"),
]


@pytest.mark.x64
@pytest.mark.parametrize(("make", "theta", "gammas", "layout", "mean"), CELLS)
def test_cells_are_the_general_path_one_by_one(make, theta, gammas, layout, mean):
    """A grid as one wide model: each cell from a model of its own, with its own rates."""
    _, _, draw, params = problem = make()
    general, linear = both(problem, theta)
    models = [jax.tree.map(lambda leaf, c=c: (1 + 0.1 * c) * leaf, params) for c in range(len(gammas))]
    states = [general.init(x, g[: len(theta)] if np.ndim(g) else g, 0.5) for x, g in zip(models, gammas, strict=True)]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)._replace(round=states[0].round)
    weights = np.array([3.0, 1.0, 0.0]) if mean == "weighted" else None
    for t in range(2):
        batches = masked(draw(t, M, K, B), t) if mean == "masked" else draw(t, M, K, B)
        inputs = RoundInputs(jax.tree.map(jnp.asarray, batches), None if weights is None else jnp.asarray(weights))
        together, infos = method_round(
            stack_cells(linear), together, inputs, parse_layout(layout), lambda _, arrays: Batches(arrays)
        )
        ends = [general.round(state, batches, weights) for state in states]
        states = [state for state, _ in ends]
        for c, (state, info) in enumerate(ends):
            assert_same(
                jax.tree.map(lambda leaf, c=c: leaf[c], together._replace(round=None)), state._replace(round=None)
            )
            assert_same(jax.tree.map(lambda leaf, c=c: leaf[c], infos), info)
        assert together.round == t + 1


@pytest.mark.x64
def test_words_outside_the_vocabulary_give_nan():
    model, _, draw, params = tags_problem()
    batches = draw(0, M, K, B)
    batches["words"][1, 0, 0, 0] = WORDS
    algo = rewritten(model, (1.0,))
    _, info = algo.round(algo.init(params, 0.5, 1.0), batches)
    np.testing.assert_array_equal(np.isnan(info.client_losses), [False, True, False])


@pytest.mark.x64
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: {**b, "words": b["words"].astype(np.float64)}, "ids must be integers"),
        (lambda b: {**b, "weights": b["weights"].astype(np.float32)}, "batches must have the dtype of params"),
        (lambda b: {name: leaf[:, :2] for name, leaf in b.items()}, r"theta needs K\(theta\) = 4 mini-batches"),
    ],
)
def test_bad_batches(change, message):
    model, _, draw, params = tags_problem()
    algo = rewritten(model, FEDAVG)
    with pytest.raises(ValueError, match=message):
        algo.round(algo.init(params, 0.5, 1.0), change(draw(0, M, K, B)))


@pytest.mark.x64
def test_bad_params():
    model, _, draw, params = tags_problem()
    algo = rewritten(model, FEDAVG)
    state = algo.init({"params": {**params["params"], "scale": np.ones(1)}}, 0.5, 1.0)
    with pytest.raises(ValueError, match="params must be"):
        algo.round(state, draw(0, M, K, B))
    state = algo.init({"params": {"kernel": np.ones((3, 2)), "bias": np.ones(3)}}, 0.5, 1.0)
    with pytest.raises(ValueError, match="kernel and bias must be"):
        algo.round(state, draw(0, M, K, B))
    digits = rewritten(logistic_regression(), FEDAVG)
    state = digits.init({"params": {"logits": weights_of(FEATURES + 1, CLASSES)}}, 0.5, 1.0)
    with pytest.raises(ValueError, match="features must have shape"):
        digits.round(state, images(0, M, K, B))
