"""The linear form compared with the reference, which is `lur.local_update` with the loss of the flax model."""

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
    """Random bags of words with padding and repetitions, some of them empty, and zero to three tags each."""
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
    """Random pixels and labels."""
    generator = np.random.default_rng(seed)
    return {
        "pixels": generator.uniform(0, 1, (*leading, FEATURES)).astype(dtype),
        "label": generator.integers(0, CLASSES, leading).astype(np.int32),
    }


def masked_mean(losses, batch):
    """Mean over the unmasked examples."""
    if "mask" not in batch:
        return losses.mean()
    mask = batch["mask"].astype(losses.dtype)
    return (losses * mask).sum() / jnp.maximum(mask.sum(), 1)


def tags_loss(params, batch):
    """The loss of `stackoverflow_tp`, which gathers the logits of the tags instead of multiplying by labels."""
    z = TagRegression(WORDS, TAGS, params["params"]["kernel"].dtype).apply(params, batch["words"], batch["weights"])
    tagged = batch["tagged"].astype(z.dtype)
    positive = (jnp.take_along_axis(z, batch["tags"], -1) * tagged).sum(-1)
    return masked_mean((jax.nn.softplus(z).sum(-1) - positive) / TAGS, batch)


def digits_loss(params, batch):
    """The loss of `digits`."""
    z = LogisticRegression(CLASSES, params["params"]["logits"]["kernel"].dtype).apply(params, batch["pixels"])
    return masked_mean(optax.softmax_cross_entropy_with_integer_labels(z, batch["label"]), batch)


def random_layer(d, outputs, dtype=np.float64):
    generator = np.random.default_rng(7)
    return {
        "kernel": generator.standard_normal((d, outputs)).astype(dtype),
        "bias": generator.standard_normal(outputs).astype(dtype),
    }


def tags_problem(dtype=np.float64):
    return tag_regression(TAGS), tags_loss, bags, {"params": random_layer(WORDS, TAGS, dtype)}


def digits_problem(dtype=np.float64):
    params = {"params": {"logits": random_layer(FEATURES, CLASSES, dtype)}}
    return logistic_regression(), digits_loss, images, params


reference_method = functools.cache(lur.local_update)


def reference_and_linear(problem, theta, server=optax.sgd, *, is_sparse=None, **options):
    model, loss, *_ = problem
    method = reference_method(loss, theta, server, **options)
    return method, linear_form(method, model, is_sparse=is_sparse)


def linear_method(model, theta):
    return linear_form(lur.local_update(None, theta), model)


def assert_same(tree, expected_tree, rtol=1e-12):
    """Compares trees leaf by leaf, relative to the largest entry of each leaf."""
    for leaf, expected in zip(jax.tree.leaves(tree), jax.tree.leaves(expected_tree), strict=True):
        scale = np.abs(expected, where=np.isfinite(expected), out=np.zeros(np.shape(expected))).max()
        np.testing.assert_allclose(leaf, expected, rtol=rtol, atol=rtol * scale)


PROBLEMS = {"bags": (tags_problem, True), "dense bags": (tags_problem, False), "dense": (digits_problem, None)}
FEDAVG, FOMAML, RANDOM, SHORT = lur.theta.fedavg(K), lur.theta.fomaml(K), (0.3, 0.0, 2.1, 0.7), (1.0, 0.0, 0.5)
PER_STEP = np.array([0.5, 0.0, 2.0, 1.0])
CASES = [
    ("bags", FEDAVG, 0.8, "vmap", "uniform"),
    ("bags", RANDOM, PER_STEP, "sequential", "masked"),
    ("bags", FOMAML, 0.7, "chunked:2", "weighted"),
    ("dense bags", RANDOM, PER_STEP, "vmap", "masked"),
    ("dense", FEDAVG, PER_STEP, "sequential", "masked"),
    ("dense", SHORT, 0.7, "vmap", "weighted"),
]


def momentum(rate):
    return optax.sgd(rate, momentum=0.9)


def masked(batches, seed):
    """Adds a random mask that hides some mini-batches, and all those of one client, completely."""
    mask = np.random.default_rng(seed).integers(0, 2, (M, K, B)).astype(bool)
    mask[0, 1] = mask[1] = False
    return {**batches, "mask": mask}


@pytest.mark.x64
@pytest.mark.parametrize(("kind", "theta", "gamma", "layout", "variant"), CASES)
def test_linear_rounds_equal_the_reference(kind, theta, gamma, layout, variant):
    """Parameters, losses and norms over three rounds."""
    make, is_sparse = PROBLEMS[kind]
    _, _, draw, params = problem = make()
    reference, linear = reference_and_linear(problem, theta, is_sparse=is_sparse)
    assert reference.local_steps == linear.local_steps
    expected, state = (method.init(params, gamma, 0.5) for method in (reference, linear))
    chex.assert_trees_all_equal(expected, state)
    weights = np.array([3.0, 1.0, 0.0]) if variant == "weighted" else None
    for t in range(3):
        batches = masked(draw(t, M, K, B), t) if variant == "masked" else draw(t, M, K, B)
        expected, expected_info = reference.round(expected, batches, weights)
        state, info = linear.round(state, batches, weights, layout=layout)
        assert_same(state, expected)
        assert_same(info, expected_info)


@pytest.mark.x64
def test_one_client_with_batches_of_one_example_equals_the_reference():
    _, _, batches, params = problem = tags_problem()
    reference, linear = reference_and_linear(problem, lur.theta.fedavg(3))
    batches = batches(5, 1, 3, 1)
    expected, state = (method.round(method.init(params, 0.5, 1.0), batches) for method in (reference, linear))
    assert_same(state, expected)


@pytest.mark.x64
def test_batches_built_inside_the_round_equal_given_batches():
    """Each client builds its batches from a shared source, inside the jit of the caller."""
    _, _, draw, params = problem = tags_problem()
    reference, linear = reference_and_linear(problem, FEDAVG)
    batches = jax.tree.map(jnp.asarray, draw(0, M, K, B))
    state = linear.init(params, 0.5, 1.0)

    def batches_of(source, i):
        return Batches(jax.tree.map(lambda leaf: leaf[i], source))

    @jax.jit
    def linear_round(state):
        inputs = RoundInputs(jnp.arange(M, dtype=jnp.int32), source=batches)
        return method_round(linear, state, inputs, Layout(1), batches_of)

    assert_same(linear_round(state), reference.round(state, batches, None))


@pytest.mark.x64
@pytest.mark.promote
@pytest.mark.parametrize(
    ("make", "server"),
    [(digits_problem, momentum), (tags_problem, lur.optimizers.yogi)],
    ids=["momentum", "yogi"],
)
def test_server_optimizers_and_decay_equal_the_reference(make, server):
    """The tolerance is larger because the division in Yogi may amplify rounding errors."""
    _, _, batches, params = problem = make()
    decay = lur.decay.plateau(window=2, patience=1, cooldown=0)
    reference, linear = reference_and_linear(problem, lur.theta.fedavg(K), server, decay=decay)
    expected, state = (method.init(params, 0.5, 0.1) for method in (reference, linear))
    decays = 0
    for t in range(12):
        expected, expected_info = reference.round(expected, batches(t, M, K, B))
        state, info = linear.round(state, batches(t, M, K, B))
        assert_same(state, expected, rtol=1e-9)
        assert_same(info, expected_info, rtol=1e-9)
        decays += int(info.decayed)
    assert decays > 0


def test_linear_rounds_in_single_precision_equal_the_reference():
    """Each entry sums about 100 terms of similar size: some 100 rounding errors of 6e-8, relative to the largest."""
    _, _, batches, params = problem = tags_problem(np.float32)
    reference, linear = reference_and_linear(problem, lur.theta.fedavg(K))
    batches = batches(0, M, K, B, dtype=np.float32)
    expected, state = (method.round(method.init(params, 0.5, 1.0), batches) for method in (reference, linear))
    assert_same(state, expected, rtol=6e-6)


@pytest.mark.x64
def test_gradient_and_loss_at_zero_weights():
    """The residual is sigmoid(0) - y, and the loss is log 2."""
    batches = bags(0, 1, 1, B)
    params = {"params": {"kernel": np.zeros((WORDS, TAGS)), "bias": np.zeros(TAGS)}}
    method = linear_method(tag_regression(TAGS), [1.0])
    state, info = method.round(method.init(params, 0.5, 1.0), batches)
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
def test_transposed_products_equal_dense_products(words, width):
    """The size of the vocabulary selects one sort, two sorts or a loop over rows."""
    n, used = 3000, 20
    ids, values = (bags(3, n)[name][:, :width] for name in ("words", "weights"))
    S = np.random.default_rng(0).standard_normal((n, 2))
    expected = np.asarray(dense_bags(ids, values, used)).T @ S if width else np.zeros((used, 2))
    product = transposed_product(Bags(*map(jnp.asarray, (ids, values))), jnp.asarray(S), words)
    assert not np.any(product[used:])
    np.testing.assert_allclose(product[:used], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.x64
def test_vmap_over_rates_equals_separate_rounds():
    """The library call has no batching rule of its own, so a vmapped round processes one rate after another."""
    model, _, draw, params = tags_problem()
    method = linear_method(model, FEDAVG)
    batches = draw(0, M, K, B)

    def client_norms(gamma):
        return method.round(method.init(params, gamma, 1.0), batches)[1].client_norms

    rates = jnp.array([0.0, 0.9])
    np.testing.assert_allclose(jax.vmap(client_norms)(rates), jnp.stack([client_norms(g) for g in rates]), rtol=1e-12)


def scalar_loss(params, batch):
    """Logistic loss of a kernel of shape (d,) without bias."""
    z = batch["pixels"] @ params["kernel"]
    return masked_mean(jax.nn.softplus(z) - z * (batch["label"] > 0).astype(z.dtype), batch)


def scalar_problem():
    model = LinearModel(
        (),
        lambda batch: batch["pixels"],
        lambda batch: batch["label"],
        lambda z, y: jax.nn.softplus(z) - z * (y > 0).astype(z.dtype),
    )
    return model, scalar_loss, images, {"kernel": random_layer(FEATURES, 1)["kernel"][:, 0]}


GRID_CASES = [
    (tags_problem, FEDAVG, [0.8, 0.0, 0.3], "vmap", "uniform"),
    (tags_problem, RANDOM, [PER_STEP, 0.5 * PER_STEP], "sequential", "masked"),
    (digits_problem, FEDAVG, [0.7], "vmap", "masked"),
    (digits_problem, SHORT, [0.7, 0.2], "chunked:2", "weighted"),
    (scalar_problem, FEDAVG, [0.7, 0.0, 0.2, 1.5], "vmap", "weighted"),
    (scalar_problem, RANDOM, [0.7, 0.2], "sequential", "masked"),
]


@pytest.mark.x64
@pytest.mark.parametrize(("make", "theta", "gammas", "layout", "variant"), GRID_CASES)
def test_stacked_cells_equal_separate_rounds(make, theta, gammas, layout, variant):
    """A grid is computed as one wide model; each cell has its own initial model and its own rates."""
    _, _, draw, params = problem = make()
    reference, linear = reference_and_linear(problem, theta)
    models = [jax.tree.map(lambda leaf, c=c: (1 + 0.1 * c) * leaf, params) for c in range(len(gammas))]
    states = [reference.init(x, g[: len(theta)] if np.ndim(g) else g, 0.5) for x, g in zip(models, gammas, strict=True)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)._replace(round=states[0].round)
    weights = np.array([3.0, 1.0, 0.0]) if variant == "weighted" else None
    for t in range(2):
        batches = masked(draw(t, M, K, B), t) if variant == "masked" else draw(t, M, K, B)
        inputs = RoundInputs(jax.tree.map(jnp.asarray, batches), None if weights is None else jnp.asarray(weights))
        stacked, infos = method_round(
            stack_cells(linear), stacked, inputs, parse_layout(layout), lambda _, arrays: Batches(arrays)
        )
        results = [reference.round(state, batches, weights) for state in states]
        states = [state for state, _ in results]
        for c, (state, info) in enumerate(results):
            assert_same(
                jax.tree.map(lambda leaf, c=c: leaf[c], stacked._replace(round=None)), state._replace(round=None)
            )
            assert_same(jax.tree.map(lambda leaf, c=c: leaf[c], infos), info)
        assert stacked.round == t + 1


@pytest.mark.x64
def test_words_outside_the_vocabulary_give_nan():
    model, _, draw, params = tags_problem()
    batches = draw(0, M, K, B)
    batches["words"][1, 0, 0, 0] = WORDS
    method = linear_method(model, (1.0,))
    _, info = method.round(method.init(params, 0.5, 1.0), batches)
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
def test_invalid_batches_are_rejected(change, message):
    model, _, draw, params = tags_problem()
    method = linear_method(model, FEDAVG)
    with pytest.raises(ValueError, match=message):
        method.round(method.init(params, 0.5, 1.0), change(draw(0, M, K, B)))


@pytest.mark.x64
def test_invalid_params_are_rejected():
    model, _, draw, params = tags_problem()
    method = linear_method(model, FEDAVG)
    state = method.init({"params": {**params["params"], "scale": np.ones(1)}}, 0.5, 1.0)
    with pytest.raises(ValueError, match="params must be"):
        method.round(state, draw(0, M, K, B))
    state = method.init({"params": {"kernel": np.ones((3, 2)), "bias": np.ones(3)}}, 0.5, 1.0)
    with pytest.raises(ValueError, match="kernel and bias must be"):
        method.round(state, draw(0, M, K, B))
    digits = linear_method(logistic_regression(), FEDAVG)
    state = digits.init({"params": {"logits": random_layer(FEATURES + 1, CLASSES)}}, 0.5, 1.0)
    with pytest.raises(ValueError, match="features must have shape"):
        digits.round(state, images(0, M, K, B))
