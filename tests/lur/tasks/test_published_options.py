"""Where paper and published code differ: the number of each option, from numpy or by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lur import tasks
from lur.data.gather import gather
from lur.data.writer import in_memory
from lur.models import LSTMLM, DropoutCNN
from lur.training.configuration import RunConfig
from lur.training.experiment import num_parameters, resolve
from lur.training.loop import train


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LUR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def test_the_summed_tag_loss_and_a_round_of_it_by_hand():
    """Keras's binary cross-entropy with reduction SUM: the mean over tags, summed over the mini-batch."""
    raw = in_memory([("a", {"tokens": [b"w0 w1"], "title": [b""], "tags": [b"t0|t2"]})])
    options = {"vocabulary": [b"w0", b"w1"], "tags": [b"t0", b"t1", b"t2"], "vocabulary_size": 2, "tags_size": 3}
    task = tasks.load("stackoverflow_tp", store=raw, over_batch="sum", **options)
    examples = gather(dict(task.store.features), task.store.widths, np.zeros(4, int))
    batch = task.view(jax.random.key(0), examples)
    y, x = np.array([1.0, 0.0, 1.0]), np.array([0.5, 0.5])
    kernel, bias = np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]]), np.array([0.1, -0.2, 0.3])
    params = {"params": {"kernel": jnp.asarray(kernel, jnp.float32), "bias": jnp.asarray(bias, jnp.float32)}}
    z = x @ kernel + bias
    one = (np.log1p(np.exp(z)) - z * y).mean()
    np.testing.assert_allclose(task.loss(params, batch), 4 * one, rtol=1e-6)
    masked = {**batch, "mask": jnp.array([True, False, True, True])}
    np.testing.assert_allclose(task.loss(params, masked), 3 * one, rtol=1e-6)
    # One round in the linear form, from zeros: two local steps with the gradients of a sum over four equal examples.
    config = RunConfig("stackoverflow_tp", rounds=1, batch_size=4, theta="1:2", server="sgd", client_lr=0.3)
    *_, end = train(resolve(config, task))
    W, b, dW, db = np.zeros((2, 3)), np.zeros(3), 0.0, 0.0
    for _ in range(2):
        residual = 4 * (sigmoid(x @ W + b) - y) / 3
        W, b = W - 0.3 * np.outer(x, residual), b - 0.3 * residual
        dW, db = dW + np.outer(x, residual), db + residual
    eta = float(end.infos.server_lr[0])
    np.testing.assert_allclose(end.state.params["params"]["kernel"], -eta * dW, rtol=1e-5)
    np.testing.assert_allclose(end.state.params["params"]["bias"], -eta * db, rtol=1e-5)


@pytest.mark.parametrize("init", ["default", "glorot_uniform", "glorot_normal"])
def test_the_initial_kernel_of_the_tag_model(init):
    task = tasks.load("stackoverflow_tp", clients=2, vocabulary_size=300, tags_size=100, init=init)
    kernel = np.asarray(task.init(jax.random.key(0))["params"]["kernel"])
    deviation = 0.0 if init == "default" else np.sqrt(2 / (300 + 100))
    np.testing.assert_allclose(kernel.std(), deviation, rtol=0.02)
    if init == "glorot_uniform":
        assert abs(kernel).max() <= np.sqrt(6 / 400)
    if init == "glorot_normal":  # truncated at two deviations of the normal before truncation, as Keras's
        assert np.sqrt(6 / 400) < abs(kernel).max() <= 2 * deviation / 0.87962566103423978 * (1 + 1e-6)


def lstm_in_numpy(layer, x, is_read):
    """Keras's LSTM over one sequence: at masked steps the state and the output are those before."""
    W, U, b = (np.asarray(layer[name], np.float64) for name in ("kernel", "recurrent", "bias"))
    h, c, found = np.zeros(len(U)), np.zeros(len(U)), []
    for inputs, reads in zip(x, is_read, strict=True):
        if reads:
            i, f, g, o = np.split(inputs @ W + h @ U + b, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        found.append(h)
    return np.array(found)


@pytest.mark.parametrize("positions", ["tokens", "all", "all_held", "inputs"])
def test_the_sequence_loss_over_each_choice_of_positions(positions):
    raw = in_memory([("a", {"snippets": [b"to be or not", b"x" * 79]})])
    task = tasks.load("shakespeare", store=raw, positions=positions)
    tokens = np.asarray(task.store.features["tokens"])[:2].astype(np.int32)
    assert tokens.shape == (2, 81)
    assert (tokens[0] == 0).sum() > 50
    params = jax.tree.map(lambda leaf: 2 * leaf, task.init(jax.random.key(3)))
    model, losses = params["params"], np.zeros((2, 80))
    for row, sequence in enumerate(tokens):
        inputs = sequence[:-1]
        reads = inputs != 0 if positions == "all_held" else np.ones(80, bool)
        x = np.asarray(model["embedding"], np.float64)[inputs]
        for name in ("lstm1", "lstm2"):
            x = lstm_in_numpy(model[name], x, reads)
        z = x @ np.asarray(model["logits"]["kernel"], np.float64) + np.asarray(model["logits"]["bias"])
        losses[row] = np.log(np.exp(z).sum(-1)) - z[np.arange(80), sequence[1:]]
    is_target, is_input = tokens[:, 1:] != 0, tokens[:, :-1] != 0
    expected = {
        "tokens": np.mean([losses[row][is_target[row]].mean() for row in range(2)]),
        "inputs": losses[is_input].mean(),
    }.get(positions, losses.mean())
    np.testing.assert_allclose(task.loss(params, {"tokens": jnp.asarray(tokens)}), expected, rtol=1e-5)
    assert task.outcomes(params, {"tokens": jnp.asarray(tokens)}).answers.tolist() == is_target.sum(1).tolist()


def test_held_logits_are_those_of_the_last_token():
    model = LSTMLM(7, 3, (4, 5), holds_at_padding=True)
    tokens = jnp.array([[1, 2, 3, 0, 0], [4, 5, 6, 1, 2]])
    params = model.init(jax.random.key(0), tokens)
    held, read = model.apply(params, tokens), LSTMLM(7, 3, (4, 5)).apply(params, tokens)
    np.testing.assert_array_equal(held[0, 3:], held[0, 2:3].repeat(2, 0))
    np.testing.assert_array_equal(held[1], read[1])
    assert (held[0, 3:] != read[0, 3:]).any()


def test_the_penalty_of_the_residual_network():
    """1e-4 times the squares of all kernels and of the logits' bias, as Keras's l2; not of the norms."""
    plain, code = (tasks.load("cifar100", clients=2, l2=l2) for l2 in (0.0, 1e-4))
    shapes = jax.eval_shape(plain.init, jax.random.key(0))
    params = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.5), shapes)
    norms = 128 + 2 * (3 * 64 + 64 + 4 * 128 + 128 + 4 * 256 + 256 + 4 * 512) + 1_024
    expected = 1e-4 * 0.25 * (11_227_812 - norms)
    np.testing.assert_allclose(code.penalty(params), expected, rtol=1e-5)
    assert plain.penalty is None


def test_the_dropout_network_has_its_parameters_and_rates():
    # 3*3*1*32 + 32, 3*3*32*64 + 64, 12*12*64*128 + 128, 128*62 + 62
    model, image = DropoutCNN(), jnp.ones((64, 28, 28, 1))
    params = model.init(jax.random.key(0), image[:1])
    assert num_parameters(params) == 320 + 18_496 + 1_179_776 + 7_998 == 1_206_590
    options = {"train": True, "rngs": {"dropout": jax.random.key(1)}, "capture_intermediates": True}
    found = model.apply(params, image, mutable="intermediates", **options)[1]["intermediates"]
    whole = model.apply(params, image, mutable="intermediates", capture_intermediates=True)[1]["intermediates"]
    for name, rate in (("Dropout_0", 0.25), ("Dropout_1", 0.5)):
        # the first dropout's inputs are the same in both; the second's are not, so only its zeros are compared
        (dropped,), (kept,) = found[name]["__call__"], whole[name]["__call__"]
        if rate == 0.25:
            active = np.asarray(kept != 0)
            np.testing.assert_allclose(np.mean(np.asarray(dropped)[active] == 0), rate, atol=0.01)
            survives = active & np.asarray(dropped != 0)
            np.testing.assert_allclose(np.asarray(dropped)[survives], np.asarray(kept)[survives] / 0.75, rtol=1e-5)
    before, after = (np.maximum(found[name]["__call__"][0], 0) for name in ("hidden", "Dropout_1"))
    active = before != 0
    np.testing.assert_allclose(np.mean(after[active] == 0), 0.5, atol=0.03)
    np.testing.assert_allclose(after[after != 0], 2 * before[after != 0], rtol=1e-6)


def test_dropout_is_drawn_per_step_and_is_off_in_evaluation():
    task = tasks.load("femnist", clients=2, model="dropout_cnn")
    examples = gather(dict(task.store.features), task.store.widths, np.arange(3))
    params = task.init(jax.random.key(0))
    one, same, other = (task.loss(params, task.view(jax.random.key(k), examples)) for k in (1, 1, 2))
    assert one == same != other
    assert examples["pixels"].dtype == np.float32  # from 0 to 1, so there is nothing to scale
    logits = DropoutCNN().apply(params, examples["pixels"][..., None])
    shifted = np.asarray(logits, np.float64)
    expected = np.log(np.exp(shifted).sum(-1)) - shifted[np.arange(3), np.asarray(examples["label"])]
    np.testing.assert_allclose(task.outcomes(params, task.eval_view(examples)).loss, expected, rtol=1e-5)
    plain = tasks.load("femnist", clients=2)
    assert plain.view(jax.random.key(0), examples).keys() == {"pixels", "label"}


def test_runs_with_dropout_are_equal_across_layouts_and_cuts():
    task = tasks.load("femnist", clients=3, model="dropout_cnn")
    options = {"rounds": 2, "clients_per_round": 2, "batch_size": 2, "theta": "1:2", "model": "dropout_cnn"}
    ends = [
        [*train(resolve(RunConfig("femnist", layout=layout, **options), task), chunk=chunk)][-1].state.params
        for layout, chunk in (("vmap", 2), ("vmap", 1), ("sequential", 2))
    ]
    for whole, cut, sequential in zip(*(jax.tree.leaves(end) for end in ends), strict=True):
        np.testing.assert_array_equal(whole, cut)
        np.testing.assert_allclose(whole, sequential, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("femnist", {"model": "2nn"}, "model must be one of default, dropout_cnn, got '2nn'"),
        ("shakespeare", {"positions": "some"}, "positions must be one of tokens, all, all_held, inputs, got 'some'"),
        ("stackoverflow_tp", {"over_batch": "max"}, "over_batch must be one of mean, sum, got 'max'"),
        ("stackoverflow_tp", {"init": "he"}, "init must be one of default, glorot_uniform, glorot_normal, got 'he'"),
        ("stackoverflow_tp", {"normalise": "l2"}, "normalise must be one of sum, mean, got 'l2'"),
        ("cifar100", {"l2": -1.0}, "l2 must be finite and >= 0, got -1.0"),
    ],
)
def test_other_values_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        tasks.load(name, clients=2, **options)
