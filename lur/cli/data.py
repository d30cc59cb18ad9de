"""`lur data`: import, inspect and list client stores."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from lur.cli.output import Json, check_json, printable, printer, progress_bar, write_json


def import_(
    format: tyro.conf.Positional[
        Literal["tff-hdf5", "tff-sqlite", "fedjax", "leaf", "tfds", "roles-json", "users-json", "pen-npz"]
    ],
    path: tyro.conf.Positional[Path],
    store: tyro.conf.Positional[Path],
    split: str = "train",
    partition: Literal["pachinko", "dirichlet", "column", "iid", "role"] | None = None,
    clients: int | None = None,
    alpha: float = 0.1,
    column: str | None = None,
    data_dir: Path | None = None,
    seed: int = 0,
    quiet: bool = False,
    json: Json = None,
) -> int:
    """Read a dataset into a new store: lur data import tff-hdf5 fed_emnist_train.h5 femnist.store

    Args:
        format: Format of the file; `lur data list` describes the formats.
        path: The file, archive or folder (with tfds also the name of a dataset).
        store: The folder to create.
        split: The split to read, if a file has several.
        partition: tfds: how examples are assigned to clients.
        clients: tfds: number of clients.
        alpha: tfds: parameter of the Dirichlet distribution.
        column: tfds: the feature that identifies the client.
        data_dir: tfds: folder of prepared datasets.
        seed: tfds: random seed of the partition.
        quiet: Print nothing.
    """
    from lur.data.importing import Options, import_store

    check_json(json)
    options = Options(split, partition, clients, alpha, column, data_dir, seed)
    with progress_bar(quiet) as bar:
        line = bar.add_task("clients", total=None)
        imported = import_store(
            format, path, store, options, lambda done, total: bar.update(line, completed=done, total=total)
        )
    empty = imported.about.get("empty_clients", 0)
    left_out = f"; {empty:,} without examples left out" if empty else ""
    printer(quiet, json)(f"{store}: {imported.clients:,} clients, {imported.examples:,} examples{left_out}")
    write_json(
        json, {"store": store, "clients": imported.clients, "examples": imported.examples, "empty_clients": empty}
    )
    return 0


def info(
    store: tyro.conf.Positional[Path],
    verify: bool = False,
    json: Json = None,
) -> int:
    """Describe a store: its counts, features, sizes and provenance: lur data info femnist.store

    Args:
        store: The folder of the store.
        verify: Also read every file and verify its checksum.
    """
    import numpy as np

    from lur.data.importing import sha256
    from lur.data.store import StoreError, open_store, read_manifest

    opened = open_store(store)
    manifest = read_manifest(store)
    if verify:
        if "sha256" not in manifest:
            raise StoreError(f"{store / 'manifest.json'}: expected checksums to verify, found none")
        for file, expected in manifest["sha256"].items():
            found = sha256(store / Path(file).name)
            if found != expected:
                raise StoreError(f"{store / Path(file).name}: expected SHA-256 {expected}, found {found}")
    if json is not None:
        write_json(json, manifest)
        return 0
    least, median, most = np.quantile(opened.sizes, [0, 0.5, 1])
    print(f"{store}: {opened.clients:,} clients, {opened.examples:,} examples")
    print(f"  per client   {least:,.0f} to {most:,.0f}, median {median:,.0f}")
    for name, entry in manifest["features"].items():
        shape = f"rows of up to {entry['width']}" if entry["kind"] == "ragged" else str(tuple(entry["shape"]))
        print(printable(f"  {name:12} {entry['dtype']} {shape}"))
    for name, value in manifest["about"].items():
        print(f"  {printable(name):12} {printable(value)}")
    if verify:
        has_own = "manifest_sha256" in manifest
        print(f"  all checksums match{'' if has_own else ', except that the manifest has none of itself'}")
    return 0


def list_(json: Json = None) -> int:
    """List the formats that can be imported and the built-in data of each task: lur data list"""
    from lur.data.importing import READERS
    from lur.tasks.built_in import GENERATORS

    if json is not None:
        formats = {name: reader.about for name, reader in READERS.items()}
        write_json(json, {"formats": formats, "generated": GENERATORS})
        return 0
    print("formats:")
    for name, reader in READERS.items():
        print(f"  {name:12} {reader.about}")
    print("generated data, which `lur train` uses when no store is given:")
    for name, module in GENERATORS.items():
        print(f"  {name:14} lur.data.generate.{module}")
    return 0


def show(
    task: tyro.conf.Positional[str],
    out: Path | None = None,
    store: Path | None = None,
    clients: Annotated[int, tyro.conf.arg(help="Number of clients to show.")] = 40,
    heterogeneity: float = 1.0,
    seed: int = 0,
) -> int:
    """Draw a contact sheet of a task's data as a PNG: lur data show femnist

    Args:
        task: femnist, cifar100, shakespeare, stackoverflow_nwp or stackoverflow_tp.
        out: File of the picture; by default TASK.png.
        store: Show this imported store instead of the built-in data.
        heterogeneity: Heterogeneity of the built-in data.
        seed: Random seed of the built-in data.
    """
    from itertools import islice

    from lur.analysis.contact_sheets import draw
    from lur.data.requirements import feature_list
    from lur.data.store import Ragged, StoreError, open_store
    from lur.tasks.built_in import DATASETS, generated_store
    from lur.training.configuration import did_you_mean

    if task not in DATASETS:
        raise ValueError(f"task must be one of {', '.join(DATASETS)}, got {task!r}{did_you_mean(task, DATASETS)}")
    dataset = DATASETS[task]
    opened = generated_store(dataset, clients, heterogeneity, seed) if store is None else open_store(store)
    sample = [
        (id, {name: [*f.texts()] if isinstance(f, Ragged) else f for name, f in features.items()})
        for id, features in islice(opened.items(), clients)
    ]
    source = f"generated, heterogeneity {heterogeneity:g}, seed {seed}" if store is None else str(store)
    try:
        print(draw(dataset, sample, out or Path(f"{task}.png"), f"{task}: {source}"))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        if store is None:
            raise
        found = feature_list(opened)
        raise StoreError(f"{store}: expected the features of {dataset}, found {found}") from error
    return 0


COMMANDS = {"import": import_, "info": info, "list": list_, "show": show}
