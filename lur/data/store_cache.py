"""A cache of generated and prepared stores.

They are in the cache folder, each under a name with a digest of everything it depends on.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from lur.cache_folder import cache_folder
from lur.data.file_facts import sha256
from lur.data.ragged import Ragged
from lur.data.store import Store, open_store, read_manifest, store_files
from lur.data.store_error import StoreError
from lur.data.writer import Examples, write_store

RECIPE = 1
"""Increase this number whenever a generator or a preparation returns other numbers than before."""


def cached(
    name: str, about: Mapping[str, Any], make: Callable[[], Iterable[tuple[str, Examples]]], *, key: Any = None
) -> Store:
    """Return a store from the cache, writing it there first if it is missing.

    Args:
      name: the beginning of the folder's name.
      about: the provenance of the store, part of its identity.
      make: returns the clients to write.
      key: what else identifies the store.
    """
    identity = json.dumps({"recipe": RECIPE, "about": about, "key": key}, sort_keys=True)
    path = cache_folder() / "stores" / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    if not path.exists():
        try:
            return write_store(path, make(), about)
        except OSError:
            if not path.exists():  # otherwise another process has written it meanwhile
                raise
    try:
        return open_store(path)
    except StoreError as error:
        raise StoreError(f"{error}; delete the folder {path}, and it is written again") from error


def is_cached(store: Store) -> bool:
    """Whether a store is one of the cache, which `cached` has written."""
    return store.path is not None and store.path.resolve().parent == (cache_folder() / "stores").resolve()


def digest(store: Store) -> Any:
    """Return what identifies the content of a store: a SHA-256 of its arrays, computed from their bytes.

    For a store on disk, also kinds, dtypes and shapes are part of it, and a file is read once per change.
    """
    if store.path is not None:
        manifest = read_manifest(store.path)
        features = {
            name: [entry["kind"], entry["dtype"], entry.get("shape")] for name, entry in manifest["features"].items()
        }
        return {"features": features, **{file: sha256(store.path / file) for file in store_files(manifest)}}
    hash = hashlib.sha256()
    for name, feature in sorted(store.features.items()):
        hash.update(name.encode())
        for array in (feature.values, feature.offsets) if isinstance(feature, Ragged) else (feature,):
            hash.update(f"{array.dtype}{array.shape}".encode())
            hash.update(np.ascontiguousarray(array).data)
    for array in (store.offsets, store.names.values, store.names.offsets):
        hash.update(np.ascontiguousarray(array).data)
    return hash.hexdigest()
