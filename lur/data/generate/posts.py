"""Questions and answers with tags, a stand-in for Stack Overflow: each user prefers some topics.

A topic has words and tags; a post has a topic, some of its tags, a title and sentences; an example is one sentence.
Words are invented and follow Zipf's law. A sentence alternates between function words, each of which prefers some
successors, and runs of content words, drawn from the topic, from the tags and from the usual successors of the previous
word. Hence next words can be predicted from previous words, and tags from words.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from lur.data.generate.seeds import Features, check_arguments, generator_for, lognormal_size, mixture_weights
from lur.data.generate.vocabulary import invented_words, zipf

WORDS = 12_000
FUNCTION = 150  # the number of function words, which belong to no topic; the first of them are MARKS
MARKS = (".", ",", "?", "'s", "-", ":")
TOPICS = 40
TAGS = 600
PER_TOPIC = TAGS // TOPICS
SIGNATURE = 8  # words that go with a tag; the first is its name
SUCCESSORS = 3  # the usual successors of a word
EPOCH, DAYS = datetime(2009, 1, 1), 9 * 365


class Language(NamedTuple):
    """The language that all users share. Tables of cumulative frequencies are flat: row k is in (k, k + 1].

    Attributes:
      words: the words as bytes objects, (WORDS,).
      tags: the tags as bytes objects, (TAGS,).
      content: the table of content words by topic, (TOPICS * content words,).
      function: the table of function words by the function word before, (FUNCTION * FUNCTION,).
      signature: the words that go with each tag, (TAGS, SIGNATURE).
      successors: the usual successors of each word, (WORDS, SUCCESSORS).
      popularity: the cumulative frequencies of a topic's tags, (PER_TOPIC,).
    """

    words: np.ndarray
    tags: np.ndarray
    content: np.ndarray
    function: np.ndarray
    signature: np.ndarray
    successors: np.ndarray
    popularity: np.ndarray


def cumulative_table(frequencies: np.ndarray) -> np.ndarray:
    """Return rows of frequencies as one increasing array, for `draw_columns`."""
    sums = np.cumsum(frequencies, axis=1)
    return (sums / sums[:, -1:] + np.arange(len(sums))[:, None]).ravel()


def draw_columns(rng: np.random.Generator, table: np.ndarray, row: np.ndarray, width: int) -> np.ndarray:
    """Return, for each entry of `row`, a column drawn from that row of a table of this width."""
    position = np.searchsorted(table, row + rng.random(len(row)), side="right")
    return np.clip(position - row * width, 0, width - 1)


@lru_cache(maxsize=2)
def language(seed: int) -> Language:
    """Return the language of a seed."""
    rng = generator_for("posts", seed)
    names = invented_words(rng, WORDS, (0.12, 0.5, 0.38))
    names.sort(key=lambda word: len(word) + 2.5 * rng.random())
    names[: len(MARKS)] = MARKS
    words = np.array([name.encode() for name in names], object)
    frequency = zipf(WORDS)[FUNCTION:]
    n = len(frequency)
    topic_of = rng.integers(TOPICS, size=n)
    content = frequency * np.where(topic_of == np.arange(TOPICS)[:, None], 2.5 * TOPICS, 1.0)
    function = zipf(FUNCTION) * np.exp(1.6 * rng.standard_normal((FUNCTION, FUNCTION)))
    function[: len(MARKS), : len(MARKS)] = 0
    signature = np.empty((TAGS, SIGNATURE), np.int64)
    successors = np.empty((WORDS, SUCCESSORS), np.int64)
    successors[:FUNCTION] = FUNCTION + rng.choice(n, size=(FUNCTION, SUCCESSORS), p=frequency / frequency.sum())
    for topic in range(TOPICS):
        members = np.flatnonzero(topic_of == topic)
        p = frequency[members] / frequency[members].sum()
        successors[FUNCTION + members] = (
            FUNCTION + members[rng.choice(len(members), size=(len(members), SUCCESSORS), p=p)]
        )
        chosen = rng.choice(members[10:], size=(PER_TOPIC, SIGNATURE), replace=False)
        signature[topic * PER_TOPIC : (topic + 1) * PER_TOPIC] = FUNCTION + chosen
    tags = words[signature[:, 0]]
    popularity = np.cumsum(zipf(PER_TOPIC, 1.0, 1.0))
    return Language(
        words,
        tags,
        cumulative_table(content),
        cumulative_table(function),
        signature,
        successors,
        popularity / popularity[-1],
    )


def sentences(
    rng: np.random.Generator, shared: Language, topic: np.ndarray, tags: np.ndarray, lengths: np.ndarray
) -> list[bytes]:
    """Return one sentence per entry of `topic`, all generated together, word by word.

    Args:
      rng: the source of randomness.
      shared: the language.
      topic: the topic of each sentence, (n,).
      tags: the tags of each sentence, (n, 5), padded with -1.
      lengths: the number of words of each sentence, (n,).
    """
    n, longest = len(topic), int(lengths.max())
    written = np.empty((n, longest), np.int64)
    word = np.zeros(n, np.int64)  # as after a full stop
    num_tags = (tags >= 0).sum(1)
    for k in range(longest):
        was_function = word < FUNCTION
        to_function = rng.random(n) < np.where(was_function, 0.35, 0.55)
        choice = rng.random(n)
        function = draw_columns(
            rng, shared.function, np.where(was_function, word, rng.integers(8, 40, size=n)), FUNCTION
        )
        content = FUNCTION + draw_columns(rng, shared.content, topic, WORDS - FUNCTION)
        tag = tags[np.arange(n), rng.integers(num_tags)]
        from_tag = shared.signature[tag, np.minimum(rng.geometric(0.35, size=n) - 1, SIGNATURE - 1)]
        successor = shared.successors[word, np.minimum(rng.geometric(0.6, size=n) - 1, SUCCESSORS - 1)]
        topical = np.where(choice < 0.2, from_tag, np.where(choice < 0.55, successor, content))
        word = np.where(to_function, function, topical)
        written[:, k] = word
    return [b" ".join(shared.words[row[:length]]) for row, length in zip(written, lengths, strict=True)]


def user(index: int, *, seed: int = 0, heterogeneity: float = 1.0, examples: int | None = None) -> Features:
    """Return the sentences of one user."""
    h = heterogeneity
    sizes, mix, style, samples = generator_for("posts", seed, index).spawn(4)
    shared = language(seed)
    n = examples or 100 + lognormal_size(sizes, median=80, spread=1.0, low=0, high=900)
    interests = mixture_weights(mix, TOPICS, 0.25, h)
    z = np.clip(style.standard_normal(2), -2, 2) * h
    median_length = 12 * np.exp(np.clip(0.2 * z[0], -0.7, 0.7))
    answer_share = 1 / (1 + np.exp(-0.4 - z[1]))
    post = np.repeat(np.arange(n), samples.geometric(0.25, size=n))[:n]
    posts = int(post[-1]) + 1
    topic = samples.choice(TOPICS, size=posts, p=interests)
    slots = np.searchsorted(shared.popularity, samples.random((posts, 5)), side="right")
    count = np.minimum(samples.geometric(0.4, size=posts), 5)
    tags = np.where(np.arange(5) < count[:, None], topic[:, None] * PER_TOPIC + slots, -1)
    for k in range(1, 5):  # a tag drawn twice counts once
        tags[(tags[:, :k] == tags[:, k : k + 1]).any(1), k] = -1
    tags = np.take_along_axis(tags, np.argsort(tags < 0, axis=1, kind="stable"), 1)
    lengths = np.clip(np.rint(median_length * np.exp(0.5 * samples.standard_normal(n))), 2, 40).astype(np.int64)
    tokens = sentences(samples, shared, topic[post], tags[post], lengths)
    titles = sentences(samples, shared, topic, tags, samples.integers(4, 11, size=posts))
    joined_tags = [b"|".join(shared.tags[row[row >= 0]]) for row in tags]
    kinds = np.where(samples.random(posts) < answer_share, b"answer", b"question").tolist()
    seconds = np.sort(samples.integers(DAYS * 86_400_000, size=posts)).tolist()
    dates = [f"{EPOCH + timedelta(milliseconds=s):%Y-%m-%d %H:%M:%S.%f}"[:-3].encode() + b" UTC" for s in seconds]
    score = np.floor(samples.exponential(3.0, size=posts) - 1).astype(np.int64)
    return {
        "creation_date": [dates[k] for k in post],
        "score": score[post],
        "tags": [joined_tags[k] for k in post],
        "title": [titles[k] for k in post],
        "tokens": tokens,
        "type": [kinds[k] for k in post],
    }


def clients(
    num_clients: int, *, seed: int = 0, heterogeneity: float = 1.0, examples: int | None = None
) -> Iterator[tuple[str, Features]]:
    """Return users with n sentences: lists of bytes ``creation_date tags title tokens type`` and ``score`` (n,), int64.

    Sentences of one post are consecutive and differ only in their tokens. Tags are joined by ``|``, tokens by spaces.

    Args:
      num_clients: the number of users. The first users do not depend on it.
      seed: the seed of the language and of the users.
      heterogeneity: 0 for users equally interested in all topics, 1 for Dirichlet(0.25) over the 40 topics, h for
        Dirichlet(0.25 / h). The length of sentences and the share of answers spread in proportion to it.
      examples: the number of sentences per user; by default 100 plus a lognormal number with median 80, at most 900.
    """
    check_arguments(num_clients, seed, heterogeneity, examples=examples)
    options = {"seed": seed, "heterogeneity": heterogeneity, "examples": examples}
    return ((f"user{i:06d}", user(i, **options)) for i in range(num_clients))
