"""LEAF's Shakespeare: 80 characters and the next one, from its JSON to a trained model."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lur import tasks
from lur.data.characters import ALPHABETS, CHARACTERS
from lur.data.gather import gather
from lur.data.importing import import_store
from lur.data.prepare import next_character
from lur.data.store import StoreError
from lur.data.writer import in_memory
from lur.models.lstm_lm import shakespeare as shakespeare_model

SPEECH = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer.\n"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LUR_CACHE", str(tmp_path / "cache"))


def window(text, start=0):
    """An example of LEAF: a window of 80 characters and the character after it."""
    repeated = text * 10
    return repeated[start : start + 80], repeated[start + 80]


def leaf_file(path, roles):
    """LEAF's file: users, num_samples, hierarchies (the play of each user) and user_data."""
    data = {role: dict(zip(("x", "y"), map(list, zip(*windows, strict=True)), strict=True)) for role, windows in roles}
    sizes = [len(windows) for _, windows in roles]
    content = {"users": [*data], "num_samples": sizes, "hierarchies": ["HAMLET"] * len(data), "user_data": data}
    path.write_text(json.dumps(content))
    return path


def two_roles(path):
    hamlet = [window(SPEECH, k) for k in range(5)]
    return leaf_file(path, [("HAMLET_HAMLET", hamlet), ("HAMLET_OPHELIA", [window("Good my lord, ", 3)])])


def ids(text):
    return [ALPHABETS["tff"].first + CHARACTERS.index(character.encode()) for character in text]


def test_a_window_becomes_its_characters_and_the_next_one(tmp_path):
    store = import_store("leaf", two_roles(tmp_path / "a.json"), tmp_path / "s")
    prepared = in_memory(next_character(store))
    assert prepared.features["tokens"].shape == (6, 81)
    assert prepared.features["tokens"].dtype == np.uint8
    for k in range(5):
        x, y = window(SPEECH, k)
        assert prepared.features["tokens"][k].tolist() == ids(x + y)


def test_a_character_outside_the_vocabulary_is_one_id():
    """Of one byte (>), of two (é) and of four."""
    store = in_memory([("a", {"x": [("é>𝄞" + "a" * 77).encode()], "y": ["é".encode()]})])
    [(_, examples)] = next_character(store)
    assert examples["tokens"].tolist() == [[87] * 3 + ids("a") * 77 + [87]]


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        (b"a" * 79, b"b", "client 'a': expected x of 80 characters, found 79"),
        ("é".encode() * 40, b"b", "expected x of 80 characters, found 40"),
        (b"a" * 80, b"", "expected y of 1 characters, found 0"),
        (b"a" * 79 + b"\xff", b"b", "expected x as UTF-8"),
    ],
)
def test_windows_of_another_length_are_refused(x, y, says):
    with pytest.raises(StoreError, match=says):
        list(next_character(in_memory([("a", {"x": [x], "y": [y]})])))


def test_only_the_next_character_counts_in_loss_and_accuracy(tmp_path):
    task = tasks.load("shakespeare", store=import_store("leaf", two_roles(tmp_path / "a.json"), tmp_path / "s"))
    params = task.init(jax.random.key(0))
    batch = task.eval_view(gather(dict(task.store.features), {}, np.arange(6)))
    outcomes = task.outcomes(params, batch)
    tokens = np.asarray(batch["tokens"])
    logits = np.asarray(shakespeare_model().apply(params, jnp.asarray(tokens[:, :-1])), np.float64)[:, -1]
    expected = np.log(np.exp(logits).sum(-1)) - logits[np.arange(6), tokens[:, -1]]
    np.testing.assert_allclose(outcomes.loss, expected, rtol=1e-5)
    np.testing.assert_array_equal(outcomes.answers, 1)
    np.testing.assert_array_equal(outcomes.correct, logits.argmax(-1) == tokens[:, -1])
    np.testing.assert_allclose(task.loss(params, batch), expected.mean(), rtol=1e-5)


def test_a_prepared_store_stays_one_of_windows(tmp_path):
    store = import_store("leaf", two_roles(tmp_path / "a.json"), tmp_path / "s")
    task = tasks.load("shakespeare", store=store)
    again = tasks.load("shakespeare", store=task.store)
    assert again.store is task.store
    params = jax.eval_shape(again.init, jax.random.key(0))
    batch = again.eval_view({"tokens": np.ones((2, 81), np.uint8)})
    assert jax.eval_shape(again.outcomes, params, batch).answers.shape == (2,)
    with pytest.raises(ValueError, match=r"positions must be 'tokens' for LEAF's windows, .* got 'all'"):
        tasks.load("shakespeare", store=task.store, positions="all")


def test_a_file_of_leaf_trains(lur, tmp_path):
    status, out, _ = lur("data", "import", "leaf", two_roles(tmp_path / "a.json"), "leaf.store")
    assert (status, out) == (0, "leaf.store: 2 clients, 6 examples\n")
    options = ["--rounds", 1, "--clients-per-round", 2, "--batch-size", 3, "--theta", "1:1"]
    status, out, err = lur("train", "shakespeare", "--store", "leaf.store", *options, "--run-dir", "run", "--quiet")
    assert err == ""
    assert (status, out) == (0, "")
    [evaluation] = [json.loads(line) for line in (tmp_path / "run" / "evaluation.jsonl").read_text().splitlines()]
    assert np.isfinite(evaluation["f"])
    assert 0 <= evaluation["accuracy"] <= 1
