"""Questions and answers with tags, a stand-in for Stack Overflow: users who write about some topics more than others.

A topic has words and tags of its own; a post has a topic, some of its tags, a title and sentences; an example is
one sentence. Words are invented and follow Zipf's law. A sentence alternates between function words, of which
each prefers some successors, and runs of content words from the topic, from the tags and from what usually comes
after the previous word: next words can be predicted from previous ones, tags from words.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from lur.data.generate.seeds import Features, check, heavy_tailed, mixture, stream
from lur.data.generate.vocabulary import invented, zipf

WORDS = 12_000
FUNCTION = 150  # of the words, those that belong to no topic; the marks are the first of them
MARKS = (".", ",", "?", "'s", "-", ":")
TOPICS = 40
TAGS = 600
PER_TOPIC = TAGS // TOPICS
SIGNATURE = 8  # words that go with a tag, its name the first
PARTNERS = 3  # words that often come next after a word
EPOCH, DAYS = datetime(2009, 1, 1), 9 * 365


class Language(NamedTuple):
    """What all users share; tables of cumulative frequencies are flat, row k lying in (k, k + 1]."""

    words: np.ndarray  # bytes objects, (WORDS,)
    tags: np.ndarray  # bytes objects, (TAGS,)
    content: np.ndarray  # (TOPICS * content words,)
    function: np.ndarray  # after each function word: (FUNCTION * FUNCTION,)
    signature: np.ndarray  # (TAGS, SIGNATURE), words of a tag
    partners: np.ndarray  # (WORDS, PARTNERS)
    popularity: np.ndarray  # of a topic's tags, (PER_TOPIC,)


def rows(frequencies: np.ndarray) -> np.ndarray:
    """Rows of frequencies as one increasing array, for `drawn`."""
    sums = np.cumsum(frequencies, axis=1)
    return (sums / sums[:, -1:] + np.arange(len(sums))[:, None]).ravel()


def drawn(rng: np.random.Generator, table: np.ndarray, row: np.ndarray, width: int) -> np.ndarray:
    """For each entry of `row` a column drawn from that row of a flat table."""
    place = np.searchsorted(table, row + rng.random(len(row)), side="right")
    return np.clip(place - row * width, 0, width - 1)


@lru_cache(maxsize=2)
def language(seed: int) -> Language:
    """Words, topics, tags and what follows what, of one seed."""
    rng = stream("posts", seed)
    names = invented(rng, WORDS, (0.12, 0.5, 0.38))
    names.sort(key=lambda word: len(word) + 2.5 * rng.random())
    names[: len(MARKS)] = MARKS
    words = np.array([name.encode() for name in names], object)
    frequency = zipf(WORDS)[FUNCTION:]
    n = len(frequency)
    home = rng.integers(TOPICS, size=n)
    content = frequency * np.where(home == np.arange(TOPICS)[:, None], 2.5 * TOPICS, 1.0)
    function = zipf(FUNCTION) * np.exp(1.6 * rng.standard_normal((FUNCTION, FUNCTION)))
    function[: len(MARKS), : len(MARKS)] = 0
    signature = np.empty((TAGS, SIGNATURE), np.int64)
    partners = np.empty((WORDS, PARTNERS), np.int64)
    partners[:FUNCTION] = FUNCTION + rng.choice(n, size=(FUNCTION, PARTNERS), p=frequency / frequency.sum())
    for topic in range(TOPICS):
        own = np.flatnonzero(home == topic)
        p = frequency[own] / frequency[own].sum()
        partners[FUNCTION + own] = FUNCTION + own[rng.choice(len(own), size=(len(own), PARTNERS), p=p)]
        middling = own[10:]
        chosen = rng.choice(middling, size=(PER_TOPIC, SIGNATURE), replace=False)
        signature[topic * PER_TOPIC : (topic + 1) * PER_TOPIC] = FUNCTION + chosen
    tags = words[signature[:, 0]]
    popularity = np.cumsum(zipf(PER_TOPIC, 1.0, 1.0))
    return Language(words, tags, rows(content), rows(function), signature, partners, popularity / popularity[-1])


def sentences(
    rng: np.random.Generator, shared: Language, topic: np.ndarray, tags: np.ndarray, lengths: np.ndarray
) -> list[bytes]:
    """One sentence per topic, all written together, word after word; `tags` are (n, some), -1 where there is none."""
    n, longest = len(topic), int(lengths.max())
    written = np.empty((n, longest), np.int64)
    word = np.zeros(n, np.int64)  # as after a full stop
    numbers = (tags >= 0).sum(1)
    for k in range(longest):
        was_function = word < FUNCTION
        to_function = rng.random(n) < np.where(was_function, 0.35, 0.55)
        choice = rng.random(n)
        function = drawn(rng, shared.function, np.where(was_function, word, rng.integers(8, 40, size=n)), FUNCTION)
        content = FUNCTION + drawn(rng, shared.content, topic, WORDS - FUNCTION)
        tag = tags[np.arange(n), rng.integers(numbers)]
        signed = shared.signature[tag, np.minimum(rng.geometric(0.35, size=n) - 1, SIGNATURE - 1)]
        partner = shared.partners[word, np.minimum(rng.geometric(0.6, size=n) - 1, PARTNERS - 1)]
        topical = np.where(choice < 0.2, signed, np.where(choice < 0.55, partner, content))
        word = np.where(to_function, function, topical)
        written[:, k] = word
    return [b" ".join(shared.words[row[:length]]) for row, length in zip(written, lengths, strict=True)]


def user(index: int, *, seed: int = 0, heterogeneity: float = 1.0, examples: int | None = None) -> Features:
    """The sentences of one user."""
    h = heterogeneity
    sizes, mix, style, samples = stream("posts", seed, index).spawn(4)
    shared = language(seed)
    n = examples or 100 + heavy_tailed(sizes, median=80, spread=1.0, least=0, most=900)
    interests = mixture(mix, TOPICS, 0.25, h)
    z = np.clip(style.standard_normal(2), -2, 2) * h
    typical = 12 * np.exp(np.clip(0.2 * z[0], -0.7, 0.7))
    answers = 1 / (1 + np.exp(-0.4 - z[1]))
    post = np.repeat(np.arange(n), samples.geometric(0.25, size=n))[:n]
    posts = int(post[-1]) + 1
    topic = samples.choice(TOPICS, size=posts, p=interests)
    slots = np.searchsorted(shared.popularity, samples.random((posts, 5)), side="right")
    count = np.minimum(samples.geometric(0.4, size=posts), 5)
    tags = np.where(np.arange(5) < count[:, None], topic[:, None] * PER_TOPIC + slots, -1)
    for k in range(1, 5):  # a tag drawn twice counts once
        tags[(tags[:, :k] == tags[:, k : k + 1]).any(1), k] = -1
    tags = np.take_along_axis(tags, np.argsort(tags < 0, axis=1, kind="stable"), 1)
    lengths = np.clip(np.rint(typical * np.exp(0.5 * samples.standard_normal(n))), 2, 40).astype(np.int64)
    tokens = sentences(samples, shared, topic[post], tags[post], lengths)
    titles = sentences(samples, shared, topic, tags, samples.integers(4, 11, size=posts))
    joined = [b"|".join(shared.tags[row[row >= 0]]) for row in tags]
    kinds = np.where(samples.random(posts) < answers, b"answer", b"question").tolist()
    seconds = np.sort(samples.integers(DAYS * 86_400_000, size=posts)).tolist()
    dates = [f"{EPOCH + timedelta(milliseconds=s):%Y-%m-%d %H:%M:%S.%f}"[:-3].encode() + b" UTC" for s in seconds]
    score = np.floor(samples.exponential(3.0, size=posts) - 1).astype(np.int64)
    return {
        "creation_date": [dates[k] for k in post],
        "score": score[post],
        "tags": [joined[k] for k in post],
        "title": [titles[k] for k in post],
        "tokens": tokens,
        "type": [kinds[k] for k in post],
    }


def clients(
    num_clients: int, *, seed: int = 0, heterogeneity: float = 1.0, examples: int | None = None
) -> Iterator[tuple[str, Features]]:
    """Users, each with n sentences: lists of bytes ``creation_date tags title tokens type`` and ``score`` (n,), int64.

    Sentences of one post follow each other and share all but their tokens. Tags are joined by ``|``, tokens by spaces.

    Args:
      num_clients: how many users. The first ones are the same however many there are.
      seed: of everything random, the language too.
      heterogeneity: 0 for users interested in all topics alike, 1 for Dirichlet(0.25) over the 40 topics, h for
        Dirichlet(0.25 / h). The length of sentences and the share of answers spread in proportion to it.
      examples: sentences per user; by default 100 and a lognormal number more, with median 80 and at most 900.
    """
    check(num_clients, seed, heterogeneity, examples=examples)
    options = {"seed": seed, "heterogeneity": heterogeneity, "examples": examples}
    return ((f"user{i:06d}", user(i, **options)) for i in range(num_clients))
