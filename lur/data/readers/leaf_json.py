"""LEAF's JSON files: FEMNIST and Shakespeare.

    {"users": [..], "num_samples": [..], "user_data": {user: {"x": [..], "y": [..]}}}

A file, or a folder of them. FEMNIST becomes ``pixels`` (n, 28, 28) and ``label``; Shakespeare, whose x are 80
characters and y the next one, becomes the texts ``x`` and ``y``. A file is read whole, but its users are decoded one
at a time, into arrays: JSON's lists of numbers would take eight times the memory.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lur.data.ragged import from_rows
from lur.data.readers.features import checked, file_at, place, uniform
from lur.data.store import Feature, StoreError
from lur.data.writer import Examples

SPACE = re.compile(r"[ \t\r\n]*")
USERS = re.compile(r'[ \t\r\n]*\{[ \t\r\n]*"users"[ \t\r\n]*:[ \t\r\n]*')
HEAD = 2**20
LARGEST_FILE = 2**33
SEQUENCE = 80


def clients(path: Path) -> Iterator[tuple[str, Examples]]:
    """The users in the order of the files' names and of each file's list."""
    found = (client for file in files(path) for client in users_of(file))
    yield from uniform(path, found)


def count(path: Path) -> int | None:
    """The number of users, if each file lists them first, as LEAF writes it."""
    total = 0
    for file in files(path):
        with file.open("rb") as content:
            head = content.read(HEAD).decode(errors="replace")
        start = USERS.match(head)
        try:
            users = json.JSONDecoder().raw_decode(head, start.end())[0] if start else None
        except (ValueError, RecursionError):
            return None
        if not isinstance(users, list):
            return None
        total += len(users)
    return total


def files(path: Path) -> list[Path]:
    """The JSON files of a folder, by name; or the file."""
    if not path.is_dir():
        return [file_at(path, "a JSON file of LEAF or a folder of them")]
    found = sorted(file for file in path.glob("*.json") if file.is_file())
    if not found:
        raise StoreError(f"{path}: expected a folder of *.json files, found none in it")
    return found


def users_of(file: Path) -> Iterator[tuple[str, dict[str, Feature]]]:
    """The users of one file, all of it decoded and checked before the first comes."""
    if (size := file.stat().st_size) > LARGEST_FILE:
        raise StoreError(f"{file}: expected at most {LARGEST_FILE} bytes, found {size}")
    data: dict[str, dict[str, Feature]] = {}
    try:
        walk = Walk(file.read_bytes().decode())
        top = walk.document(lambda id: add(data, file, id, walk))
    except StoreError:
        raise
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{file}: expected JSON, {str(error)[:200]}") from error
    users, sizes = top.get("users"), top.get("num_samples")
    if not isinstance(users, list) or not all(isinstance(id, str) for id in users):
        raise StoreError(f"{file}: expected a list of names `users`, found {str(users)[:80]}")
    if not isinstance(sizes, list) or len(sizes) != len(users):
        raise StoreError(f"{file}: expected as many `num_samples` as users ({len(users)}), found {str(sizes)[:80]}")
    if len(data) != len(users) or len(set(users)) != len(users):
        raise StoreError(f"{file}: expected {len(users)} different users in `user_data`, found {len(data)}")
    for id, size in zip(users, sizes, strict=True):
        if id not in data:
            raise StoreError(f"{place(file, id)}: expected its examples in `user_data`, found none")
        found = {len(array) if isinstance(array, np.ndarray) else array.size for array in data[id].values()}
        if isinstance(size, bool) or not isinstance(size, int) or found != {size}:
            raise StoreError(f"{place(file, id)}: expected {str(size)[:80]} examples (num_samples), found {max(found)}")
    for id in users:
        yield id, data.pop(id)


def add(data: dict[str, dict[str, Feature]], file: Path, id: str, walk: "Walk") -> None:
    """The next user, decoded from where the walk is."""
    where = place(file, id)
    if id in data:
        raise StoreError(f"{where}: expected each user once, found it twice")
    try:
        value = walk.value()
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{where}: expected JSON, {str(error)[:200]}") from error
    data[id] = examples(where, value)


class Walk:
    """A pass over JSON text that hands over the members of ``user_data`` one by one and keeps only the rest."""

    def __init__(self, text: str):
        self.text, self.at = text, 0
        self.decoder = json.JSONDecoder(parse_constant=refused)

    def document(self, user: Callable[[str], None]) -> dict[str, Any]:
        """The members of the object that the text is; `user` is called to take each of ``user_data``."""
        top: dict[str, Any] = {}

        def member(key: str) -> None:
            if key in top:
                raise ValueError(f"found {key!r} twice")
            top[key] = self.members(user) if key == "user_data" else self.value()

        self.members(member)
        if self.peek():
            raise ValueError(f"found more after the end, at {self.at}")
        if "user_data" not in top:
            raise ValueError("found no `user_data`")
        return top

    def peek(self) -> str:
        """The next character that is not a space; nothing at the end."""
        found = SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.text[self.at : self.at + 1]

    def expect(self, mark: str) -> None:
        if self.peek() != mark:
            raise ValueError(f"expected {mark!r} at {self.at}, found {self.text[self.at : self.at + 20]!r}")
        self.at += 1

    def value(self) -> Any:
        """The next value, decoded."""
        self.peek()
        value, self.at = self.decoder.raw_decode(self.text, self.at)
        return value

    def members(self, member: Callable[[str], None]) -> None:
        """An object: `member` is called for each key, and takes its value."""
        self.expect("{")
        if self.peek() == "}":
            self.at += 1
            return
        while True:
            key = self.value() if self.peek() == '"' else None
            if not isinstance(key, str):
                raise ValueError(f"expected a name at {self.at}, found {self.text[self.at : self.at + 20]!r}")
            self.expect(":")
            member(key)
            if self.peek() != ",":
                break
            self.at += 1
        self.expect("}")


def refused(constant: str) -> float:
    """NaN and infinities, which are not JSON."""
    raise ValueError(f"expected finite numbers, found {constant}")


def examples(where: str, value: Any) -> dict[str, Feature]:
    """One user's x and y as features."""
    x, y = (value.get("x"), value.get("y")) if isinstance(value, dict) else (None, None)
    if not isinstance(x, list) or not isinstance(y, list) or len(x) != len(y) or not x:
        raise StoreError(f"{where}: expected equally long lists x and y of examples (>= 1)")
    try:
        where.encode()
        if isinstance(x[0], str):
            return checked(where, {"x": texts(where, "x", x, SEQUENCE), "y": texts(where, "y", y, 1)})
        pixels, label = numbers(where, "x", x), numbers(where, "y", y)
    except UnicodeEncodeError as error:
        raise StoreError(f"{where!a}: expected Unicode text, {error}") from error
    if pixels.ndim != 2 or pixels.shape[1] != 784:
        raise StoreError(f"{where}: expected 784 pixels (FEMNIST) or texts (Shakespeare), found {pixels.shape}")
    return checked(where, {"pixels": pixels.astype(np.float64).reshape(-1, 28, 28), "label": label})


def texts(where: str, name: str, rows: list[Any], length: int) -> Feature:
    """Texts of one length in characters."""
    if not all(isinstance(row, str) and len(row) == length for row in rows):
        raise StoreError(f"{where}, {name}: expected texts of {length} characters")
    return from_rows([row.encode() for row in rows])


def numbers(where: str, name: str, rows: list[Any]) -> np.ndarray:
    """Numbers, all of one shape."""
    try:
        array = np.array(rows)
    except (ValueError, OverflowError, RecursionError) as error:
        raise StoreError(f"{where}, {name}: expected equally many numbers in each example, {error}") from error
    if array.dtype.kind not in "iuf":
        raise StoreError(f"{where}, {name}: expected numbers, found {array.dtype}")
    return array
