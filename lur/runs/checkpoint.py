"""Checkpoints: any pytree of arrays, whole or not at all, and checked before it is believed.

    checkpoints/00000120/
        state/           the arrays, as orbax writes them
        manifest.json    round, names, shapes and dtypes of the arrays, where the logs stand, SHA-256 of each file

A checkpoint is written beside its place and takes its name when every file is on the disk. One that is damaged,
incomplete or ahead of its logs is passed over for the one before it. Nothing is unpickled.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from lur.runs.errors import Damaged, RunError
from lur.runs.files import check, files_of, remove, require_room, sync_folder, write_file
from lur.runs.log import Position, hash_of

FORMAT = "lur-checkpoint"
VERSION = 1
KEEP = 3
"""Checkpoints that stay."""
LARGEST_MANIFEST = 2**26
OVERHEAD = 2**17
"""Bytes that a checkpoint may need besides its arrays."""


class Restored(NamedTuple):
    """A state, the round it is after, and where the logs stood then."""

    state: PyTree
    round: int
    positions: dict[str, Position]


def save(folder: Path, round: int, state: PyTree, positions: Mapping[str, Position], keep: int = KEEP) -> Path:
    """Write the checkpoint of a round, then remove all but the last `keep`. An error leaves the others as they are."""
    final = folder / f"{round:08d}"
    partial = folder / f"{final.name}.partial"
    remove(partial)
    try:
        partial.mkdir(parents=True)
        arrays = named(jax.device_get(state))
        require_room(partial, sum(np.asarray(value).nbytes for _, value in arrays.values()) + OVERHEAD)
        write_arrays(partial / "state", {key: value for key, (_, value) in arrays.items()})
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "round": round,
            "arrays": {key: describe(path, value) for key, (path, value) in arrays.items()},
            "logs": {name: position._asdict() for name, position in positions.items()},
            "files": {name: check(partial / name) for name in files_of(partial)},
        }
        write_file(partial / "manifest.json", json.dumps({**manifest, "sha256": digest(manifest)}, indent=1))
        for path in (partial, *(path for path in partial.rglob("*") if path.is_dir())):
            sync_folder(path)
        remove(final)
        partial.rename(final)
        sync_folder(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    for path in rounds(folder)[:-keep]:
        remove(path)
    return final


def restore(folder: Path, logs: Path, like: PyTree, say: Callable[[str], None]) -> Restored | None:
    """The last good checkpoint, with the structure, shapes and dtypes of `like`; None if there is none.

    A good one has all its files unchanged, and the logs in the folder `logs` still begin as they did when it was
    written. Others are put aside (``damaged-...``), and `say` is told which and why.
    """
    clean(folder)
    for path in reversed(rounds(folder)):
        try:
            return load(path, logs, like)
        except Damaged as error:
            aside = folder / f"damaged-{path.name}"
            remove(aside)
            path.rename(aside)
            say(f"passed over the checkpoint of round {int(path.name):,}: {error}")
    return None


def load(path: Path, logs: Path, like: PyTree) -> Restored:
    """One checkpoint. Raises `Damaged` if it is not as it was written, `RunError` if it is of another run."""
    manifest = read_manifest(path)
    arrays = named(like)
    expected = {key: describe(name, value) for key, (name, value) in arrays.items()}
    if manifest["arrays"] != expected:
        raise RunError(f"{path}: {mismatch(manifest['arrays'], expected)}")
    found = set(files_of(path)) - {"manifest.json"}
    if found != set(manifest["files"]):
        odd = sorted(found ^ set(manifest["files"]))[0]
        raise Damaged(f"{path / odd}: expected {'no such file' if odd in found else 'a file'}, found otherwise")
    for name, entry in manifest["files"].items():
        size = (path / name).stat().st_size
        if size != entry["bytes"]:
            raise Damaged(f"{path / name}: expected {entry['bytes']:,} bytes, found {size:,}")
        if check(path / name) != entry:
            raise Damaged(f"{path / name}: expected SHA-256 {entry['sha256'][:12]}..., found another")
    positions = {name: Position(**entry) for name, entry in manifest["logs"].items()}
    for name, position in positions.items():
        hash_of(logs / name, position)
    try:
        leaves = read_arrays(path / "state", {key: value for key, (_, value) in arrays.items()})
    except Exception as error:  # whatever orbax raises: the files are as written, so this is another version's
        raise RunError(f"{path}: expected what orbax can read, {type(error).__name__}: {error}") from error
    structure = jax.tree.structure(like)
    return Restored(jax.tree.unflatten(structure, leaves), manifest["round"], positions)


def read_manifest(path: Path) -> dict[str, Any]:
    """A checkpoint's manifest, its fields checked."""
    file = path / "manifest.json"
    try:
        if file.stat().st_size > LARGEST_MANIFEST:
            raise Damaged(f"{file}: expected at most {LARGEST_MANIFEST:,} bytes, found {file.stat().st_size:,}")
        manifest = json.loads(file.read_bytes())
        if manifest.pop("sha256") != digest(manifest):
            raise Damaged(f"{file}: expected it as it was written, found another SHA-256")
        if (manifest["format"], manifest["version"]) != (FORMAT, VERSION):
            raise RunError(
                f"{file}: expected {FORMAT} version {VERSION}, found {manifest['format']} version {manifest['version']}"
            )
        if manifest["round"] != int(path.name):
            raise Damaged(f"{file}: expected round {int(path.name)}, found {manifest['round']!r}")
        return manifest
    except FileNotFoundError:
        raise Damaged(f"{file}: expected a manifest, found no such file") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, RunError):
            raise
        raise Damaged(f"{file}: expected a checkpoint's manifest, {type(error).__name__}: {error}") from None


def digest(manifest: Mapping[str, Any]) -> str:
    """What a manifest says, hashed."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def mismatch(found: Any, expected: Mapping[str, Any]) -> str:
    """The first array that is not as expected."""
    for key, entry in expected.items():
        other = found.get(key) if isinstance(found, dict) else None
        if other != entry:
            return f"expected the array {entry}, found {other}"
    return f"expected {len(expected)} arrays, found {len(found)}"


def named(tree: PyTree) -> dict[str, tuple[str, Any]]:
    """The leaves by a key that any file system takes, each with its path in the tree."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {f"array_{k:05d}": (jax.tree_util.keystr(path), leaf) for k, (path, leaf) in enumerate(leaves)}


def describe(path: str, value: Any) -> dict[str, Any]:
    """What the manifest says of an array."""
    return {"path": path, "shape": [*np.shape(value)], "dtype": str(value.dtype)}


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Hand arrays to orbax, which takes none without elements."""
    import orbax.checkpoint as ocp

    full = {key: np.asarray(value) for key, value in arrays.items() if np.size(value)}
    try:
        with silent("absl", "asyncio"), alone() as checkpointer:
            checkpointer.save(path.absolute(), args=ocp.args.StandardSave(full))
    except OSError:
        raise
    except Exception as error:  # tensorstore has its own errors for a disk that refuses
        code = re.search(r"os_error_code='(\d+)'", str(error))
        if code:
            raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error
        raise OSError(f"{path}: could not be written: {first_line(error)}") from error


def read_arrays(path: Path, like: Mapping[str, Any]) -> list[np.ndarray]:
    """The arrays from orbax, of the shapes and dtypes of `like`."""
    import orbax.checkpoint as ocp

    with silent("absl", "asyncio"), alone() as checkpointer:
        full = checkpointer.restore(path.absolute(), args=ocp.args.StandardRestore())
    leaves = []
    for key, value in like.items():
        leaf = np.asarray(full[key]) if np.size(value) else np.zeros(np.shape(value), value.dtype)
        if leaf.shape != np.shape(value) or leaf.dtype != value.dtype:
            raise ValueError(f"{key} is {leaf.dtype}{leaf.shape}, not {value.dtype}{np.shape(value)}")
        leaves.append(leaf)
    return leaves


def alone() -> Any:
    """An orbax checkpointer that waits for no other process: what all have alike, this one reads and writes."""
    import orbax.checkpoint as ocp

    me = jax.process_index()
    options = ocp.options.MultiprocessingOptions(
        primary_host=me, active_processes={me}, barrier_sync_key_prefix=f"process-{me}"
    )
    handler = ocp.StandardCheckpointHandler(multiprocessing_options=options)
    return ocp.Checkpointer(handler, multiprocessing_options=options)


@contextmanager
def silent(*names: str) -> Iterator[None]:
    """Loggers say nothing meanwhile: what they would tell is raised as well."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def first_line(error: BaseException) -> str:
    """An error's first line, not too long."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def rounds(folder: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first."""
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))


def clean(folder: Path) -> None:
    """Remove what a killed process had half written."""
    if folder.is_dir():
        for path in folder.glob("*.partial"):
            remove(path)
