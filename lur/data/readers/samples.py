"""Small federated datasets in simple files: JSON (gzipped or not) and npz.

    roles_json   {split: {role: [speech, ...]}}                       -> snippets
    users_json   {user: [{tokens, title, tags, ...}, ...]}            -> Stack Overflow's features
    pen_npz      pixels uint8 (n, 28, 28), label, writer              -> pixels, label

No file is trusted: its content is checked before use, and it is never unpacked to more than `limit` bytes.
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

from lur.data.file_facts import open_regular
from lur.data.store import StoreError
from lur.data.writer import Examples

MAX_BYTES = 2**30
GZIP_MAGIC = b"\x1f\x8b"
REQUIRED = ("tokens", "title", "tags")
OPTIONAL = ("creation_date", "type")


def roles_json(path: str | Path, split: str = "train", *, limit: int = MAX_BYTES) -> Iterator[tuple[str, Examples]]:
    """Return the roles of one split with their speeches, in the order of the file. A silent role has no features."""
    content = read_object(Path(path), limit)
    roles = content.get(split)
    if not isinstance(roles, dict):
        raise StoreError(f"{path}: expected the split {split!r} with its roles, found {abbreviated(list(content))}")
    return role_speeches(Path(path), roles)


def role_speeches(path: Path, roles: Mapping[str, Any]) -> Iterator[tuple[str, Examples]]:
    """Yield each role; one without speeches has no features."""
    for role, rows in roles.items():
        if not isinstance(rows, list):
            raise StoreError(f"{path}, client {role!r}: expected a list of speeches, found {abbreviated(rows)}")
        speeches = [utf8(path, role, "a speech", row) for row in rows]
        yield checked_id(path, role), {"snippets": speeches} if speeches else {}


def users_json(path: str | Path, *, limit: int = MAX_BYTES) -> Iterator[tuple[str, Examples]]:
    """Return the users with their sentences, in the order of the file. A user without sentences has no features.

    A sentence must have ``tokens``, ``title`` and ``tags`` (joined by |). If the first sentence has ``creation_date``,
    ``type`` or ``score``, all must have it. Other fields are ignored.
    """
    return user_sentences(Path(path), read_object(Path(path), limit))


def user_sentences(path: Path, users: Mapping[str, Any]) -> Iterator[tuple[str, Examples]]:
    """Yield each user; one without sentences has no features."""
    text_features: list[str] | None = None
    has_score = False
    for user, rows in users.items():
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise StoreError(f"{path}, client {user!r}: expected a list of objects, found {abbreviated(rows)}")
        if not rows:
            yield checked_id(path, user), {}
            continue
        if text_features is None:
            text_features = [*REQUIRED, *(name for name in OPTIONAL if name in rows[0])]
            has_score = "score" in rows[0]
        examples: dict[str, Any] = {
            name: [utf8(path, user, name, row.get(name)) for row in rows] for name in text_features
        }
        if has_score:
            examples["score"] = np.array([checked_score(path, user, row.get("score")) for row in rows], np.int64)
        yield checked_id(path, user), examples


def pen_npz(
    path: str | Path, *, owner: Sequence[str] = ("writer",), limit: int = MAX_BYTES
) -> Iterator[tuple[str, Examples]]:
    """Return handwritten characters, one client per writer: pixels in [0, 1] with ink 0 on background 1, and labels.

    Args:
      path: an npz file with the arrays ``pixels`` (uint8, background 255), ``label`` and those of `owner`.
      owner: the names of the arrays of integers that together identify a client, such as ("alphabet", "drawer"). The
        clients are sorted by them, and a client id is its numbers joined by _.
      limit: the largest number of bytes of an array.
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
    return writer_drawings(pixels, label.astype(np.int32), [arrays[name] for name in owner])


def writer_drawings(
    pixels: np.ndarray, label: np.ndarray, owner: Sequence[np.ndarray]
) -> Iterator[tuple[str, Examples]]:
    """Yield each writer's characters, in the order of the file."""
    order = np.lexsort(owner[::-1])
    changed = np.any([np.diff(column[order]) != 0 for column in owner], axis=0)
    for rows in np.split(order, np.flatnonzero(changed) + 1):
        id = "_".join(str(column[rows[0]]) for column in owner)
        yield id, {"pixels": pixels[rows].astype(np.float32) / np.float32(255), "label": label[rows]}


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the content of a file, unpacked if it is gzipped, of at most `limit` bytes."""
    try:
        with open_regular(path, follow=True) as file:
            is_gzipped = file.read(2) == GZIP_MAGIC
            file.seek(0)
            content = (gzip.GzipFile(fileobj=file) if is_gzipped else file).read(limit + 1)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise StoreError(f"{path}: expected a readable file, {error}") from error
    if len(content) > limit:
        raise StoreError(f"{path}: expected at most {limit} bytes, found more; a larger `limit` allows it")
    return content


def read_object(path: Path, limit: int) -> dict[str, Any]:
    """Return the JSON object in a file. A repeated key is an error, because one of the two clients would be lost."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
            raise StoreError(f"{path}: expected each key once, found {key!r} again")
        return members

    try:
        content = json.loads(read_bytes(path, limit), object_pairs_hook=unique)
    except StoreError:
        raise
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: expected JSON, {error}") from error
    if not isinstance(content, dict):
        raise StoreError(f"{path}: expected a JSON object, found {abbreviated(content)}")
    return content


def read_arrays(path: Path, names: Sequence[str], limit: int) -> dict[str, np.ndarray]:
    """Return arrays of integers in an npz file, by name."""
    if not path.is_file():
        raise StoreError(f"{path}: expected an npz file, found {'a folder' if path.exists() else 'nothing'}")
    try:
        with zipfile.ZipFile(path) as archive:
            missing = [name for name in names if f"{name}.npy" not in archive.namelist()]
            if missing:
                raise StoreError(
                    f"{path}: expected the arrays {', '.join(names)}, found {abbreviated(archive.namelist())}"
                )
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
        raise StoreError(f"{path}: expected at most {limit} bytes per array, found more; a larger `limit` allows it")
    return {name: decode_array(path, name, content) for name, content in contents.items()}


def decode_array(path: Path, name: str, content: bytes) -> np.ndarray:
    """Return an array of integers in numpy's format. Its header must agree with its size before it is allocated."""
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
    except Exception as error:  # a malformed header, a Python literal, can raise anything
        raise StoreError(f"{path}, array {name}: expected numpy's npy format, {error}") from error
    if dtype.kind not in "iu" or min(shape, default=0) < 0:
        raise StoreError(f"{path}, array {name}: expected integers, found {dtype} {shape}")
    size = math.prod(shape) * dtype.itemsize
    if len(content) - file.tell() != size:
        raise StoreError(
            f"{path}, array {name}: expected {size} bytes ({dtype} {shape}), found {len(content) - file.tell()}"
        )
    values = np.frombuffer(content, dtype, offset=file.tell())
    return values.reshape(shape, order="F" if fortran else "C").astype(dtype.newbyteorder("="))


def checked_id(path: Path, id: str) -> str:
    """Return a client id, or raise a StoreError unless it is valid Unicode."""
    utf8(path, id, "an id", id)
    return id


def utf8(path: Path, client: str, name: str, value: Any) -> bytes:
    """Return a text as UTF-8, or raise a StoreError that names the client and the field."""
    if not isinstance(value, str):
        raise StoreError(f"{path}, client {client!r}: expected text for {name}, found {abbreviated(value)}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise StoreError(f"{path}, client {client!r}: expected valid Unicode for {name}, {error}") from error


def checked_score(path: Path, client: str, value: Any) -> int:
    """Return a score, or raise a StoreError unless it is an int64."""
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise StoreError(f"{path}, client {client!r}: expected an integer score, found {abbreviated(value)}")
    return value


def abbreviated(value: Any) -> str:
    """Return the representation of a value, at most 80 characters, for an error message."""
    representation = repr(value)
    return representation if len(representation) <= 80 else representation[:77] + "..."
