"""Next-word and tag prediction: sentences as rows of word ids, or as bags of words; vocabularies; cleaning."""

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Literal

import numpy as np
from jaxtyping import Int, UInt

from lur.data.expected import Clients, check_limit, check_positive, check_text, texts
from lur.data.ragged import Ragged
from lur.data.store import Feature, Store

PAD = 0
URL = b"<URL>"


def next_word(
    store: Store, vocabulary: Sequence[bytes], *, max_examples: int | None = 128, length: int = 20
) -> Clients:
    """Sentences as rows of ``length + 1`` word ids: the input is ``row[:-1]``, the target ``row[1:]``.

    With V words the ids are 1..V in the vocabulary's order, OOV V + 1, BOS V + 2, EOS V + 3, PAD 0. A row is
    [BOS], the first `length` words and, if there were fewer, [EOS]. A client keeps its first `max_examples`.
    """
    V = len(vocabulary)
    oov, bos, eos = V + 1, V + 2, V + 3
    table = Table(vocabulary, first=1, missing=oov)
    dtype = smallest_dtype(eos)
    check_positive("length", length)
    check_limit(max_examples)
    check_text(store, "tokens")

    def rows(column: Ragged) -> UInt[np.ndarray, "n length+1"]:
        sentences = [text.split(b" ")[:length] for text in column.texts()]
        ids, owner, lengths = table.flat(sentences)
        tokens = np.full((len(sentences), length + 1), PAD, dtype)
        tokens[:, 0] = bos
        starts = np.cumsum(lengths) - lengths
        tokens[owner, 1 + np.arange(len(ids)) - starts[owner]] = ids
        short = np.flatnonzero(lengths < length)
        tokens[short, 1 + lengths[short]] = eos
        return tokens

    return ((id, {"tokens": rows(texts(examples, "tokens", max_examples))}) for id, examples in store.items())


def tags(
    store: Store,
    vocabulary: Sequence[bytes],
    tags: Sequence[bytes],
    *,
    max_examples: int | None = 500,
    normalise: Literal["sum", "mean"] = "sum",
) -> Clients:
    """Sentences as sparse bags of words, and the tags to predict.

    For each example, of ``tokens + ' ' + title``: `words`, the distinct word ids 0..V-1, rising; `weights`, one
    per word; `tags`, the distinct tag ids, rising; unknown words and tags are left out. `known` counts the words
    in the vocabulary and `total` all words, each as often as it occurs.

    The weights of a bag are its words' frequencies: among the known words ("sum": they sum to 1, as the paper
    says) or among all ("mean": they sum to known / total, as the code that the paper builds on computes). One
    becomes the other through `known` and `total`. An example without a known word has an empty row.
    """
    if normalise not in ("sum", "mean"):
        raise ValueError(f"normalise must be 'sum' or 'mean', got {normalise!r}")
    check_limit(max_examples)
    for name in ("tokens", "title", "tags"):
        check_text(store, name)
    word_table = Table(vocabulary, first=0, missing=len(vocabulary))
    tag_table = Table(tags, first=0, missing=len(tags), name="tags")

    def bags(examples: Mapping[str, Feature]) -> dict[str, Feature]:
        first, second, labels = (texts(examples, name, max_examples) for name in ("tokens", "title", "tags"))
        sentences = [b"%s %s" % pair for pair in zip(first.texts(), second.texts(), strict=True)]
        words, counts, total = word_table.bags([sentence.split() for sentence in sentences])
        chosen, _, _ = tag_table.bags([text.split(b"|") for text in labels.texts()])
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


class Table(dict[bytes, int]):
    """Word to id, in the vocabulary's order from `first`; every other word is `missing`."""

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

    def flat(
        self, rows: Sequence[Sequence[bytes]]
    ) -> tuple[Int[np.ndarray, "total"], Int[np.ndarray, "total"], Int[np.ndarray, "rows"]]:
        """The ids of all words end to end, the row of each, and the rows' lengths."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = np.fromiter(map(self.__getitem__, chain.from_iterable(rows)), np.int64, int(lengths.sum()))
        return ids, np.repeat(np.arange(len(rows)), lengths), lengths

    def bags(
        self, rows: Sequence[Sequence[bytes]]
    ) -> tuple[Ragged, Int[np.ndarray, "values"], Int[np.ndarray, "rows"]]:
        """The distinct known ids of each row, rising; how often each occurs; and how many words each row has."""
        ids, owner, lengths = self.flat(rows)
        base = self.missing + 1
        keys, counts = np.unique(owner * base + ids, return_counts=True)
        inside = keys % base != self.missing
        keys, counts = keys[inside], counts[inside]
        offsets = np.searchsorted(keys, np.arange(len(rows) + 1) * base)
        return Ragged((keys % base).astype(self.dtype), offsets.astype(np.int64)), counts, lengths.astype(np.int32)


def smallest_dtype(largest: int) -> type[np.uint16] | type[np.uint32]:
    """uint16, which holds the paper's ids, or uint32 for a larger vocabulary."""
    return np.uint16 if largest < 2**16 else np.uint32


def count_words(store: Store) -> list[tuple[bytes, int]]:
    """Each word of `tokens` and the number of clients that use it: most first, equal ones in byte order."""
    return client_counts(store, "tokens", None)


def count_tags(store: Store) -> list[tuple[bytes, int]]:
    """Each tag and the number of clients that use it: most first, equal ones in byte order."""
    return client_counts(store, "tags", b"|")


def client_counts(store: Store, name: str, separator: bytes | None) -> list[tuple[bytes, int]]:
    """Each piece of a text and the number of clients that have it. An empty piece is none."""
    check_text(store, name)
    counts: Counter[bytes] = Counter()
    for _, examples in store.items():
        pieces = set((separator or b" ").join(texts(examples, name, None).texts()).split(separator))
        counts.update(pieces - {b""})
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


LINK = re.compile(r"""(?i:https?://|ftp://|www\.)[^\s<>"]*[^\s<>".,;:!?)\]']|<URL>""")
PUNCTUATION = re.compile(rb"([!-&(-,./:-@\[-`{-~])")


def clean_text(text: str | bytes) -> bytes:
    """Text as Stack Overflow's was cleaned, words and punctuation apart by single spaces.

    HTML is unescaped, an address becomes <URL>, what is not ASCII is dropped, the rest is lowercased, and every
    punctuation mark but ' and - becomes a word of its own.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "ignore")
    pieces = LINK.split(html.unescape(text))
    plain = (piece.encode("ascii", "ignore").lower() for piece in pieces)
    return b" ".join((b" %s " % URL).join(PUNCTUATION.sub(rb" \1 ", piece) for piece in plain).split())
