"""Speeches of roles, a stand-in for Shakespeare: one invented language, with a dialect per role.

All roles share a lexicon (words by part of speech, with Zipf frequencies), a grammar (which part of speech follows
which), punctuation, capitals and line breaks. A role has favourite words, names that few others use, pronunciations
that change the spelling, and a rhythm: verse or prose, long or short sentences, few or many exclamations. A
next-character model first learns the shared structure, then the dialect.
"""

from bisect import bisect
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from lur.data.generate.seeds import Features, check_arguments, generator_for, lognormal_size, mixture_weights
from lur.data.generate.vocabulary import invented_words, zipf

CHARACTERS = "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"  # 86
"""All characters, in the order of TensorFlow Federated's vocabulary."""

PARTS = ("article", "adjective", "noun", "verb", "preposition", "pronoun", "adverb", "name")
SIZES = (6, 220, 480, 320, 24, 14, 60, 120)  # words per part of speech

FOLLOWS = [
    list(accumulate(row))  # for each part of speech, the frequency of each successor; the last one ends the clause
    for row in (
        (0.00, 0.38, 0.60, 0.00, 0.00, 0.00, 0.00, 0.02, 0.00),
        (0.00, 0.12, 0.86, 0.00, 0.00, 0.00, 0.00, 0.02, 0.00),
        (0.00, 0.00, 0.00, 0.42, 0.22, 0.00, 0.06, 0.00, 0.30),
        (0.40, 0.06, 0.06, 0.00, 0.16, 0.12, 0.08, 0.04, 0.08),
        (0.56, 0.10, 0.12, 0.00, 0.00, 0.12, 0.00, 0.10, 0.00),
        (0.00, 0.00, 0.16, 0.66, 0.04, 0.00, 0.06, 0.00, 0.08),
        (0.14, 0.22, 0.00, 0.30, 0.10, 0.04, 0.00, 0.00, 0.20),
        (0.00, 0.00, 0.00, 0.58, 0.08, 0.00, 0.06, 0.00, 0.28),
    )
]
OPENING = list(accumulate((0.30, 0.04, 0.06, 0.10, 0.08, 0.26, 0.06, 0.10)))

SPELLINGS = (("th", "d"), ("v", "w"), ("ing", "in'"), ("ee", "ea"), ("ck", "k"), ("st", "sht"), ("oo", "u"))
SPELLINGS += (("ai", "ay"), ("ou", "ow"), ("f", "v"), ("qu", "kw"), ("ch", "k"), ("er", "ar"), ("nd", "n"), ("ll", "l"))
"""Pronunciations: each sound and its other spelling."""


class Lexicon(NamedTuple):
    """The words that all roles know.

    Attributes:
      words: the words of each part of speech, most frequent first.
      frequencies: their frequencies.
    """

    words: tuple[list[str], ...]
    frequencies: tuple[np.ndarray, ...]


class Dialect(NamedTuple):
    """The language of one role.

    Attributes:
      words: the words of each part of speech, spelled as the role pronounces them.
      frequencies: their cumulative frequencies.
      sentence_ends: the cumulative frequencies of the marks .!?;: at the end of a sentence.
      comma: the probability that another clause follows, after a comma.
      line_length: the number of characters per line.
      is_verse: whether lines begin with a capital.
      sentences: the mean number of sentences per speech beyond the first.
    """

    words: tuple[list[str], ...]
    frequencies: tuple[list[float], ...]
    sentence_ends: list[float]
    comma: float
    line_length: float
    is_verse: bool
    sentences: float


@lru_cache(maxsize=4)
def lexicon(seed: int) -> Lexicon:
    """Return the shared language of a seed."""
    rng = generator_for("dialect", seed)
    is_closed = [part in ("article", "preposition", "pronoun") for part in PARTS]  # few words, and short ones
    short = invented_words(rng, sum(size for size, closed in zip(SIZES, is_closed, strict=True) if closed), (1.0,))
    others = [word for word in invented_words(rng, sum(SIZES), (0.3, 0.5, 0.2)) if word not in set(short)]
    words = []
    for part, size, closed in zip(PARTS, SIZES, is_closed, strict=True):
        source = short if closed else others
        words.append([capitalised(word) if part == "name" else word for word in source[:size]])
        del source[:size]
    return Lexicon(tuple(words), tuple(zipf(size, exponent=1.1, shift=1.0) for size in SIZES))


def random_dialect(rng: np.random.Generator, shared: Lexicon, heterogeneity: float) -> Dialect:
    """Return the dialect of a role; all dialects are the same at heterogeneity 0."""
    h = heterogeneity
    preferences = [np.clip(rng.standard_normal(size), -3, 3) for size in SIZES]
    has_habit = rng.random(len(SPELLINGS)) < min(0.09 * h, 0.5)
    z = np.clip(rng.standard_normal(3), -2, 2) * h
    is_prose = rng.random() < min(0.4 * h, 0.5)
    frequencies = []
    for part, (p, preference) in enumerate(zip(shared.frequencies, preferences, strict=True)):
        strength = {"article": 0.3, "preposition": 0.5, "pronoun": 0.5, "name": 1.6}.get(PARTS[part], 0.9)
        tilted = p * np.exp(np.clip(strength * h * preference, -30, 30))
        frequencies.append(tilted / tilted.sum())

    def spelled(word: str) -> str:
        for (sound, letters), applies in zip(SPELLINGS, has_habit, strict=True):
            if applies:
                word = word.replace(sound, letters)
        return word

    words = tuple([spelled(word) for word in part] for part in shared.words) if has_habit.any() else shared.words
    common_ends = np.array([0.62, 0.12, 0.13, 0.08, 0.05])
    role_ends = mixture_weights(rng, len(common_ends), 0.8, h)
    share = h / (2 + h)
    return Dialect(
        words=words,
        frequencies=tuple(np.cumsum(p).tolist() for p in frequencies),
        sentence_ends=np.cumsum((1 - share) * common_ends + share * role_ends).tolist(),
        comma=float(np.clip(0.45 + 0.15 * z[0], 0.05, 0.9)),
        line_length=float(np.clip(42 + 6 * z[1] + (18 if is_prose else 0), 24, 76)),
        is_verse=not is_prose,
        sentences=float(np.clip(1.4 * np.exp(0.45 * z[2]), 0.2, 6)),
    )


def speech(rng: np.random.Generator, dialect: Dialect, longest: int = 600) -> str:
    """Return one speech: sentences of clauses, broken into lines.

    It ends at the latest with the sentence that exceeds `longest` characters.
    """

    def pick(cumulative: list[float]) -> int:
        return min(bisect(cumulative, rng.random() * cumulative[-1]), len(cumulative) - 1)

    words: list[str] = []
    length = 0
    for _ in range(1 + rng.poisson(dialect.sentences)):
        opening = len(words)
        part = pick(OPENING)
        while part < len(PARTS):
            words.append(dialect.words[part][pick(dialect.frequencies[part])])
            length += len(words[-1]) + 1
            part = pick(FOLLOWS[part])
            if part == len(PARTS) and length < longest and rng.random() < dialect.comma:
                words[-1] += ","
                part = pick(OPENING)
        words[opening] = capitalised(words[opening])
        words[-1] += ".!?;:"[pick(dialect.sentence_ends)]
        if length > longest:
            break
    lines = [""]
    for word in words:
        if len(lines[-1]) + 1 + len(word) > dialect.line_length:
            lines.append(capitalised(word) if dialect.is_verse else word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return "\n".join(lines)


def capitalised(word: str) -> str:
    """Return the word with a capital first letter."""
    return word[:1].upper() + word[1:]


def role(index: int, *, seed: int = 0, heterogeneity: float = 1.0, examples: int | None = None) -> Features:
    """Return the speeches of one role."""
    sizes, style, samples = generator_for("dialect", seed, index).spawn(3)
    n = examples or lognormal_size(sizes, median=9, spread=1.3, low=2, high=600)
    dialect = random_dialect(style, lexicon(seed), heterogeneity)
    return {"snippets": [speech(samples, dialect).encode("ascii") for _ in range(n)]}


def clients(
    num_clients: int, *, seed: int = 0, heterogeneity: float = 1.0, examples: int | None = None
) -> Iterator[tuple[str, Features]]:
    """Return roles, each with ``snippets``: speeches of up to several hundred characters, all among CHARACTERS.

    Args:
      num_clients: the number of roles. The first roles do not depend on it.
      seed: the seed of the language and of the roles.
      heterogeneity: 0 if all roles speak alike, 1 for dialects, 2 for broad dialects. Word preferences are lognormal
        with a scale proportional to it; spellings and rhythms change more often as it grows.
      examples: the number of speeches per role; by default it is lognormal with a heavy tail, between 2 and 600, with
        a mean of about 20.
    """
    check_arguments(num_clients, seed, heterogeneity, examples=examples)
    options = {"seed": seed, "heterogeneity": heterogeneity, "examples": examples}
    return ((f"role{i:06d}", role(i, **options)) for i in range(num_clients))
