"""The client store: every federated dataset in one layout, in memory or memory-mapped.

A feature is one array over the examples of all clients, client after client: client i owns the examples
``offsets[i]:offsets[i + 1]``. A feature is dense, of shape (n, ...), or ragged (text, bags of words). On disk a store
is a folder of raw little-endian arrays and a manifest:

    manifest.json      format, counts, dtypes, shapes, provenance; SHA-256 of each file and of the manifest itself
    offsets.bin        int64 (N + 1,)
    ids.bin, ids.offsets.bin            the client ids, UTF-8, end to end
    <feature>.bin[, <feature>.offsets.bin]

Opening a store maps the files. A store may come from anywhere, so its layout is checked and its files are compared with
their checksums, once per file and change (`lur.data.file_facts`). `lur.data.writer` writes a store atomically.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from lur.data.file_facts import fact, open_regular, sha256
from lur.data.ragged import Ragged, first_fall
from lur.data.store_error import StoreError

FORMAT = "lur-store"
VERSION = 1
NAME = re.compile(r"[A-Za-z0-9_]+")
DTYPES = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool")

MAX_MANIFEST_BYTES = 2**26
MAX_AXES = 16
ROWS_PER_CHECK = 2**20

Feature = Shaped[np.ndarray, "n ..."] | Ragged


@dataclass(frozen=True, repr=False)
class Store:
    """Clients and their examples.

    Attributes:
      features: the features of all examples, by name.
      offsets: where each client's examples begin: client i owns examples ``offsets[i]:offsets[i + 1]``.
      names: the client ids, as UTF-8.
      about: the provenance of the data.
      path: the folder of the store, or None if it is in memory.
    """

    features: Mapping[str, Feature]
    offsets: Int[np.ndarray, "N+1"]
    names: Ragged
    about: Mapping[str, Any]
    path: Path | None = None

    def __repr__(self) -> str:
        """Return two lines: the counts, and the features with their dtypes and shapes."""
        least, most = int(self.sizes.min()), int(self.sizes.max())
        counts = f"Store: {self.clients:,} clients, {self.examples:,} examples ({least:,} to {most:,} per client)"
        return f"{counts}\n  {', '.join(f'{name} {described(feature)}' for name, feature in self.features.items())}"

    @property
    def clients(self) -> int:
        """N, the number of clients."""
        return len(self.offsets) - 1

    @property
    def examples(self) -> int:
        """The number of examples of all clients."""
        return int(self.offsets[-1])

    @property
    def widths(self) -> dict[str, int]:
        """The length of the longest row of each ragged feature."""
        return {name: feature.width for name, feature in self.features.items() if isinstance(feature, Ragged)}

    @property
    def sizes(self) -> Int[np.ndarray, "N"]:
        """n_i, the number of examples of each client."""
        return np.diff(self.offsets)

    def id(self, i: int) -> str:
        """Return the id of client i."""
        try:
            return self.names.text(i).decode()
        except UnicodeDecodeError as error:
            raise StoreError(f"{self.path}: expected the id of client {i} as UTF-8, {error}") from None

    def client(self, i: int) -> dict[str, Feature]:
        """Return the examples of client i."""
        return self.slice(int(self.offsets[i]), int(self.offsets[i + 1]))

    def slice(self, start: int, stop: int) -> dict[str, Feature]:
        """Return the examples start, ..., stop - 1."""
        return {
            name: feature.rows(start, stop) if isinstance(feature, Ragged) else np.asarray(feature[start:stop])
            for name, feature in self.features.items()
        }

    def items(self) -> Iterator[tuple[str, dict[str, Feature]]]:
        """Yield all clients in order, each as (client id, examples)."""
        for i in range(self.clients):
            yield self.id(i), self.client(i)


def described(feature: Feature) -> str:
    """Return the dtype and the shape of one example of a feature, as text."""
    if isinstance(feature, Ragged):
        return f"{feature.values.dtype} (up to {feature.width:,})"
    return f"{feature.dtype} {feature.shape[1:]}"


def feature_length(feature: Feature) -> int:
    """Return the number of examples of a feature."""
    return feature.size if isinstance(feature, Ragged) else len(feature)


def open_store(path: str | Path, *, verify: bool = True) -> Store:
    """Return a store on disk, memory-mapped.

    Args:
      path: the folder of the store.
      verify: whether to compare the files with the checksums of the manifest. A file is read for that when the store is
        first opened and after every change; later its size, times and inode show that it is the same.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    clients, examples = manifest["clients"], manifest["examples"]
    offsets = map_array(folder, "offsets.bin", "int64", (clients + 1,))
    if int(offsets[0]) != 0 or int(offsets[-1]) != examples or (offsets[1:] <= offsets[:-1]).any():
        raise StoreError(
            f"{folder / 'offsets.bin'}: expected offsets that rise from 0 to {examples}, by at least 1 per client"
        )
    names = map_ragged(folder, "ids", "uint8", clients, manifest["id_bytes"])
    features: dict[str, Feature] = {}
    for name, entry in manifest["features"].items():
        if entry["kind"] == "ragged":
            feature = map_ragged(folder, name, entry["dtype"], examples, entry["values"])
            if entry["width"] != feature.width:
                raise StoreError(
                    f"{folder / 'manifest.json'}: expected the width of {name} to be {feature.width}, its longest row, "
                    f"found {entry['width']}"
                )
            features[name] = feature
        else:
            features[name] = map_array(folder, f"{name}.bin", entry["dtype"], (examples, *entry["shape"]))
    if verify:
        check_files(folder, manifest)
    fact("ids", [folder / "ids.bin", folder / "ids.offsets.bin"], lambda: check_ids(folder, names))
    return Store(features, offsets, names, manifest["about"], folder)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a store. Every field is checked, since the file may come from anywhere."""
    file = folder / "manifest.json"
    if not folder.is_dir():
        raise StoreError(
            f"{folder}: expected the folder of a store, found {'a file' if folder.exists() else 'nothing'}"
        )
    if not (file.exists() or file.is_symlink()):
        raise StoreError(f"{folder}: expected a store, found no manifest.json in it")
    with open_regular(file) as opened:
        content = opened.read(MAX_MANIFEST_BYTES + 1)
    if len(content) > MAX_MANIFEST_BYTES:
        raise StoreError(f"{file}: expected at most {MAX_MANIFEST_BYTES} bytes, found more")
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{file}: expected JSON, {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise StoreError(f"{file}: expected the format {FORMAT!r}")
    if manifest.get("version") != VERSION:
        raise StoreError(
            f"{file}: expected version {VERSION}, found {manifest.get('version')!r}; import the data again"
        )
    for name in ("clients", "examples", "id_bytes"):
        check_count(file, name, manifest.get(name))
    if not isinstance(manifest.get("about"), dict) or not isinstance(manifest.get("features"), dict):
        raise StoreError(f"{file}: expected the objects `about` and `features`")
    if not manifest["clients"] or not manifest["features"]:
        raise StoreError(f"{file}: expected at least one client and one feature, found none")
    for name, entry in manifest["features"].items():
        check_feature(file, name, entry)
    check_checksums(file, manifest)
    if "manifest_sha256" in manifest and manifest["manifest_sha256"] != manifest_checksum(manifest):
        raise StoreError(f"{file}: expected the manifest as it was written, found another: its checksum differs")
    return manifest


def manifest_checksum(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of everything else in a manifest."""
    rest = {name: value for name, value in manifest.items() if name != "manifest_sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def store_files(manifest: Mapping[str, Any]) -> list[str]:
    """Return the names of the files of a store, besides its manifest."""
    ragged = [f"{name}.offsets.bin" for name, entry in manifest["features"].items() if entry["kind"] == "ragged"]
    return ["offsets.bin", "ids.bin", "ids.offsets.bin", *(f"{name}.bin" for name in manifest["features"]), *ragged]


def check_checksums(file: Path, manifest: Mapping[str, Any]) -> None:
    """Raise a StoreError unless the manifest has no checksums, or one of every file."""
    if "sha256" not in manifest:
        return
    checksums, files = manifest["sha256"], store_files(manifest)
    if not isinstance(checksums, dict):
        raise StoreError(f"{file}: expected the object `sha256`, found {checksums!r:.80}")
    if missing := sorted({*files} - {*checksums}):
        raise StoreError(f"{file}: expected a checksum of every file, found none of {', '.join(missing)}")
    if more := sorted({*checksums} - {*files}):
        raise StoreError(f"{file}: expected checksums of the store's files only, found one of {more[0]!r:.80}")


def check_files(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise a StoreError unless every file has the checksum of the manifest; without checksums nothing is read."""
    for file, expected in manifest.get("sha256", {}).items():
        if (found := sha256(folder / file)) != expected:
            raise StoreError(f"{folder / file}: expected SHA-256 {expected!r:.80}, found {found}")


def check_ids(folder: Path, names: Ragged) -> None:
    """Raise a StoreError unless each client id is UTF-8 and occurs once."""
    seen: set[bytes] = set()
    for i, name in enumerate(names.texts()):
        try:
            id = name.decode()
        except UnicodeDecodeError as error:
            raise StoreError(f"{folder / 'ids.bin'}: expected the id of client {i} as UTF-8, {error}") from None
        if name in seen:
            raise StoreError(f"{folder / 'ids.bin'}: expected each client once, found {id!r} twice")
        seen.add(name)


def check_count(file: Path, name: str, value: Any) -> None:
    """Raise a StoreError unless the value is an integer that can be the size of an array."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**48:
        raise StoreError(f"{file}: expected a count for {name}, found {value!r}")


def check_feature(file: Path, name: str, entry: Any) -> None:
    """Raise a StoreError unless the feature has a name that can be a file name, a known kind and dtype, and a shape."""
    if not NAME.fullmatch(name) or name in ("offsets", "ids"):
        raise StoreError(f"{file}: expected a feature name of letters, digits and _, found {name!r}")
    if not isinstance(entry, dict) or entry.get("kind") not in ("dense", "ragged") or entry.get("dtype") not in DTYPES:
        raise StoreError(f"{file}: expected kind and dtype for the feature {name}, found {entry!r}")
    if entry["kind"] == "ragged":
        check_count(file, f"values of {name}", entry.get("values"))
        check_count(file, f"width of {name}", entry.get("width"))
    elif not isinstance(entry.get("shape"), list):
        raise StoreError(f"{file}: expected a shape for the feature {name}, found {entry.get('shape')!r}")
    else:
        for size in entry["shape"]:
            check_count(file, f"shape of {name}", size)
        if len(entry["shape"]) > MAX_AXES or prod(max(size, 1) for size in entry["shape"]) >= 2**48:
            raise StoreError(f"{file}: expected the shape of an array for {name}, found {entry['shape']!r:.80}")


def map_array(folder: Path, file: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return a raw array, memory-mapped; its file must have exactly the expected size."""
    path = folder / file
    kind = np.dtype(dtype).newbyteorder("<")
    expected = kind.itemsize * prod(shape)
    with open_regular(path) as opened:
        size = os.fstat(opened.fileno()).st_size
        if size != expected:
            raise StoreError(f"{path}: expected {expected} bytes ({dtype} {shape}), found {size}")
        array = np.memmap(opened, kind, "r", shape=shape) if expected else np.zeros(shape, kind)
    if dtype == "bool":
        fact("booleans", [path], lambda: check_booleans(path, array))
    return array


def map_ragged(folder: Path, name: str, dtype: str, rows: int, values: int) -> Ragged:
    """Return a ragged feature, memory-mapped."""
    file = folder / f"{name}.offsets.bin"
    offsets = map_array(folder, file.name, "int64", (rows + 1,))
    if int(offsets[0]) != 0 or int(offsets[-1]) != values:
        raise StoreError(f"{file}: expected offsets from 0 to {values}, found {offsets[0]} to {offsets[-1]}")
    width = fact("longest row", [file], lambda: longest_row(file, offsets))
    return Ragged(map_array(folder, f"{name}.bin", dtype, (values,)), offsets, width)


def longest_row(file: Path, offsets: Int[np.ndarray, "rows+1"]) -> int:
    """Return the length of the longest row, or raise a StoreError if an offset is smaller than the one before."""
    longest = 0
    for start in range(0, len(offsets) - 1, ROWS_PER_CHECK):
        part = np.asarray(offsets[start : start + ROWS_PER_CHECK + 1])
        if (row := first_fall(part)) is not None:
            raise StoreError(
                f"{file}: expected offsets that never fall, found {part[row]} and then {part[row + 1]}, "
                f"row {start + row}"
            )
        longest = max(longest, int(np.diff(part).max(initial=0)))
    return longest


def check_booleans(path: Path, array: np.ndarray) -> None:
    """Raise a StoreError unless every byte is 0 or 1."""
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, len(flat), ROWS_PER_CHECK):
        if (largest := flat[start : start + ROWS_PER_CHECK].max(initial=0)) > 1:
            raise StoreError(f"{path}: expected booleans, bytes 0 or 1, found {largest}")
