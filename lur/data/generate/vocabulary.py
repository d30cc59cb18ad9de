"""Invented words, pronounceable and all different, and word frequencies."""

from collections.abc import Mapping

import numpy as np

ONSETS = {"t": 5, "s": 5, "m": 4, "n": 4, "l": 4, "r": 4, "d": 4, "b": 3, "h": 3, "w": 3, "f": 3, "p": 3, "th": 3}
ONSETS |= {"c": 2, "g": 2, "sh": 2, "st": 2, "tr": 2, "k": 1, "br": 1, "gr": 1, "pl": 1, "y": 1, "v": 1, "j": 1}
ONSETS |= {"ch": 1, "qu": 0.5, "fl": 0.5, "str": 0.5, "z": 0.3}
VOWELS = {"e": 6, "a": 5, "o": 5, "i": 4, "u": 3, "ea": 1, "ou": 1, "ai": 1, "ee": 1, "oo": 1}
CODAS = {"": 5, "n": 3, "r": 3, "s": 3, "t": 3, "l": 2, "d": 2, "m": 2, "nd": 1, "st": 1, "ll": 1, "ng": 1, "ck": 1}
CODAS |= {"nt": 1, "th": 1, "y": 1, "x": 0.2}


def draw_sounds(rng: np.random.Generator, table: Mapping[str, float], *shape: int) -> np.ndarray:
    """Return an array of sounds drawn from a table of weights."""
    weights = np.array([*table.values()])
    return np.array([*table], object)[rng.choice(len(table), size=shape, p=weights / weights.sum())]


def invented_words(rng: np.random.Generator, n: int, lengths: tuple[float, ...] = (0.25, 0.5, 0.25)) -> list[str]:
    """Return n different words of at least two letters.

    Args:
      rng: the source of randomness.
      n: the number of words.
      lengths: the shares of words with 1, 2, ... syllables.
    """
    words: dict[str, None] = {}
    while len(words) < n:
        counts = rng.choice(len(lengths), size=n, p=np.array(lengths) / sum(lengths)) + 1
        syllables = draw_sounds(rng, ONSETS, n, len(lengths)) + draw_sounds(rng, VOWELS, n, len(lengths))
        codas = draw_sounds(rng, CODAS, n)
        starts_with_vowel = rng.random(n) < 0.15
        for row, count, coda, is_vocalic in zip(syllables, counts, codas, starts_with_vowel, strict=True):
            word = "".join(row[:count]) + coda
            word = word.lstrip("bcdfghjklmnpqrstvwxyz") if is_vocalic else word
            if len(word) > 1:
                words.setdefault(word)
    return list(words)[:n]


def zipf(n: int, exponent: float = 1.0, shift: float = 2.7) -> np.ndarray:
    """Return the frequencies of the Zipf-Mandelbrot law by rank, (rank + shift)^(-exponent), which sum to 1."""
    weights = (np.arange(1, n + 1) + shift) ** -exponent
    return weights / weights.sum()
