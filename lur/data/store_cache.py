"""Stores that lur makes itself (generated, or prepared from a user's), kept between runs.

They live in the cache folder under a name that holds a digest of everything they depend on.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from lur.cache_folder import cache_folder
from lur.data.ragged import Ragged
from lur.data.store import Store, open_store, read_manifest
from lur.data.writer import Examples, write_store

RECIPE = 1
"""Raised whenever a generator or a preparation gives other numbers than before."""


def cached(
    name: str, about: Mapping[str, Any], make: Callable[[], Iterable[tuple[str, Examples]]], *, key: Any = None
) -> Store:
    """The store that `about` (and `key`) describe: from the cache, or made and put there."""
    text = json.dumps({"recipe": RECIPE, "about": about, "key": key}, sort_keys=True)
    path = cache_folder() / "stores" / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if not path.exists():
        try:
            return write_store(path, make(), about)
        except OSError:
            if not path.exists():  # else another process was faster
                raise
    return open_store(path)


def digest(store: Store) -> Any:
    """What identifies a store's content: its files' checksums, made anew if it is in memory."""
    if store.path is not None:
        return read_manifest(store.path)["sha256"]
    hash = hashlib.sha256()
    for name, feature in sorted(store.features.items()):
        hash.update(name.encode())
        for array in (feature.values, feature.offsets) if isinstance(feature, Ragged) else (feature,):
            hash.update(f"{array.dtype}{array.shape}".encode())
            hash.update(np.ascontiguousarray(array).data)
    for array in (store.offsets, store.names.values, store.names.offsets):
        hash.update(np.ascontiguousarray(array).data)
    return hash.hexdigest()
