"""Speeches of roles, a stand-in for Shakespeare: one invented language, spoken in a dialect per role.

All roles share a lexicon (words by part of speech, with Zipf frequencies), a grammar (which part of speech
follows which), punctuation, capitals and lines. A role has favourite words, names that few others say, habits
of pronunciation that change spelling, and a rhythm: verse or prose, long or short sentences, few or many
exclamations. A next-character model gains from the shared structure first, from the dialect after.
"""

from bisect import bisect
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from lur.data.generate.seeds import Features, check, heavy_tailed, mixture, stream
from lur.data.generate.vocabulary import invented, zipf

CHARACTERS = "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"  # 86
"""All characters there are, in the order of TensorFlow Federated's vocabulary."""

PARTS = ("article", "adjective", "noun", "verb", "preposition", "pronoun", "adverb", "name")
SIZES = (6, 220, 480, 320, 24, 14, 60, 120)  # words per part of speech

FOLLOWS = [
    list(accumulate(row))  # of each part, how often each of PARTS comes after it; the last ends the clause
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
"""Habits of pronunciation: what becomes what."""


class Lexicon(NamedTuple):
    """The words all roles know, by part of speech and most frequent first."""

    words: tuple[list[str], ...]
    frequencies: tuple[np.ndarray, ...]


class Dialect(NamedTuple):
    """How one role speaks."""

    words: tuple[list[str], ...]  # by part of speech, spelled as pronounced
    frequencies: tuple[list[float], ...]  # cumulative
    marks: list[float]  # cumulative, of how a sentence ends: .!?;:
    comma: float  # how often a clause goes on after a comma
    measure: float  # characters per line
    verse: bool  # lines begin with a capital and keep the measure closely
    speech: float  # sentences per speech, about


@lru_cache(maxsize=4)
def lexicon(seed: int) -> Lexicon:
    """The shared language of one seed."""
    rng = stream("dialect", seed)
    closed = [part in ("article", "preposition", "pronoun") for part in PARTS]  # short words, and few of them
    short = invented(rng, sum(size for size, few in zip(SIZES, closed, strict=True) if few), (1.0,))
    others = [word for word in invented(rng, sum(SIZES), (0.3, 0.5, 0.2)) if word not in set(short)]
    words = []
    for part, size, few in zip(PARTS, SIZES, closed, strict=True):
        source = short if few else others
        words.append([capital(word) if part == "name" else word for word in source[:size]])
        del source[:size]
    return Lexicon(tuple(words), tuple(zipf(size, exponent=1.1, shift=1.0) for size in SIZES))


def dialect(rng: np.random.Generator, shared: Lexicon, heterogeneity: float) -> Dialect:
    """A role's way of speaking: everybody's at heterogeneity 0."""
    h = heterogeneity
    favours = [np.clip(rng.standard_normal(size), -3, 3) for size in SIZES]
    habits = rng.random(len(SPELLINGS)) < min(0.09 * h, 0.5)
    z = np.clip(rng.standard_normal(3), -2, 2) * h
    prose = rng.random() < min(0.4 * h, 0.5)
    frequencies = []
    for part, (p, favour) in enumerate(zip(shared.frequencies, favours, strict=True)):
        strength = {"article": 0.3, "preposition": 0.5, "pronoun": 0.5, "name": 1.6}.get(PARTS[part], 0.9)
        tilted = p * np.exp(np.clip(strength * h * favour, -30, 30))
        frequencies.append(tilted / tilted.sum())

    def spelled(word: str) -> str:
        for (sound, letters), own in zip(SPELLINGS, habits, strict=True):
            if own:
                word = word.replace(sound, letters)
        return word

    words = tuple([spelled(word) for word in part] for part in shared.words) if habits.any() else shared.words
    common = np.array([0.62, 0.12, 0.13, 0.08, 0.05])
    own = mixture(rng, len(common), 0.8, h)
    share = h / (2 + h)
    return Dialect(
        words=words,
        frequencies=tuple(np.cumsum(p).tolist() for p in frequencies),
        marks=np.cumsum((1 - share) * common + share * own).tolist(),
        comma=float(np.clip(0.45 + 0.15 * z[0], 0.05, 0.9)),
        measure=float(np.clip(42 + 6 * z[1] + (18 if prose else 0), 24, 76)),
        verse=not prose,
        speech=float(np.clip(1.4 * np.exp(0.45 * z[2]), 0.2, 6)),
    )


def speech(rng: np.random.Generator, own: Dialect, most: int = 600) -> str:
    """One speech: sentences of clauses, broken into lines. It ends with the sentence that passes `most` characters."""

    def pick(cumulative: list[float]) -> int:
        return min(bisect(cumulative, rng.random() * cumulative[-1]), len(cumulative) - 1)

    words: list[str] = []
    length = 0
    for _ in range(1 + rng.poisson(own.speech)):
        opening = len(words)
        part = pick(OPENING)
        while part < len(PARTS):
            words.append(own.words[part][pick(own.frequencies[part])])
            length += len(words[-1]) + 1
            part = pick(FOLLOWS[part])
            if part == len(PARTS) and length < most and rng.random() < own.comma:
                words[-1] += ","
                part = pick(OPENING)
        words[opening] = capital(words[opening])
        words[-1] += ".!?;:"[pick(own.marks)]
        if length > most:
            break
    lines = [""]
    for word in words:
        if len(lines[-1]) + 1 + len(word) > own.measure:
            lines.append(capital(word) if own.verse else word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return "\n".join(lines)


def capital(word: str) -> str:
    """The word as at the beginning of a sentence."""
    return word[:1].upper() + word[1:]


def role(index: int, *, seed: int = 0, heterogeneity: float = 1.0, examples: int | None = None) -> Features:
    """The speeches of one role."""
    sizes, style, samples = stream("dialect", seed, index).spawn(3)
    n = examples or heavy_tailed(sizes, median=9, spread=1.3, least=2, most=600)
    own = dialect(style, lexicon(seed), heterogeneity)
    return {"snippets": [speech(samples, own).encode("ascii") for _ in range(n)]}


def clients(
    num_clients: int, *, seed: int = 0, heterogeneity: float = 1.0, examples: int | None = None
) -> Iterator[tuple[str, Features]]:
    """Roles, each with ``snippets``: speeches of up to some hundred characters, all among CHARACTERS.

    Args:
      num_clients: how many roles. The first ones are the same however many there are.
      seed: of everything random, the language too.
      heterogeneity: 0 if all speak alike, 1 for a dialect each, 2 for broad ones. Word preferences are lognormal
        with a scale proportional to it; spellings and rhythms change more often.
      examples: speeches per role; by default lognormal with a heavy tail, between 2 and 600, about 20 on average.
    """
    check(num_clients, seed, heterogeneity, examples=examples)
    options = {"seed": seed, "heterogeneity": heterogeneity, "examples": examples}
    return ((f"role{i:06d}", role(i, **options)) for i in range(num_clients))
