"""Preparation for next-word and tag prediction: rows of word ids, bags of words, vocabularies, cleaning of text."""

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Literal

import numpy as np
from jaxtyping import Int, UInt

from lur.data.ragged import Ragged
from lur.data.requirements import Clients, check_limit, check_positive, check_text, first_texts
from lur.data.store import Feature, Store

PAD = 0
URL = b"<URL>"


def next_word(
    store: Store, vocabulary: Sequence[bytes], *, max_examples: int | None = 128, length: int = 20
) -> Clients:
    """Return sentences as rows of ``length + 1`` word ids: the input is ``row[:-1]``, the target ``row[1:]``.

    With V words the ids are 1, ..., V in the order of the vocabulary, OOV V + 1, BOS V + 2, EOS V + 3, PAD 0. A row is
    [BOS], the first `length` words and, if the sentence has fewer, [EOS].

    Args:
      store: clients with the text feature ``tokens``.
      vocabulary: the words.
      max_examples: the number of sentences that a client keeps, its first ones; None for all.
      length: the length of an input.

    Returns:
      An iterator of (client id, examples) with the feature ``tokens`` of shape (n, length + 1).
    """
    V = len(vocabulary)
    oov, bos, eos = V + 1, V + 2, V + 3
    table = WordIds(vocabulary, first=1, missing=oov)
    dtype = smallest_dtype(eos)
    check_positive("length", length)
    check_limit(max_examples)
    check_text(store, "tokens")

    def rows(column: Ragged) -> UInt[np.ndarray, "n length+1"]:
        sentences = [text.split(b" ")[:length] for text in column.texts()]
        ids, owner, lengths = table.flat_ids(sentences)
        tokens = np.full((len(sentences), length + 1), PAD, dtype)
        tokens[:, 0] = bos
        starts = np.cumsum(lengths) - lengths
        tokens[owner, 1 + np.arange(len(ids)) - starts[owner]] = ids
        short = np.flatnonzero(lengths < length)
        tokens[short, 1 + lengths[short]] = eos
        return tokens

    return ((id, {"tokens": rows(first_texts(examples, "tokens", max_examples))}) for id, examples in store.items())


def tags(
    store: Store,
    vocabulary: Sequence[bytes],
    tags: Sequence[bytes],
    *,
    max_examples: int | None = 500,
    normalise: Literal["sum", "mean"] = "sum",
) -> Clients:
    """Return sentences as sparse bags of words, and the tags to predict.

    Args:
      store: clients with the text features ``tokens``, ``title`` and ``tags``.
      vocabulary: the words.
      tags: the tags.
      max_examples: the number of sentences that a client keeps, its first ones; None for all.
      normalise: the denominator of the word frequencies. "sum": the number of known words, so that the weights of a
        bag sum to 1, as the paper says. "mean": the number of all words, so that they sum to known / total, as in the
        code on which the paper builds. ``known`` and ``total`` convert one into the other.

    Returns:
      An iterator of (client id, examples). The words of an example are those of ``tokens + ' ' + title``. Its
      features: ``words``, the distinct ids 0, ..., V - 1 of known words, rising; ``weights``, the frequency of each;
      ``tags``, the distinct ids of known tags, rising; ``known``, the number of known words, and ``total``, of all
      words, with repetitions. An example without a known word has an empty row.
    """
    if normalise not in ("sum", "mean"):
        raise ValueError(f"normalise must be 'sum' or 'mean', got {normalise!r}")
    check_limit(max_examples)
    for name in ("tokens", "title", "tags"):
        check_text(store, name)
    word_ids = WordIds(vocabulary, first=0, missing=len(vocabulary))
    tag_ids = WordIds(tags, first=0, missing=len(tags), name="tags")

    def bags(examples: Mapping[str, Feature]) -> dict[str, Feature]:
        first, second, labels = (first_texts(examples, name, max_examples) for name in ("tokens", "title", "tags"))
        sentences = [b"%s %s" % pair for pair in zip(first.texts(), second.texts(), strict=True)]
        words, counts, total = word_ids.bags([sentence.split() for sentence in sentences])
        chosen, _, _ = tag_ids.bags([text.split(b"|") for text in labels.texts()])
        row = np.repeat(np.arange(words.size), np.diff(words.offsets))
        known = np.bincount(row, counts, words.size).astype(np.int32)
        weights = counts / (known if normalise == "sum" else total)[row]
        return {
            "words": words,
            "weights": Ragged(weights.astype(np.float32), words.offsets),
            "tags": chosen,
            "known": known,
            "total": total,
        }

    return ((id, bags(examples)) for id, examples in store.items())


class WordIds(dict[bytes, int]):
    """The ids of words: `first`, `first` + 1, ... in the order of the vocabulary, `missing` for every other word."""

    def __init__(self, vocabulary: Sequence[bytes], *, first: int, missing: int, name: str = "vocabulary"):
        if isinstance(vocabulary, bytes | str) or not all(isinstance(word, bytes) for word in vocabulary):
            raise ValueError(f"{name} must be a list of bytes, got {vocabulary!r:.80}")
        super().__init__((word, first + i) for i, word in enumerate(vocabulary))
        if not vocabulary or len(self) != len(vocabulary):
            raise ValueError(f"{name} must hold each word once, got {len(vocabulary)} words, {len(self)} distinct")
        self.missing = missing
        self.dtype = smallest_dtype(first + len(vocabulary) - 1)

    def __missing__(self, word: bytes) -> int:
        return self.missing

    def flat_ids(
        self, rows: Sequence[Sequence[bytes]]
    ) -> tuple[Int[np.ndarray, "total"], Int[np.ndarray, "total"], Int[np.ndarray, "rows"]]:
        """Return the ids of all words end to end, the row of each word, and the length of each row."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = np.fromiter(map(self.__getitem__, chain.from_iterable(rows)), np.int64, int(lengths.sum()))
        return ids, np.repeat(np.arange(len(rows)), lengths), lengths

    def bags(
        self, rows: Sequence[Sequence[bytes]]
    ) -> tuple[Ragged, Int[np.ndarray, "values"], Int[np.ndarray, "rows"]]:
        """Return the distinct known ids of each row, rising, the count of each, and the number of words in each row."""
        ids, owner, lengths = self.flat_ids(rows)
        base = self.missing + 1
        keys, counts = np.unique(owner * base + ids, return_counts=True)
        inside = keys % base != self.missing
        keys, counts = keys[inside], counts[inside]
        offsets = np.searchsorted(keys, np.arange(len(rows) + 1) * base)
        return Ragged((keys % base).astype(self.dtype), offsets.astype(np.int64)), counts, lengths.astype(np.int32)


def smallest_dtype(largest: int) -> type[np.uint16] | type[np.uint32]:
    """Return uint16, which holds the paper's ids, or uint32 for a larger vocabulary."""
    return np.uint16 if largest < 2**16 else np.uint32


def count_words(store: Store) -> list[tuple[bytes, int]]:
    """Return each word of ``tokens`` and the number of clients that use it, most used first, ties in byte order."""
    return client_counts(store, "tokens", None)


def count_tags(store: Store) -> list[tuple[bytes, int]]:
    """Return each tag and the number of clients that use it, most used first, ties in byte order."""
    return client_counts(store, "tags", b"|")


def client_counts(store: Store, name: str, separator: bytes | None) -> list[tuple[bytes, int]]:
    """Return each piece of a text feature, split at the separator, and the number of clients that use it."""
    check_text(store, name)
    counts: Counter[bytes] = Counter()
    for _, examples in store.items():
        pieces = set((separator or b" ").join(first_texts(examples, name, None).texts()).split(separator))
        counts.update(pieces - {b""})
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


LINK = re.compile(r"""(?i:https?://|ftp://|www\.)[^\s<>"]*[^\s<>".,;:!?)\]']|<URL>""")
PUNCTUATION = re.compile(rb"([!-&(-,./:-@\[-`{-~])")


def clean_text(text: str | bytes) -> bytes:
    """Return text cleaned as in the Stack Overflow dataset, its words and punctuation separated by single spaces.

    HTML is unescaped, URLs become <URL>, characters outside ASCII are removed, the rest is converted to lower case, and
    every punctuation mark except ' and - becomes a separate word.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "ignore")
    pieces = LINK.split(html.unescape(text))
    ascii_pieces = (piece.encode("ascii", "ignore").lower() for piece in pieces)
    return b" ".join((b" %s " % URL).join(PUNCTUATION.sub(rb" \1 ", piece) for piece in ascii_pieces).split())
