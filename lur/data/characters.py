"""Next-character prediction: speeches as rows of character ids."""

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from jaxtyping import Shaped, UInt8

from lur.data.ragged import Ragged
from lur.data.requirements import Clients, check_positive, check_text, store_location
from lur.data.store import Store, StoreError

Convention = Literal["tff", "fedjax"]

CHARACTERS = b"dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"
PAD = 0
NOT_ASCII = re.compile(r"[^\x00-\x7f]")
"""Characters that become the byte 0, which is outside the vocabulary, so that each is one id."""


class Alphabet(NamedTuple):
    """The ids of the 86 characters and of the special tokens. PAD is 0.

    Attributes:
      first: the id of the first character; the ids of the others follow in order.
      oov: the id of a character outside the vocabulary.
      bos: the id of the beginning of a speech.
      eos: the id of the end of a speech.
    """

    first: int
    oov: int
    bos: int
    eos: int

    def table(self) -> UInt8[np.ndarray, "256"]:
        """Return the id of each byte."""
        table = np.full(256, self.oov, np.uint8)
        table[np.frombuffer(CHARACTERS, np.uint8)] = self.first + np.arange(len(CHARACTERS))
        return table


ALPHABETS: Mapping[Convention, Alphabet] = {
    "tff": Alphabet(first=1, oov=87, bos=88, eos=89),
    "fedjax": Alphabet(first=3, oov=89, bos=1, eos=2),
}


def shakespeare(store: Store, *, convention: Convention = "tff", length: int = 80) -> Clients:
    """Return speeches as rows of ``length + 1`` character ids: the input is ``row[:-1]``, the target ``row[1:]``.

    Args:
      store: clients with the text feature ``snippets``.
      convention: "tff", the paper's, takes each speech as [BOS] + bytes + [EOS], pads it to a multiple of length + 1
        and cuts it into rows. "fedjax" joins a client's speeches first, and each row begins with the last id of the
        row before, so that every character is predicted. (FedJAX also removes the last EOS from the input, where the
        target is PAD and has no effect; this function keeps it.)
      length: the length of an input.

    Returns:
      An iterator of (client id, examples) with the feature ``tokens`` of shape (n, length + 1), uint8.
    """
    alphabet = checked_alphabet(convention)
    check_positive("length", length)
    check_text(store, "snippets")
    table = alphabet.table()

    def rows(snippets: Ragged) -> UInt8[np.ndarray, "n length+1"]:
        if convention == "tff":
            return delimited(snippets, alphabet, table, multiple=length + 1).reshape(-1, length + 1)
        joined = delimited(snippets, alphabet, table, multiple=1)
        count = -(-(len(joined) - 1) // length)
        padded = np.pad(joined, (0, count * length + 1 - len(joined)))
        return padded[np.arange(count)[:, None] * length + np.arange(length + 1)]

    return ((id, {"tokens": rows(cast(Ragged, examples["snippets"]))}) for id, examples in store.items())


def next_character(store: Store, *, length: int = 80) -> Clients:
    """Return LEAF's windows as rows of ``length + 1`` character ids of the "tff" convention: x and then y.

    Characters outside the vocabulary, such as those that are not ASCII, become its out-of-vocabulary id.

    Args:
      store: clients with the texts ``x``, of `length` characters each, and ``y``, of one character each.
      length: the length of an input.

    Returns:
      An iterator of (client id, examples) with the feature ``tokens`` of shape (n, length + 1), uint8.
    """
    check_positive("length", length)
    for name in ("x", "y"):
        check_text(store, name)
    table = ALPHABETS["tff"].table()

    def ids(client: str, name: str, texts: Ragged, width: int) -> UInt8[np.ndarray, "n width"]:
        try:
            rows = [NOT_ASCII.sub("\0", text.decode()).encode() for text in texts.texts()]
        except UnicodeDecodeError as error:
            raise StoreError(f"{store_location(store)}, client {client!r}: expected {name} as UTF-8, {error}") from None
        lengths = {len(row) for row in rows} - {width}
        if lengths:
            raise StoreError(
                f"{store_location(store)}, client {client!r}: expected {name} of {width} characters, "
                f"found {min(lengths)}"
            )
        return table[np.frombuffer(b"".join(rows), np.uint8)].reshape(-1, width)

    def rows(client: str, examples: Mapping[str, Any]) -> UInt8[np.ndarray, "n length+1"]:
        return np.concatenate([ids(client, "x", examples["x"], length), ids(client, "y", examples["y"], 1)], axis=1)

    return ((id, {"tokens": rows(id, examples)}) for id, examples in store.items())


def delimited(
    texts: Ragged, alphabet: Alphabet, table: UInt8[np.ndarray, "256"], multiple: int
) -> UInt8[np.ndarray, "total"]:
    """Return all texts end to end as ids, each [BOS] + bytes + [EOS], padded to a multiple of `multiple`."""
    offsets = np.asarray(texts.offsets)
    lengths = np.diff(offsets)
    starts = np.zeros(len(offsets), np.int64)
    np.cumsum(-(-(lengths + 2) // multiple) * multiple, out=starts[1:])
    ids = np.full(starts[-1], PAD, np.uint8)
    ids[starts[:-1]] = alphabet.bos
    ids[np.arange(offsets[-1]) + np.repeat(starts[:-1] + 1 - offsets[:-1], lengths)] = table[np.asarray(texts.values)]
    ids[starts[:-1] + 1 + lengths] = alphabet.eos
    return ids


def characters(tokens: Shaped[np.ndarray, "..."], *, convention: Convention = "tff", unknown: bytes = b"?") -> bytes:
    """Return the text of character ids.

    Args:
      tokens: ids of any shape; special tokens and padding are left out.
      convention: the convention of the ids, see `shakespeare`.
      unknown: the replacement for characters outside the vocabulary.
    """
    alphabet = checked_alphabet(convention)
    known = {alphabet.first + i: CHARACTERS[i : i + 1] for i in range(len(CHARACTERS))}
    special = dict.fromkeys((PAD, alphabet.bos, alphabet.eos), b"")
    return b"".join({**known, **special}.get(id, unknown) for id in np.ravel(tokens).tolist())


def checked_alphabet(convention: Convention) -> Alphabet:
    """Return the alphabet of a convention, or raise a ValueError if there is no such convention."""
    if convention not in ALPHABETS:
        raise ValueError(f"convention must be one of {', '.join(ALPHABETS)}, got {convention!r}")
    return ALPHABETS[convention]
