"""LEAF's JSON files: FEMNIST and Shakespeare.

    {"users": [..], "num_samples": [..], "user_data": {user: {"x": [..], "y": [..]}}}

The input is a file or a folder of files. FEMNIST becomes ``pixels`` (n, 28, 28) and ``label``; Shakespeare, in which x
is 80 characters and y the next one, becomes the texts ``x`` and ``y``. A file is read whole, but its users are decoded
into arrays one at a time, because JSON's lists of numbers would take eight times the memory.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lur.data.ragged import from_rows
from lur.data.readers.features import checked_features, client_location, existing_file, with_equal_features
from lur.data.store import Feature, StoreError, feature_length
from lur.data.writer import Examples

SPACE = re.compile(r"[ \t\r\n]*")
USERS = re.compile(r'[ \t\r\n]*\{[ \t\r\n]*"users"[ \t\r\n]*:[ \t\r\n]*')
HEAD_BYTES = 2**20
MAX_FILE_BYTES = 2**33
SEQUENCE_LENGTH = 80


def clients(path: Path) -> Iterator[tuple[str, Examples]]:
    """Yield the users, file by file in the order of the names, and in the order of each file's list.

    A user without examples is yielded without features.
    """
    yield from with_equal_features(path, (client for file in files(path) for client in users_of(file)))


def count(path: Path) -> int | None:
    """Return the number of users, or None unless each file lists them first, as LEAF does."""
    total = 0
    for file in files(path):
        with file.open("rb") as content:
            head = content.read(HEAD_BYTES).decode(errors="replace")
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
    """Return the JSON files of a folder, sorted by name, or the file itself."""
    if not path.is_dir():
        return [existing_file(path, "a JSON file of LEAF or a folder of them")]
    sources = [existing_file(file, "a JSON file of LEAF") for file in sorted(path.glob("*.json"))]
    if not sources:
        raise StoreError(f"{path}: expected a folder of *.json files, found none in it")
    return sources


def users_of(file: Path) -> Iterator[tuple[str, dict[str, Feature]]]:
    """Yield the users of one file, after the whole file has been decoded and checked."""
    if (size := file.stat().st_size) > MAX_FILE_BYTES:
        raise StoreError(f"{file}: expected at most {MAX_FILE_BYTES} bytes, found {size}")
    data: dict[str, dict[str, Feature]] = {}
    try:
        scanner = Scanner(file.read_bytes().decode())
        top = scanner.document(lambda id: add_user(data, file, id, scanner))
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
            raise StoreError(f"{client_location(file, id)}: expected its examples in `user_data`, found none")
        found = max((feature_length(feature) for feature in data[id].values()), default=0)
        if isinstance(size, bool) or not isinstance(size, int) or found != size:
            raise StoreError(
                f"{client_location(file, id)}: expected {str(size)[:80]} examples (num_samples), found {found}"
            )
    for id in users:
        yield id, data.pop(id)


def add_user(data: dict[str, dict[str, Feature]], file: Path, id: str, scanner: "Scanner") -> None:
    """Decode the user at the scanner's position and add it to the data."""
    location = client_location(file, id)
    if id in data:
        raise StoreError(f"{location}: expected each user once, found it twice")
    try:
        value = scanner.value()
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{location}: expected JSON, {str(error)[:200]}") from error
    data[id] = examples(location, value)


class Scanner:
    """A single pass over JSON text that passes on the members of ``user_data`` one by one and keeps only the rest."""

    def __init__(self, text: str):
        self.text, self.position = text, 0
        self.decoder = json.JSONDecoder(parse_constant=refuse_constant)

    def document(self, user: Callable[[str], None]) -> dict[str, Any]:
        """Return the members of the top-level object; ``user(id)`` must consume each member of ``user_data``."""
        top: dict[str, Any] = {}

        def member(key: str) -> None:
            if key in top:
                raise ValueError(f"found {key!r} twice")
            top[key] = self.members(user) if key == "user_data" else self.value()

        self.members(member)
        if self.peek():
            raise ValueError(f"found more after the end, at {self.position}")
        if "user_data" not in top:
            raise ValueError("found no `user_data`")
        return top

    def peek(self) -> str:
        """Return the next character that is not white space, or an empty string at the end."""
        space = SPACE.match(self.text, self.position)
        self.position = space.end() if space else self.position
        return self.text[self.position : self.position + 1]

    def expect(self, mark: str) -> None:
        if self.peek() != mark:
            raise ValueError(
                f"expected {mark!r} at {self.position}, found {self.text[self.position : self.position + 20]!r}"
            )
        self.position += 1

    def value(self) -> Any:
        """Return the next value, decoded."""
        self.peek()
        value, self.position = self.decoder.raw_decode(self.text, self.position)
        return value

    def members(self, member: Callable[[str], None]) -> None:
        """Read an object: ``member(key)`` must consume the value of each key."""
        self.expect("{")
        if self.peek() == "}":
            self.position += 1
            return
        while True:
            key = self.value() if self.peek() == '"' else None
            if not isinstance(key, str):
                raise ValueError(
                    f"expected a name at {self.position}, found {self.text[self.position : self.position + 20]!r}"
                )
            self.expect(":")
            member(key)
            if self.peek() != ",":
                break
            self.position += 1
        self.expect("}")


def refuse_constant(constant: str) -> float:
    """Raise a ValueError: NaN and infinities are not JSON."""
    raise ValueError(f"expected finite numbers, found {constant}")


def examples(location: str, value: Any) -> dict[str, Feature]:
    """Return one user's x and y as features; none if the lists are empty."""
    x, y = (value.get("x"), value.get("y")) if isinstance(value, dict) else (None, None)
    if not isinstance(x, list) or not isinstance(y, list) or len(x) != len(y):
        raise StoreError(f"{location}: expected equally long lists x and y of examples")
    if not x:
        return {}
    try:
        location.encode()
        if isinstance(x[0], str):
            return checked_features(
                location, {"x": encode_texts(location, "x", x, SEQUENCE_LENGTH), "y": encode_texts(location, "y", y, 1)}
            )
        pixels, label = numbers(location, "x", x), numbers(location, "y", y)
    except UnicodeEncodeError as error:
        raise StoreError(f"{location!a}: expected Unicode text, {error}") from error
    if pixels.ndim != 2 or pixels.shape[1] != 784:
        raise StoreError(f"{location}: expected 784 pixels (FEMNIST) or texts (Shakespeare), found {pixels.shape}")
    return checked_features(location, {"pixels": pixels.astype(np.float64).reshape(-1, 28, 28), "label": label})


def encode_texts(location: str, name: str, rows: list[Any], length: int) -> Feature:
    """Return texts as UTF-8; each must have `length` characters."""
    if not all(isinstance(row, str) and len(row) == length for row in rows):
        raise StoreError(f"{location}, {name}: expected texts of {length} characters")
    return from_rows([row.encode() for row in rows])


def numbers(location: str, name: str, rows: list[Any]) -> np.ndarray:
    """Return numbers as an array; all rows must have one shape."""
    try:
        array = np.array(rows)
    except (ValueError, OverflowError, RecursionError) as error:
        raise StoreError(f"{location}, {name}: expected equally many numbers in each example, {error}") from error
    if array.dtype.kind not in "iuf":
        raise StoreError(f"{location}, {name}: expected numbers, found {array.dtype}")
    return array
