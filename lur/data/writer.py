"""Writing a store, on disk or in memory.

On disk a store is written client by client, and it exists only once it is complete.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from lur.data.ragged import Ragged, first_fall, from_rows
from lur.data.store import DTYPES, FORMAT, NAME, VERSION, Store, feature_length, manifest_checksum, open_store
from lur.data.store_error import StoreError

Examples = Mapping[str, np.ndarray | Sequence[bytes] | Ragged]
"""The examples of a client: each feature as an array, a list of byte strings (text), or a Ragged."""


class Column:
    """A file of raw values that grows, and its SHA-256."""

    def __init__(self, path: Path):
        self.file: BinaryIO = path.open("xb")
        self.hash = hashlib.sha256()
        self.bytes = 0

    def append(self, array: np.ndarray) -> None:
        content = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        self.file.write(content)
        self.hash.update(content)
        self.bytes += len(content)

    def close(self) -> str:
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        return self.hash.hexdigest()


class ClientChecks:
    """The checks of clients that are added to a store, one after the other.

    Args:
      location: the store, for error messages.
      dtypes: the dtypes that its features may have.
    """

    def __init__(self, location: str, dtypes: Sequence[str] = DTYPES):
        self.location, self.dtypes = location, dtypes
        self.seen: set[str] = set()
        self.layout: dict[str, dict[str, Any]] = {}

    def add(self, id: str, examples: Examples) -> tuple[dict[str, np.ndarray | Ragged], int]:
        """Return the features of the next client and its number of examples.

        Raises:
          StoreError: the client occurs twice, has no example, or has other features than the first one.
        """
        if id in self.seen:
            raise StoreError(f"{self.location}: expected each client once, found {id!r} twice")
        arrays = {name: stored_feature(name, feature) for name, feature in examples.items()}
        entries = {name: manifest_entry(name, array, self.dtypes) for name, array in arrays.items()}
        if not arrays:
            raise StoreError(f"{self.location}, client {id!r}: expected at least one feature")
        self.layout = self.layout or entries
        if entries != self.layout:
            raise StoreError(f"{self.location}, client {id!r}: expected the features {self.layout}, found {entries}")
        lengths = {name: feature_length(array) for name, array in arrays.items()}
        if len(set(lengths.values())) != 1 or 0 in lengths.values():
            raise StoreError(
                f"{self.location}, client {id!r}: expected equally many examples (>= 1) of each feature, "
                f"found {lengths}"
            )
        self.seen.add(id)
        return arrays, next(iter(lengths.values()))


class StoreWriter:
    """A writer of stores: ``with StoreWriter(path, about) as writer: writer.add(id, examples)`` for each client.

    The files are written to a temporary folder next to `path`, which is renamed to `path` once the store is complete;
    an error or an interruption leaves nothing behind. All clients must have the features of the first one.

    Args:
      path: the folder to create.
      about: the provenance of the data, stored in the manifest.
      replace: whether to replace an existing store.
    """

    def __init__(self, path: str | Path, about: Mapping[str, Any], *, replace: bool = False):
        self.path, self.about, self.replace = Path(path), dict(about), replace
        if self.path.exists() and not replace:
            raise StoreError(
                f"{self.path}: expected a new store, found an existing one; remove it or choose another name"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix=f".{self.path.name}.", suffix=".partial", dir=self.path.parent))
        self.columns: dict[str, Column] = {}
        self.features: dict[str, dict[str, Any]] = {}
        self.checks = ClientChecks(str(self.path))
        self.clients = self.examples = 0
        for name in ("offsets", "ids", "ids.offsets"):
            self.column(name)
        for name in ("offsets", "ids.offsets"):
            self.columns[name].append(np.zeros(1, np.int64))

    def column(self, name: str) -> Column:
        if name not in self.columns:
            self.columns[name] = Column(self.folder / f"{name}.bin")
        return self.columns[name]

    def add(self, id: str, examples: Examples) -> None:
        """Append a client. A client without examples is an error, because it cannot be trained on."""
        arrays, count = self.checks.add(id, examples)
        if not self.features:
            self.features = {
                name: {**entry, "values": 0, "width": 0} if entry["kind"] == "ragged" else entry
                for name, entry in self.checks.layout.items()
            }
            for name, entry in self.features.items():
                self.column(name)
                if entry["kind"] == "ragged":
                    self.column(f"{name}.offsets").append(np.zeros(1, np.int64))
        self.append(id, arrays, count)

    def append(self, id: str, arrays: Mapping[str, np.ndarray | Ragged], count: int) -> None:
        for name, array in arrays.items():
            if isinstance(array, Ragged):
                self.columns[f"{name}.offsets"].append(
                    np.asarray(array.offsets[1:], np.int64) + self.features[name]["values"]
                )
                self.features[name]["values"] += len(array.values)
                self.features[name]["width"] = max(self.features[name]["width"], array.width)
                self.columns[name].append(array.values)
            else:
                self.columns[name].append(array)
        name = np.frombuffer(id.encode(), np.uint8)
        self.columns["ids"].append(name)
        self.clients, self.examples = self.clients + 1, self.examples + count
        self.columns["offsets"].append(np.array([self.examples], np.int64))
        self.columns["ids.offsets"].append(np.array([self.columns["ids"].bytes], np.int64))

    def finish(self) -> None:
        """Close the files, write the manifest, and rename the temporary folder."""
        if not self.clients:
            raise StoreError(f"{self.path}: expected at least one client, found none")
        checksums = {f"{name}.bin": column.close() for name, column in self.columns.items()}
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "clients": self.clients,
            "examples": self.examples,
            "id_bytes": self.columns["ids"].bytes,
            "features": self.features,
            "sha256": checksums,
            "about": self.about,
        }
        manifest = json.loads(json.dumps(manifest))
        with (self.folder / "manifest.json").open("x") as file:
            json.dump({**manifest, "manifest_sha256": manifest_checksum(manifest)}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        if self.replace and self.path.exists():
            shutil.rmtree(self.path)
        self.folder.rename(self.path)

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            for column in self.columns.values():
                column.file.close()
            shutil.rmtree(self.folder, ignore_errors=True)


def stored_feature(name: str, feature: np.ndarray | Sequence[bytes] | Ragged) -> np.ndarray | Ragged:
    """Return a feature as an array or a Ragged, whose rows must lie within its values."""
    if isinstance(feature, Ragged):
        offsets, end = np.asarray(feature.offsets), len(feature.values)
        if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != end:
            raise StoreError(
                f"the feature {name}: expected offsets from 0 to {end}, found {offsets[:1]} to {offsets[-1:]}"
            )
        if (row := first_fall(offsets)) is not None:
            raise StoreError(
                f"the feature {name}: expected offsets that never fall, found row {row} to end before it begins"
            )
        return feature
    if hasattr(feature, "__array__"):  # numpy's, JAX's and others'
        feature = np.asarray(feature)
        if not feature.ndim:
            raise StoreError(f"the feature {name}: expected one row per example, found a single number")
        return feature
    if not isinstance(feature, Sequence) or not all(isinstance(row, bytes) for row in feature):
        raise StoreError(f"the feature {name}: expected an array or a list of bytes, found {type(feature).__name__}")
    return from_rows(feature)


def manifest_entry(name: str, array: np.ndarray | Ragged, dtypes: Sequence[str] = DTYPES) -> dict[str, Any]:
    """Return the manifest's entry of a feature, whose dtype must be among `dtypes`."""
    values = array.values if isinstance(array, Ragged) else array
    if not NAME.fullmatch(name) or name in ("offsets", "ids"):
        raise StoreError(f"expected a feature name of letters, digits and _, found {name!r}")
    if values.dtype.name not in dtypes:
        raise StoreError(f"the feature {name}: expected a dtype among {', '.join(dtypes)}, found {values.dtype}")
    if isinstance(array, Ragged):
        return {"kind": "ragged", "dtype": values.dtype.name}
    return {"kind": "dense", "dtype": values.dtype.name, "shape": list(array.shape[1:])}


def write_store(
    path: str | Path, clients: Iterable[tuple[str, Examples]], about: Mapping[str, Any], *, replace: bool = False
) -> Store:
    """Write a store to disk and return it, memory-mapped.

    Args:
      path: the folder to create.
      clients: (client id, examples) for each client.
      about: the provenance of the data.
      replace: whether to replace an existing store.
    """
    with StoreWriter(path, about, replace=replace) as writer:
        for id, examples in clients:
            writer.add(id, examples)
    return open_store(path, verify=False)


def in_memory(
    clients: Mapping[Any, Mapping[str, Any]] | Iterable[tuple[Any, Mapping[str, Any]]],
    about: Mapping[str, Any] | None = None,
) -> Store:
    """Return a store in memory.

    Args:
      clients: ``{client: {feature: array}}``, or (client, {feature: array}) for each client. A client's id is text or
        an integer, and a feature an array with one row per example (numpy's or JAX's), a list of byte strings, or a
        Ragged. All clients must have the same features.
      about: the provenance of the data.
    """
    checks = ClientChecks("the store in memory", (*DTYPES, "bfloat16"))  # numpy files have no name for bfloat16
    ids: list[bytes] = []
    parts: dict[str, list[np.ndarray | Ragged]] = {}
    offsets = [0]
    for id, examples in client_items(clients):
        arrays, count = checks.add(id, examples)
        for name, array in arrays.items():
            parts.setdefault(name, []).append(array)
        ids.append(id.encode())
        offsets.append(offsets[-1] + count)
    if not ids:
        raise StoreError("expected at least one client, found none")
    features = {name: concatenated(arrays) for name, arrays in parts.items()}
    return Store(features, np.array(offsets, np.int64), from_rows(ids), dict(about or {}))


def client_items(clients: Any) -> Iterator[tuple[str, Examples]]:
    """Yield (client id, examples) of each client, from a dict or from pairs."""
    items = clients.items() if isinstance(clients, Mapping) else clients
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise StoreError(f"clients must be {{client: {{feature: array}}}} or such pairs, got {type(clients).__name__}")
    for item in items:
        if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Mapping)):
            given = item[1] if isinstance(item, tuple) and len(item) == 2 else item
            raise StoreError(
                f"clients must be {{client: {{feature: array}}}} or such pairs, got a {type(given).__name__} in the "
                f"place of a client's dict of features"
            )
        id, examples = item
        if isinstance(id, bool) or not isinstance(id, str | int | np.integer):
            raise StoreError(f"clients must have ids that are text or integers, got {id!r}")
        yield str(id), examples


def concatenated(parts: Sequence[np.ndarray | Ragged]) -> np.ndarray | Ragged:
    """Return one feature of several clients, end to end."""
    if not isinstance(parts[0], Ragged):
        return np.concatenate([np.asarray(part) for part in parts])
    values = np.concatenate([np.asarray(part.values) for part in parts if isinstance(part, Ragged)])
    lengths = np.concatenate([np.diff(part.offsets) for part in parts if isinstance(part, Ragged)])
    return Ragged(values, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)]))
