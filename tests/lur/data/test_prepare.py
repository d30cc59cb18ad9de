"""Preprocessing against cases worked out by hand and against slow oracles in pure Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lur.data import prepare
from lur.data.characters import ALPHABETS, CHARACTERS
from lur.data.ragged import Ragged
from lur.data.store import StoreError
from lur.data.writer import in_memory, write_store

SPEECHES = st.lists(st.lists(st.binary(max_size=30), min_size=1, max_size=5), min_size=1, max_size=4)
KNOWN_SPEECHES = st.lists(st.binary(max_size=40).map(lambda b: bytes(CHARACTERS[i % 86] for i in b)), min_size=1)
WORD = st.sampled_from([b"a", b"b", b"c", b"dd", b"zz", b"yy", b""])
SENTENCE = st.lists(WORD, max_size=8).map(b" ".join)
TAGS = st.lists(st.sampled_from([b"jax", b"c++", b"git", b"odd"]), max_size=4).map(b"|".join)
POST = st.tuples(SENTENCE, SENTENCE, TAGS)
POSTS = st.lists(st.lists(POST, min_size=1, max_size=5), min_size=1, max_size=4)
FEW = settings(max_examples=60, deadline=None)


def speeches(*clients):
    return in_memory((f"c{i}", {"snippets": list(rows)}) for i, rows in enumerate(clients))


def posts(*clients):
    """Clients of (tokens, title, tags)."""
    names = ("tokens", "title", "tags")
    return in_memory(
        (f"c{i}", dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))) for i, rows in enumerate(clients)
    )


def rows_of(ragged: Ragged) -> list[list]:
    return [ragged.row(i).tolist() for i in range(ragged.size)]


# Characters


def test_alphabets_are_those_of_tff_and_fedjax():
    assert len(CHARACTERS) == len(set(CHARACTERS)) == 86
    table = ALPHABETS["tff"].table()
    assert [table[c] for c in b"dhl \n\r~"] == [1, 2, 3, 14, 63, 86, 87]
    assert [ALPHABETS["fedjax"].table()[c] for c in b"dh\r~"] == [3, 4, 88, 89]


def test_a_speech_is_delimited_padded_and_cut():
    [(id, examples)] = prepare.shakespeare(speeches([b"hd~", b""]), length=3)
    assert id == "c0"
    assert examples["tokens"].dtype == np.uint8
    assert examples["tokens"].tolist() == [[88, 2, 1, 87], [89, 0, 0, 0], [88, 89, 0, 0]]


def test_a_speech_that_fills_its_rows_is_not_padded():
    [(_, examples)] = prepare.shakespeare(speeches([b"d" * 79, b"d" * 80]))
    assert examples["tokens"].shape == (3, 81)
    assert examples["tokens"][0].tolist() == [88] + [1] * 79 + [89]
    assert examples["tokens"][2].tolist() == [89] + [0] * 80


def test_fedjax_joins_speeches_and_predicts_every_character():
    [(_, examples)] = prepare.shakespeare(speeches([b"held", b"the"]), convention="fedjax", length=4)
    bos, eos, d, h, l, t, e = 1, 2, 3, 4, 5, 7, 67
    assert examples["tokens"].tolist() == [[bos, h, e, l, d], [d, eos, bos, t, h], [h, e, eos, 0, 0]]


def characters_oracle(clients, convention, length):
    ids = {"tff": (1, 87, 88, 89), "fedjax": (3, 89, 1, 2)}[convention]
    first, oov, bos, eos = ids
    for rows in clients:
        streams = [[bos] + [CHARACTERS.index(c) + first if c in CHARACTERS else oov for c in s] + [eos] for s in rows]
        step = length + 1
        if convention == "fedjax":
            streams, step = [[id for stream in streams for id in stream]], length
        out = []
        for stream in streams:
            start = 0
            while start < len(stream) - (step == length):
                piece = stream[start : start + length + 1]
                out.append(piece + [0] * (length + 1 - len(piece)))
                start += step
        yield out


@FEW
@given(clients=SPEECHES, convention=st.sampled_from(["tff", "fedjax"]), length=st.integers(1, 12))
def test_characters_against_the_oracle(clients, convention, length):
    found = prepare.shakespeare(speeches(*clients), convention=convention, length=length)
    assert [e["tokens"].tolist() for _, e in found] == list(characters_oracle(clients, convention, length))


@FEW
@given(rows=KNOWN_SPEECHES, length=st.integers(1, 90))
def test_decoding_inverts_encoding(rows, length):
    [(_, tff)] = prepare.shakespeare(speeches(rows), length=length)
    assert prepare.characters(tff["tokens"]) == b"".join(rows)
    assert tff["tokens"].shape == (sum(-(-(len(row) + 2) // (length + 1)) for row in rows), length + 1)
    [(_, fedjax)] = prepare.shakespeare(speeches(rows), convention="fedjax", length=length)
    stream = np.concatenate([fedjax["tokens"][:1, 0], fedjax["tokens"][:, 1:].ravel()])
    assert prepare.characters(stream, convention="fedjax") == b"".join(rows)
    assert (fedjax["tokens"][1:, 0] == fedjax["tokens"][:-1, -1]).all()


def test_decoding_marks_unknown_characters():
    [(_, examples)] = prepare.shakespeare(speeches([b"a~b"]))
    assert prepare.characters(examples["tokens"]) == b"a?b"


# Words


def test_next_word_ids_of_a_vocabulary_of_ten_thousand():
    vocabulary = [b"w%d" % i for i in range(10_000)]
    twenty = b" ".join([b"w0"] * 20)
    store = posts([(b"w0 w9999 none", b"", b""), (twenty, b"", b""), (twenty + b" w1", b"", b"")])
    [(_, examples)] = prepare.next_word(store, vocabulary)
    tokens = examples["tokens"]
    assert tokens.dtype == np.uint16
    assert tokens.shape == (3, 21)
    assert tokens[0].tolist() == [10002, 1, 10000, 10001, 10003] + [0] * 16
    assert tokens[1].tolist() == tokens[2].tolist() == [10002] + [1] * 20


def test_next_word_ends_a_sentence_of_nineteen_words():
    [(_, examples)] = prepare.next_word(posts([(b" ".join([b"a"] * 19), b"", b"")]), [b"a"])
    assert examples["tokens"].tolist() == [[3] + [1] * 19 + [4]]


def test_next_word_keeps_the_first_examples():
    store = posts([(b"a" if i % 2 else b"b", b"", b"") for i in range(130)])
    sizes = {limit: len(next(prepare.next_word(store, [b"a"], max_examples=limit))[1]["tokens"]) for limit in (3, None)}
    assert sizes == {3: 3, None: 130}
    [(_, examples)] = prepare.next_word(store, [b"a", b"b"])
    assert examples["tokens"][:, 1].tolist() == [2, 1] * 64


def test_a_large_vocabulary_takes_a_wider_dtype():
    vocabulary = [b"%d" % i for i in range(65_533)]
    [(_, examples)] = prepare.next_word(posts([(b"65532 x", b"", b"")]), vocabulary, length=3)
    assert examples["tokens"].dtype == np.uint32
    assert examples["tokens"].tolist() == [[65_535, 65_533, 65_534, 65_536]]


def next_word_oracle(clients, vocabulary, limit, length):
    V = len(vocabulary)
    for rows in clients:
        out = []
        for text, _, _ in rows[:limit]:
            words = text.split(b" ")[:length]
            ids = [vocabulary.index(w) + 1 if w in vocabulary else V + 1 for w in words]
            row = [V + 2, *ids] + ([V + 3] if len(words) < length else [])
            out.append(row + [0] * (length + 1 - len(row)))
        yield out


@FEW
@given(clients=POSTS, limit=st.none() | st.integers(1, 4), length=st.integers(1, 9))
def test_next_word_against_the_oracle(clients, limit, length):
    vocabulary = [b"c", b"a", b"dd"]
    found = list(prepare.next_word(posts(*clients), vocabulary, max_examples=limit, length=length))
    assert [e["tokens"].tolist() for _, e in found] == list(next_word_oracle(clients, vocabulary, limit, length))
    for _, examples in found:
        tokens = examples["tokens"].astype(int)
        padding = tokens == 0
        assert (np.diff(padding.astype(int), axis=1) >= 0).all()
        assert not padding[:, :2].any()
        assert ((tokens == 6).sum(axis=1) == (padding.any(axis=1) | (tokens[:, -1] == 6))).all()


# Bags of words and tags


def test_a_bag_of_words_by_hand():
    store = posts([(b"b a b none", b"a b", b"git|odd|jax"), (b"none", b"", b"odd")])
    [(_, examples)] = prepare.tags(store, [b"a", b"b"], [b"jax", b"git"])
    assert {name: f.values.dtype.name for name, f in examples.items() if isinstance(f, Ragged)} == {
        "words": "uint16",
        "weights": "float32",
        "tags": "uint16",
    }
    assert rows_of(examples["words"]) == [[0, 1], []]
    assert rows_of(examples["weights"]) == [[np.float32(0.4), np.float32(0.6)], []]
    assert rows_of(examples["tags"]) == [[0, 1], []]
    assert examples["known"].tolist() == [5, 0]
    assert examples["total"].tolist() == [6, 1]
    [(_, mean)] = prepare.tags(store, [b"a", b"b"], [b"jax", b"git"], normalise="mean")
    assert rows_of(mean["weights"]) == [[np.float32(1 / 3), np.float32(0.5)], []]


def bag_oracle(rows, vocabulary, labels, limit, normalise):
    for text, title, marks in rows[:limit]:
        words = (text + b" " + title).split()
        counts = {i: words.count(word) for i, word in enumerate(vocabulary) if word in words}
        divisor = sum(counts.values()) if normalise == "sum" else len(words)
        chosen = [i for i, tag in enumerate(labels) if tag in marks.split(b"|")]
        yield list(counts), [count / divisor for count in counts.values()], chosen, sum(counts.values()), len(words)


@FEW
@given(clients=POSTS, limit=st.none() | st.integers(1, 4), normalise=st.sampled_from(["sum", "mean"]))
def test_bags_against_the_oracle(clients, limit, normalise):
    vocabulary, labels = [b"dd", b"a", b"c"], [b"git", b"jax", b"c++"]
    found = list(prepare.tags(posts(*clients), vocabulary, labels, max_examples=limit, normalise=normalise))
    for (_, examples), rows in zip(found, clients, strict=True):
        expected = list(bag_oracle(rows, vocabulary, labels, limit, normalise))
        words, weights, tags, known, total = map(list, zip(*expected, strict=True))
        assert rows_of(examples["words"]) == words
        assert rows_of(examples["tags"]) == tags
        assert (examples["known"].tolist(), examples["total"].tolist()) == (known, total)
        for got, want in zip(rows_of(examples["weights"]), weights, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)
            if got and normalise == "sum":
                np.testing.assert_allclose(sum(got), 1, rtol=1e-6)


@FEW
@given(clients=POSTS)
def test_one_normalisation_becomes_the_other(clients):
    options = {"vocabulary": [b"a", b"b"], "tags": [b"git"]}
    both = (prepare.tags(posts(*clients), **options, normalise=normalise) for normalise in ("sum", "mean"))
    for (_, first), (_, second) in zip(*both, strict=True):
        ratio = np.repeat(first["known"] / np.maximum(first["total"], 1), np.diff(first["words"].offsets))
        np.testing.assert_allclose(first["weights"].values * ratio, second["weights"].values, rtol=1e-6)


# Vocabularies


def test_words_are_counted_once_per_client():
    store = posts([(b"b a a", b"t", b"x|y"), (b"a", b"", b"x")], [(b"b c", b"", b"x")], [(b"b", b"", b"")])
    assert prepare.count_words(store) == [(b"b", 3), (b"a", 1), (b"c", 1)]
    assert prepare.count_tags(store) == [(b"x", 2), (b"y", 1)]


@FEW
@given(clients=POSTS)
def test_counts_against_the_oracle(clients):
    users = {
        word: sum(any(word in t.split() for t, _, _ in rows) for rows in clients) for word in b"a b c dd zz yy".split()
    }
    expected = sorted(((w, n) for w, n in users.items() if n), key=lambda item: (-item[1], item[0]))
    assert prepare.count_words(posts(*clients)) == expected
    assert prepare.count_words(posts(*clients[::-1])) == expected


# Cleaning


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, World!", b"hello , world !"),
        ("don't re-use  it\n\tnow", b"don't re-use it now"),
        ("a &lt; b &amp;&amp; c", b"a < b & & c"),
        ("caf\u00e9 \u2014 na\u00efve", b"caf nave"),
        ("see https://jax.dev/a_b?c=d.", b"see <URL> ."),
        ("(www.example.org) HTTP://X.Y", b"( <URL> ) <URL>"),
        ("x_1 = y[0]", b"x _ 1 = y [ 0 ]"),
        (b"bytes \xff too", b"bytes too"),
        ("<URL>", b"<URL>"),
        ("", b""),
    ],
)
def test_cleaning_by_hand(text, expected):
    assert prepare.clean_text(text) == expected


@FEW
@given(st.text(st.characters(exclude_characters="&"), max_size=60))
def test_cleaning_is_idempotent(text):
    once = prepare.clean_text(text)
    assert prepare.clean_text(once) == once
    assert once.isascii()
    assert once == b" ".join(once.split())


@FEW
@given(st.lists(st.sampled_from(["Ab", "x", " ", "\n", ",", "-", "'", "(", "\u00e9", "9", "_"]), max_size=20))
def test_cleaning_against_the_oracle(pieces):
    out = ""
    for c in "".join(pieces):
        if c in ",(_":
            out += f" {c} "
        elif ord(c) < 128:
            out += c.lower()
    assert prepare.clean_text("".join(pieces)) == " ".join(out.split()).encode()


# Images


def images(name, shape, dtype, **labels):
    return in_memory([("c0", {name: np.ones((2, *shape), dtype), **{k: np.array(v) for k, v in labels.items()}})])


def test_images_are_unchanged_and_labels_become_int32():
    [(_, emnist)] = prepare.emnist(images("pixels", (28, 28), np.float32, label=[0, 61]))
    assert (emnist["pixels"].dtype, emnist["label"].dtype, emnist["label"].tolist()) == (np.float32, np.int32, [0, 61])
    [(_, cifar)] = prepare.cifar100(images("image", (32, 32, 3), np.uint8, label=[0, 99], coarse_label=[19, 3]))
    assert sorted(cifar) == ["coarse_label", "image", "label"]
    assert cifar["image"].dtype == np.uint8


def test_invalid_images_and_labels_are_refused():
    with pytest.raises(StoreError, match=r"client 'c0': expected label in 0..61, found 0..62"):
        list(prepare.emnist(images("pixels", (28, 28), np.float32, label=[0, 62])))
    with pytest.raises(StoreError, match=r"in 0..9, found 0..10"):
        list(prepare.emnist(images("pixels", (28, 28), np.uint8, label=[0, 10]), classes=10))
    with pytest.raises(StoreError, match="expected pixels"):
        prepare.emnist(images("pixels", (28, 27), np.float32, label=[0, 1]))
    with pytest.raises(StoreError, match="expected image uint8"):
        prepare.cifar100(images("image", (32, 32, 3), np.float32, label=[0, 1]))
    with pytest.raises(StoreError, match="expected label"):
        prepare.cifar100(images("image", (32, 32, 3), np.uint8))


# Arguments and streams


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: prepare.shakespeare(s, convention="leaf"), "convention must be one of tff, fedjax, got 'leaf'"),
        (lambda s: prepare.shakespeare(s, length=0), "length must be an integer >= 1, got 0"),
        (lambda s: prepare.next_word(s, []), "vocabulary must hold each word once, got 0"),
        (lambda s: prepare.next_word(s, [b"a", b"a"]), "got 2 words, 1 distinct"),
        (lambda s: prepare.next_word(s, ["a"]), "vocabulary must be a list of bytes"),
        (lambda s: prepare.next_word(s, b"ab"), "vocabulary must be a list of bytes"),
        (lambda s: prepare.next_word(s, [b"a"], max_examples=0), "max_examples must be an integer >= 1, got 0"),
        (lambda s: prepare.tags(s, [b"a"], ["b"]), "tags must be a list of bytes"),
        (lambda s: prepare.tags(s, [b"a"], [b"b"], normalise="max"), "normalise must be 'sum' or 'mean', got 'max'"),
    ],
)
def test_invalid_arguments_are_refused_at_the_call(call, message):
    store = in_memory([("c", {name: [b"a"] for name in ("snippets", "tokens", "title", "tags")})])
    with pytest.raises(ValueError, match=message):
        call(store)


def test_missing_features_are_refused_at_the_call():
    with pytest.raises(StoreError, match="expected the text snippets, found tokens ragged uint8"):
        prepare.shakespeare(posts([(b"", b"", b"")]))
    with pytest.raises(StoreError, match="expected the text tokens"):
        prepare.count_words(speeches([b""]))


def test_prepared_clients_can_be_written(tmp_path):
    raw = write_store(tmp_path / "raw", posts([(b"a b", b"t", b"git")], [(b"none", b"", b"")]).items(), {})
    words = write_store(tmp_path / "words", prepare.next_word(raw, [b"a"]), {})
    bags = write_store(tmp_path / "bags", prepare.tags(raw, [b"a"], [b"git"]), {})
    assert (words.clients, words.examples, words.features["tokens"].shape) == (2, 2, (2, 21))
    assert rows_of(bags.features["words"]) == [[0], []]
    play = write_store(tmp_path / "play", prepare.shakespeare(speeches([b"a"], [b"b", b"c"])), {})
    assert play.offsets.tolist() == [0, 1, 3]
