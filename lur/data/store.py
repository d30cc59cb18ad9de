"""The client store: every federated dataset in one layout, in memory or memory-mapped.

A feature is one array over the examples of all clients, client after client: client i owns the examples
``offsets[i]:offsets[i + 1]``. A feature is dense, of shape (n, ...), or ragged (text, bags of words). On disk a store
is a folder of raw little-endian arrays and a manifest:

    manifest.json      format, counts, dtypes, shapes, SHA-256 of each file, provenance
    offsets.bin        int64 (N + 1,)
    ids.bin, ids.offsets.bin            the client ids, UTF-8, end to end
    <feature>.bin[, <feature>.offsets.bin]

Opening a store reads the manifest and maps the files. `lur.data.writer` writes a store atomically.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from lur.data.ragged import Ragged

FORMAT = "lur-store"
VERSION = 1
NAME = re.compile(r"[A-Za-z0-9_]+")
DTYPES = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool")

Feature = Shaped[np.ndarray, "n ..."] | Ragged


class StoreError(ValueError):
    """An error in a file: the message names the file, the client if it is known, and what was expected."""


@dataclass(frozen=True)
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


def feature_length(feature: Feature) -> int:
    """Return the number of examples of a feature."""
    return feature.size if isinstance(feature, Ragged) else len(feature)


def open_store(path: str | Path) -> Store:
    """Return a store on disk, memory-mapped.

    File sizes are checked against the manifest; the examples are not read.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    clients, examples = manifest["clients"], manifest["examples"]
    offsets = map_array(folder, "offsets.bin", "int64", (clients + 1,))
    if int(offsets[0]) != 0 or int(offsets[-1]) != examples or np.diff(offsets).min(initial=1) < 1:
        raise StoreError(
            f"{folder / 'offsets.bin'}: expected offsets that rise from 0 to {examples}, by at least 1 per client"
        )
    names = map_ragged(folder, "ids", "uint8", clients, manifest["id_bytes"])
    features: dict[str, Feature] = {}
    for name, entry in manifest["features"].items():
        if entry["kind"] == "ragged":
            features[name] = map_ragged(folder, name, entry["dtype"], examples, entry["values"], entry["width"])
        else:
            features[name] = map_array(folder, f"{name}.bin", entry["dtype"], (examples, *entry["shape"]))
    return Store(features, offsets, names, manifest["about"], folder)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a store. Every field is checked, since the file may come from anywhere."""
    file = folder / "manifest.json"
    if not folder.is_dir():
        raise StoreError(
            f"{folder}: expected the folder of a store, found {'a file' if folder.exists() else 'nothing'}"
        )
    if not file.is_file():
        raise StoreError(f"{folder}: expected a store, found no manifest.json in it")
    try:
        manifest = json.loads(file.read_bytes())
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
    for name, entry in manifest["features"].items():
        check_feature(file, name, entry)
    return manifest


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


def map_array(folder: Path, file: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return a raw array, memory-mapped; its file must have exactly the expected size."""
    path = folder / file
    kind = np.dtype(dtype).newbyteorder("<")
    expected = kind.itemsize
    for axis in shape:
        expected *= axis
    size = path.stat().st_size if path.is_file() else None
    if size != expected:
        raise StoreError(
            f"{path}: expected {expected} bytes ({dtype} {shape}), found {'no file' if size is None else size}"
        )
    if expected == 0:
        return np.zeros(shape, kind)
    return np.memmap(path, kind, "r", shape=shape)


def map_ragged(folder: Path, name: str, dtype: str, rows: int, values: int, width: int | None = None) -> Ragged:
    """Return a ragged feature, memory-mapped."""
    offsets = map_array(folder, f"{name}.offsets.bin", "int64", (rows + 1,))
    if int(offsets[0]) != 0 or int(offsets[-1]) != values:
        raise StoreError(f"{folder / f'{name}.offsets.bin'}: expected offsets from 0 to {values}")
    return Ragged(map_array(folder, f"{name}.bin", dtype, (values,)), offsets, width)
