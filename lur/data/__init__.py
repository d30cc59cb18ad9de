"""Client stores: readers, writers, preparation and sampling.

Public names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lur.data import prepare as prepare
    from lur.data.columns import from_columns as from_columns
    from lur.data.columns import from_frame as from_frame
    from lur.data.splits import split_clients as split_clients
    from lur.data.splits import split_examples as split_examples
    from lur.data.store import open_store as open_store
    from lur.data.writer import in_memory as in_memory
    from lur.data.writer import write_store as write_store

_NAMES = {
    "from_columns": "lur.data.columns",
    "from_frame": "lur.data.columns",
    "in_memory": "lur.data.writer",
    "open_store": "lur.data.store",
    "split_clients": "lur.data.splits",
    "split_examples": "lur.data.splits",
    "write_store": "lur.data.writer",
}


def __getattr__(name: str) -> Any:
    if name == "prepare":
        return import_module("lur.data.prepare")
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'lur.data' has no attribute {name!r}")
