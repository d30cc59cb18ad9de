"""The client store: every federated dataset in one layout, in memory or memory-mapped.

Examples lie flat, client after client: one array per feature, and N + 1 offsets, so that client i owns
the examples ``offsets[i]:offsets[i + 1]``. A feature is dense, shape (n, ...), or ragged (text, bags of
words). On disk a store is a folder of raw little-endian arrays and a manifest:

    manifest.json      format, counts, dtypes, shapes, SHA-256 of each file, provenance
    offsets.bin        int64 (N + 1,)
    ids.bin, ids.offsets.bin            the clients' ids, UTF-8, laid end to end
    <feature>.bin[, <feature>.offsets.bin]

Opening one maps the files and reads the manifest alone; `lur.data.writer` makes one, whole or not at all.
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
    """A file that is not what it should be: names the file, the client where known, and what was expected."""


@dataclass(frozen=True)
class Store:
    """Clients and their examples. `about` says where they come from; `path` is the folder, if there is one."""

    features: Mapping[str, Feature]
    offsets: Int[np.ndarray, "N+1"]
    names: Ragged
    about: Mapping[str, Any]
    path: Path | None = None

    @property
    def clients(self) -> int:
        """N."""
        return len(self.offsets) - 1

    @property
    def examples(self) -> int:
        """n, over all clients."""
        return int(self.offsets[-1])

    @property
    def widths(self) -> dict[str, int]:
        """The longest row of each ragged feature."""
        return {name: feature.width for name, feature in self.features.items() if isinstance(feature, Ragged)}

    @property
    def sizes(self) -> Int[np.ndarray, "N"]:
        """n_i, the number of examples of each client."""
        return np.diff(self.offsets)

    def id(self, i: int) -> str:
        """The id of client i."""
        try:
            return self.names.text(i).decode()
        except UnicodeDecodeError as error:
            raise StoreError(f"{self.path}: expected the id of client {i} as UTF-8, {error}") from None

    def client(self, i: int) -> dict[str, Feature]:
        """The examples of client i."""
        return self.slice(int(self.offsets[i]), int(self.offsets[i + 1]))

    def slice(self, start: int, stop: int) -> dict[str, Feature]:
        """Examples start..stop-1, whoever owns them."""
        return {
            name: feature.rows(start, stop) if isinstance(feature, Ragged) else np.asarray(feature[start:stop])
            for name, feature in self.features.items()
        }

    def items(self) -> Iterator[tuple[str, dict[str, Feature]]]:
        """All clients in order, each as (id, examples)."""
        for i in range(self.clients):
            yield self.id(i), self.client(i)


def feature_length(feature: Feature) -> int:
    """The number of examples that a feature holds."""
    return feature.size if isinstance(feature, Ragged) else len(feature)


def open_store(path: str | Path) -> Store:
    """A store on disk, memory-mapped. Sizes are checked against the manifest; the examples are not read."""
    folder = Path(path)
    manifest = read_manifest(folder)
    clients, examples = manifest["clients"], manifest["examples"]
    offsets = mapped(folder, "offsets.bin", "int64", (clients + 1,))
    if int(offsets[0]) != 0 or int(offsets[-1]) != examples or np.diff(offsets).min(initial=1) < 1:
        raise StoreError(
            f"{folder / 'offsets.bin'}: expected offsets that rise from 0 to {examples}, by 1 or more for each client"
        )
    names = mapped_ragged(folder, "ids", "uint8", clients, manifest["id_bytes"])
    features: dict[str, Feature] = {}
    for name, entry in manifest["features"].items():
        if entry["kind"] == "ragged":
            features[name] = mapped_ragged(folder, name, entry["dtype"], examples, entry["values"], entry["width"])
        else:
            features[name] = mapped(folder, f"{name}.bin", entry["dtype"], (examples, *entry["shape"]))
    return Store(features, offsets, names, manifest["about"], folder)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a store, checked field by field: it may come from anywhere."""
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
    """A count must be an integer that an array can have."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**48:
        raise StoreError(f"{file}: expected a count for {name}, found {value!r}")


def check_feature(file: Path, name: str, entry: Any) -> None:
    """A feature: a plain name (it becomes a file's name), a known kind and dtype, a shape."""
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


def mapped(folder: Path, file: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """A raw array, memory-mapped, of exactly the size expected."""
    path = folder / file
    kind = np.dtype(dtype).newbyteorder("<")
    expected = kind.itemsize
    for size in shape:
        expected *= size
    found = path.stat().st_size if path.is_file() else None
    if found != expected:
        raise StoreError(
            f"{path}: expected {expected} bytes ({dtype} {shape}), found {'none' if found is None else found}"
        )
    if expected == 0:
        return np.zeros(shape, kind)
    return np.memmap(path, kind, "r", shape=shape)


def mapped_ragged(folder: Path, name: str, dtype: str, rows: int, values: int, width: int | None = None) -> Ragged:
    """A ragged feature, memory-mapped."""
    offsets = mapped(folder, f"{name}.offsets.bin", "int64", (rows + 1,))
    if int(offsets[0]) != 0 or int(offsets[-1]) != values:
        raise StoreError(f"{folder / f'{name}.offsets.bin'}: expected offsets from 0 to {values}")
    return Ragged(mapped(folder, f"{name}.bin", dtype, (values,)), offsets, width)
