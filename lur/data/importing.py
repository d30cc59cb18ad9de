"""Importing a file in its published format into a store: `lur data import FORMAT PATH STORE`."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from lur.data.file_facts import open_regular
from lur.data.readers import fedjax_sqlite, leaf_json, samples, tff_hdf5, tff_sqlite
from lur.data.readers.archive import extracted
from lur.data.store import Store, StoreError, open_store
from lur.data.writer import Examples, StoreWriter

Format = Literal["tff-hdf5", "tff-sqlite", "fedjax", "leaf", "tfds", "roles-json", "users-json", "pen-npz"]
Clients = Iterator[tuple[str, Examples]]
ARCHIVES = (".tar", ".tgz", ".tbz2", ".txz", ".zip")
REQUIRED_FEATURES: Mapping[str, set[str]] = {
    "emnist": {"pixels", "label"},
    "cifar100": {"image", "label"},
    "shakespeare": {"snippets"},
    "stackoverflow": {"tokens", "title", "tags"},
}
"""The features by which each of the paper's datasets is recognised."""


@dataclass(frozen=True)
class Options:
    """Options of an import; all except `split` are for the format ``tfds``.

    Attributes:
      split: the split to read, in formats whose files have several.
      partition: how examples are partitioned among clients; None for the dataset's usual partition.
      clients: the number of clients.
      alpha: the concentration of the Dirichlet partition.
      column: the feature whose values identify clients.
      data_dir: the folder of prepared TFDS datasets.
      seed: the seed of the partition.
    """

    split: str = "train"
    partition: Literal["pachinko", "dirichlet", "column", "iid", "role"] | None = None
    clients: int | None = None
    alpha: float = 0.1
    column: str | None = None
    data_dir: Path | None = None
    seed: int = 0


class Reader(NamedTuple):
    """A format and its reader.

    Attributes:
      about: a description of the format.
      clients: ``clients(path, options)`` yields (client id, examples).
      total: ``total(path, options)`` returns the number of clients, or None if counting them is expensive.
      suffixes: the suffixes of the format's files, by which they are found inside an archive.
    """

    about: str
    clients: Callable[[Path, Options], Clients]
    total: Callable[[Path, Options], int | None]
    suffixes: tuple[str, ...] = ()


def tfds_clients(path: Path, options: Options) -> Clients:
    """Return the clients of a TFDS dataset, given by its name or its folder."""
    from lur.data.readers import tfds_source

    return tfds_source.clients(
        path if path.exists() else str(path),
        split=options.split,
        data_dir=options.data_dir,
        partition=options.partition,
        num_clients=options.clients,
        alpha=options.alpha,
        column=options.column,
        seed=options.seed,
    )


def unknown_total(path: Path, options: Options) -> None:
    """Return None: counting the clients of this format is expensive."""


READERS: Mapping[Format, Reader] = {
    "tff-hdf5": Reader(
        "TensorFlow Federated's HDF5 (fed_emnist_train.h5, ..., also inside .tar.bz2)",
        lambda path, options: tff_hdf5.clients(path),
        lambda path, options: tff_hdf5.count(path),
        (".h5", ".hdf5"),
    ),
    "tff-sqlite": Reader(
        "TensorFlow Federated's SQLite, compressed with LZMA or not (emnist_all.sqlite.lzma, ...); --split all_train",
        lambda path, options: tff_sqlite.clients(path, options.split),
        lambda path, options: tff_sqlite.count(path, options.split),
        (".sqlite", ".lzma", ".xz"),
    ),
    "fedjax": Reader(
        "FedJAX's SQLite",
        lambda path, options: fedjax_sqlite.clients(path),
        lambda path, options: fedjax_sqlite.count(path),
        (".sqlite",),
    ),
    "leaf": Reader(
        "LEAF's JSON, a file or a folder of them",
        lambda path, options: leaf_json.clients(path),
        lambda path, options: leaf_json.count(path),
        (".json",),
    ),
    "tfds": Reader(
        "TensorFlow Datasets, prepared as array_record: a name (cifar100) or a folder, split by --partition",
        tfds_clients,
        unknown_total,
    ),
    "roles-json": Reader(
        "{split: {role: [speech, ...]}} as JSON, .gz or not",
        lambda path, options: samples.roles_json(path, options.split),
        unknown_total,
    ),
    "users-json": Reader(
        "{user: [{tokens, title, tags, ...}, ...]} as JSON, .gz or not",
        lambda path, options: samples.users_json(path),
        unknown_total,
    ),
    "pen-npz": Reader(
        "pixels, label and writer as NumPy's .npz",
        lambda path, options: samples.pen_npz(path),
        unknown_total,
    ),
}


def import_store(
    format: Format,
    path: str | Path,
    store: str | Path,
    options: Options = Options(),  # noqa: B008
    report: Callable[[int, int | None], None] = lambda done, total: None,
) -> Store:
    """Read a file into a new store; an error leaves no store behind.

    A client without examples cannot be trained on: it is left out and counted in ``about["empty_clients"]``.

    Args:
      format: the format of the file.
      path: the file, or an archive with it; for ``tfds`` also the name of a dataset.
      store: the folder to create.
      options: which split, and for ``tfds`` how to partition examples among clients.
      report: ``report(done, total)`` is called after each client; `total` is None if it is unknown.

    Returns:
      The new store.
    """
    if format not in READERS:
        raise ValueError(f"format must be one of {', '.join(get_args(Format))}, got {format!r}")
    path, reader = Path(path), READERS[format]
    if format != "tfds" and not path.exists():
        raise StoreError(f"{path}: expected a {format} file, found nothing")
    if Path(store).exists():
        raise StoreError(f"{store}: expected a new store, found an existing one; remove it or choose another name")
    with unpacked_file(path, reader, options.split) as file:
        about: dict[str, Any] = {
            "dataset": "other",
            "generated": False,
            "format": format,
            "source": file.name,
            "split": options.split,
            **({"sha256": sha256(path)} if path.is_file() else {}),
        }
        if format == "tfds":
            about["partition"] = {
                name: getattr(options, name) for name in ("partition", "clients", "alpha", "column", "seed")
            }
        with StoreWriter(store, about) as out:
            total = reader.total(file, options)
            empty = 0
            for done, (id, examples) in enumerate(reader.clients(file, options), start=1):
                if not examples:
                    empty += 1
                else:
                    if not out.clients:
                        out.about["dataset"] = dataset_of(set(examples))
                    out.add(id, examples)
                report(done, total)
            if empty:
                out.about["empty_clients"] = empty
            if empty and not out.clients:
                raise StoreError(f"{path}: expected at least one client with examples, found {empty} without")
    return open_store(store)


def dataset_of(features: set[str]) -> str:
    """Return the paper's dataset that has these features, or "other"."""
    return next((name for name, required in REQUIRED_FEATURES.items() if required <= features), "other")


@contextmanager
def unpacked_file(path: Path, reader: Reader, split: str) -> Iterator[Path]:
    """Yield the file itself, or the file of this format and split inside an archive."""
    if not (path.is_file() and reader.suffixes and ({*path.suffixes} & {*ARCHIVES})):
        yield path
        return
    with extracted(path) as folder:
        candidates = sorted(file for file in folder.rglob("*") if file.suffix in reader.suffixes)
        chosen = [file for file in candidates if file.stem.endswith(split)] if len(candidates) > 1 else candidates
        if len(chosen) != 1:
            names = ", ".join(file.name for file in candidates) or "none"
            raise StoreError(f"{path}: expected one {' or '.join(reader.suffixes)} for split {split!r}, found {names}")
        yield chosen[0]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in constant memory."""
    try:
        with open_regular(path, follow=True) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StoreError(f"{path}: expected a readable file, {error}") from error
