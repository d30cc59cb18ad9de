"""Small federated datasets in plain files, as people pass them around: JSON (gzipped or not) and npz.

    roles_json   {split: {role: [speech, ...]}}                       -> snippets
    users_json   {user: [{tokens, title, tags, ...}, ...]}            -> Stack Overflow's features
    pen_npz      pixels uint8 (n, 28, 28), label, writer              -> pixels, label

A file may come from anywhere: what is in it is checked before use, and it never unpacks to more than `limit` bytes.
"""

import gzip
import io
import json
import lzma
import math
import struct
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lur.data.store import StoreError
from lur.data.writer import Examples

LIMIT = 2**30
GZIP = b"\x1f\x8b"
REQUIRED = ("tokens", "title", "tags")
OPTIONAL = ("creation_date", "type")


def roles_json(path: str | Path, split: str = "train", *, limit: int = LIMIT) -> Iterator[tuple[str, Examples]]:
    """The roles of one split, in the file's order, each with its speeches. A role without speeches is left out."""
    content = read_object(Path(path), limit)
    roles = content.get(split)
    if not isinstance(roles, dict):
        raise StoreError(f"{path}: expected the split {split!r} with its roles, found {shown(list(content))}")
    return speeches(Path(path), roles)


def speeches(path: Path, roles: Mapping[str, Any]) -> Iterator[tuple[str, Examples]]:
    """Each role that speaks, and what it says."""
    for role, rows in roles.items():
        if not isinstance(rows, list):
            raise StoreError(f"{path}, client {role!r}: expected a list of speeches, found {shown(rows)}")
        if rows:
            yield identity(path, role), {"snippets": [utf8(path, role, "a speech", row) for row in rows]}


def users_json(path: str | Path, *, limit: int = LIMIT) -> Iterator[tuple[str, Examples]]:
    """The users, in the file's order, each with their sentences.

    `tokens`, `title` and `tags` (joined by |) must be there; `creation_date`, `type` and `score` come along if
    the first sentence has them, and then all must. Anything else is left out, and so is a user without sentences.
    """
    return sentences(Path(path), read_object(Path(path), limit))


def sentences(path: Path, users: Mapping[str, Any]) -> Iterator[tuple[str, Examples]]:
    """Each user who wrote something, and what."""
    texts: list[str] | None = None
    scored = False
    for user, rows in users.items():
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise StoreError(f"{path}, client {user!r}: expected a list of objects, found {shown(rows)}")
        if not rows:
            continue
        if texts is None:
            texts = [*REQUIRED, *(name for name in OPTIONAL if name in rows[0])]
            scored = "score" in rows[0]
        examples: dict[str, Any] = {name: [utf8(path, user, name, row.get(name)) for row in rows] for name in texts}
        if scored:
            examples["score"] = np.array([integer(path, user, row.get("score")) for row in rows], np.int64)
        yield identity(path, user), examples


def pen_npz(
    path: str | Path, *, owner: Sequence[str] = ("writer",), limit: int = LIMIT
) -> Iterator[tuple[str, Examples]]:
    """Drawn characters, one client per writer: pixels in [0, 1] with ink 0 on a background of 1, and labels.

    In the file 255 is the background. `owner` names the arrays of integers that together tell clients apart, as
    ("alphabet", "drawer"); clients are in their order, and their ids are the numbers joined by _.
    """
    if isinstance(owner, str) or not owner:
        raise ValueError(f"owner must be a list of names of arrays, got {owner!r}")
    arrays = read_arrays(Path(path), ("pixels", "label", *owner), limit)
    pixels, label = arrays["pixels"], arrays["label"]
    if pixels.dtype != np.uint8 or pixels.shape[1:] != (28, 28) or not len(pixels):
        raise StoreError(f"{path}: expected pixels uint8 (n, 28, 28), found {pixels.dtype} {pixels.shape}")
    for name in ("label", *owner):
        if arrays[name].shape != (len(pixels),):
            raise StoreError(f"{path}: expected {name} of shape ({len(pixels)},), found {arrays[name].shape}")
    if label.min() < 0 or label.max() >= 2**31:
        raise StoreError(f"{path}: expected labels in 0..2**31 - 1, found {label.min()}..{label.max()}")
    return drawings(pixels, label.astype(np.int32), [arrays[name] for name in owner])


def drawings(pixels: np.ndarray, label: np.ndarray, owner: Sequence[np.ndarray]) -> Iterator[tuple[str, Examples]]:
    """Each writer's characters, in the file's order."""
    order = np.lexsort(owner[::-1])
    changed = np.any([np.diff(column[order]) != 0 for column in owner], axis=0)
    for rows in np.split(order, np.flatnonzero(changed) + 1):
        id = "_".join(str(column[rows[0]]) for column in owner)
        yield id, {"pixels": pixels[rows].astype(np.float32) / np.float32(255), "label": label[rows]}


def read_bytes(path: Path, limit: int) -> bytes:
    """A file's content, unpacked if it is gzipped, at most `limit` bytes of it."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
            file.seek(0)
            content = (gzip.GzipFile(fileobj=file) if packed else file).read(limit + 1)
    except FileNotFoundError as error:
        raise StoreError(f"{path}: expected a file, found nothing") from error
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise StoreError(f"{path}: expected a readable file, {error}") from error
    if len(content) > limit:
        raise StoreError(f"{path}: expected at most {limit} bytes, found more; a larger `limit` allows it")
    return content


def read_object(path: Path, limit: int) -> dict[str, Any]:
    """The JSON object in a file. A key that comes twice is an error: one of the two clients would be lost."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
            raise StoreError(f"{path}: expected each key once, found {key!r} again")
        return found

    try:
        content = json.loads(read_bytes(path, limit), object_pairs_hook=unique)
    except StoreError:
        raise
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: expected JSON, {error}") from error
    if not isinstance(content, dict):
        raise StoreError(f"{path}: expected a JSON object, found {shown(content)}")
    return content


def read_arrays(path: Path, names: Sequence[str], limit: int) -> dict[str, np.ndarray]:
    """Arrays of integers in an npz, by name."""
    if not path.is_file():
        raise StoreError(f"{path}: expected an npz file, found {'a folder' if path.exists() else 'nothing'}")
    try:
        with zipfile.ZipFile(path) as archive:
            missing = [name for name in names if f"{name}.npy" not in archive.namelist()]
            if missing:
                raise StoreError(f"{path}: expected the arrays {', '.join(names)}, found {shown(archive.namelist())}")
            contents = {}
            for name in names:
                with archive.open(f"{name}.npy") as member:
                    contents[name] = member.read(limit + 1)
    except StoreError:
        raise
    except (
        zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError, RuntimeError, ValueError, struct.error,
    ) as error:  # fmt: skip
        raise StoreError(f"{path}: expected an npz file, {error}") from error
    if max(map(len, contents.values())) > limit:
        raise StoreError(f"{path}: expected at most {limit} bytes an array, found more; a larger `limit` allows it")
    return {name: array_of(path, name, content) for name, content in contents.items()}


def array_of(path: Path, name: str, content: bytes) -> np.ndarray:
    """An array of integers in numpy's format. Its header is compared with its size before anything is made."""
    file = io.BytesIO(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            version = np.lib.format.read_magic(file)
            if version == (1, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
            elif version == (2, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
            else:
                raise StoreError(f"{path}, array {name}: expected version 1 or 2 of the npy format, found {version}")
    except StoreError:
        raise
    except Exception as error:  # the header is a Python literal: malformed, it can fail in any way
        raise StoreError(f"{path}, array {name}: expected numpy's npy format, {error}") from error
    if dtype.kind not in "iu" or min(shape, default=0) < 0:
        raise StoreError(f"{path}, array {name}: expected integers, found {dtype} {shape}")
    size = math.prod(shape) * dtype.itemsize
    if len(content) - file.tell() != size:
        raise StoreError(
            f"{path}, array {name}: expected {size} bytes ({dtype} {shape}), found {len(content) - file.tell()}"
        )
    flat = np.frombuffer(content, dtype, offset=file.tell())
    return flat.reshape(shape, order="F" if fortran else "C").astype(dtype.newbyteorder("="))


def identity(path: Path, id: str) -> str:
    """A client's id, which must be valid Unicode."""
    utf8(path, id, "an id", id)
    return id


def utf8(path: Path, client: str, name: str, value: Any) -> bytes:
    """A text as bytes."""
    if not isinstance(value, str):
        raise StoreError(f"{path}, client {client!r}: expected text for {name}, found {shown(value)}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise StoreError(f"{path}, client {client!r}: expected valid Unicode for {name}, {error}") from error


def integer(path: Path, client: str, value: Any) -> int:
    """A score as an int64."""
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise StoreError(f"{path}, client {client!r}: expected an integer score, found {shown(value)}")
    return value


def shown(value: Any) -> str:
    """A value in a message, cut short."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
