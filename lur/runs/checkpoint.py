"""Checkpoints: any pytree of arrays, written completely or not at all, and verified before it is used.

    checkpoints/00000120/
        state/           the arrays, as orbax writes them (`lur.runs.orbax_arrays`)
        manifest.json    round; path, shape and dtype of each array; positions of the logs; SHA-256 of each file

A checkpoint is written under a temporary name and renamed when every file is on the disk. A checkpoint that is
damaged, incomplete or ahead of its logs is skipped, and the one before it is used. Nothing is unpickled.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from lur.regular_files import kind_of, read_regular
from lur.runs.errors import Damaged, RunError, excerpt
from lur.runs.files import (
    Position,
    checksum,
    hash_prefix,
    json_digest,
    list_files,
    remove_folder,
    require_descriptors,
    require_disk_space,
    sync_folder,
    write_file,
)
from lur.runs.orbax_arrays import read_arrays, write_arrays

FORMAT = "lur-checkpoint"
VERSION = 1
KEEP = 3
"""Number of checkpoints that stay."""
LARGEST_MANIFEST = 2**26
OVERHEAD = 2**17
"""Bytes that a checkpoint may need in addition to its arrays."""


class Restored(NamedTuple):
    """A restored checkpoint.

    Attributes:
      state: the pytree that was saved.
      round: the number of rounds after which it was saved.
      positions: by file name, how long each log was then.
    """

    state: PyTree
    round: int
    positions: dict[str, Position]


def save(folder: Path, round: int, state: PyTree, positions: Mapping[str, Position], keep: int = KEEP) -> Path:
    """Write the checkpoint of a round, then remove all but the last `keep`. An error leaves the others as they are.

    Args:
      folder: the folder of all checkpoints of the run.
      round: the number of rounds done.
      state: the pytree to save.
      positions: by file name, the positions of the logs, which are already on the disk.
      keep: how many checkpoints stay.

    Returns:
      The folder of the new checkpoint.
    """
    final = folder / f"{round:08d}"
    partial = folder / f"{final.name}.partial"
    remove_folder(partial)
    try:
        partial.mkdir(parents=True)
        require_descriptors(partial)
        leaves = leaves_by_key(jax.device_get(state))
        require_disk_space(partial, sum(np.asarray(value).nbytes for _, value in leaves.values()) + OVERHEAD)
        write_arrays(partial / "state", {key: value for key, (_, value) in leaves.items()})
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "round": round,
            "arrays": {key: array_entry(path, value) for key, (path, value) in leaves.items()},
            "logs": {name: position._asdict() for name, position in positions.items()},
            "files": {name: checksum(partial / name) for name in list_files(partial)},
        }
        write_file(partial / "manifest.json", json.dumps({**manifest, "sha256": json_digest(manifest)}, indent=1))
        for path in (partial, *(path for path in partial.rglob("*") if path.is_dir())):
            sync_folder(path)
        remove_folder(final)
        partial.rename(final)
        sync_folder(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    for path in checkpoint_folders(folder)[:-keep]:
        remove_folder(path)
    return final


def restore(folder: Path, logs: Path, like: PyTree, say: Callable[[str], None]) -> Restored | None:
    """Return the last intact checkpoint, or None if there is none.

    An intact checkpoint has all its files unchanged, and its logs still begin as they did when it was written.
    Damaged checkpoints are renamed to ``damaged-...`` and reported.

    Args:
      folder: the folder of all checkpoints of the run.
      logs: the folder of the logs.
      like: a pytree of the structure, shapes and dtypes that the state must have.
      say: called with a sentence about each damaged checkpoint.
    """
    remove_partial(folder)
    for path in reversed(checkpoint_folders(folder)):
        try:
            return load(path, logs, like)
        except Damaged as error:
            aside = folder / f"damaged-{path.name}"
            remove_folder(aside)
            path.rename(aside)
            say(f"skipped the checkpoint of round {int(path.name):,}: {error}")
    return None


def load(path: Path, logs: Path, like: PyTree) -> Restored:
    """Return one checkpoint; the arguments are those of `restore`.

    Raises:
      Damaged: its files are not as they were written.
      RunError: it is intact, and belongs to another run or another version.
    """
    if (kind := kind_of(path)) != "a folder":
        raise Damaged(f"{path}: expected the folder of a checkpoint, found {kind}")
    manifest = read_manifest(path)
    leaves = leaves_by_key(like)
    expected = {key: array_entry(name, value) for key, (name, value) in leaves.items()}
    if manifest["arrays"] != expected:
        raise RunError(f"{path}: {first_mismatch(manifest['arrays'], expected)}")
    check_files(path, manifest["files"])
    positions = read_positions(path / "manifest.json", manifest["logs"])
    for name, position in positions.items():
        hash_prefix(logs / name, position)
    try:
        arrays = read_arrays(path / "state", {key: value for key, (_, value) in leaves.items()})
    except ModuleNotFoundError:
        raise
    except Exception as error:  # of any kind: the files are unchanged, so another version of orbax wrote them
        raise RunError(f"{path}: orbax cannot read the arrays, {type(error).__name__}: {error}") from error
    return Restored(jax.tree.unflatten(jax.tree.structure(like), arrays), manifest["round"], positions)


def read_manifest(path: Path) -> dict[str, Any]:
    """Return a checkpoint's manifest, its fields verified."""
    file = path / "manifest.json"
    try:
        manifest = json.loads(read_regular(file, LARGEST_MANIFEST, error=Damaged))
        if manifest.pop("sha256") != json_digest(manifest):
            raise Damaged(f"{file}: expected the SHA-256 that it records, found another")
        if (manifest["format"], manifest["version"]) != (FORMAT, VERSION):
            raise RunError(
                f"{file}: expected {FORMAT} version {VERSION}, found {manifest['format']} version {manifest['version']}"
            )
        if manifest["round"] != int(path.name):
            raise Damaged(f"{file}: expected round {int(path.name)}, found {manifest['round']!r}")
        for name in ("arrays", "logs", "files"):
            if not isinstance(manifest[name], dict):
                raise Damaged(f"{file}: expected an object as {name}, found {excerpt(manifest[name])}")
        return manifest
    except FileNotFoundError:
        raise Damaged(f"{file}: expected a manifest, found no such file") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, RunError):
            raise
        raise Damaged(f"{file}: expected a checkpoint's manifest, {type(error).__name__}: {error}") from None


def read_positions(file: Path, entries: Mapping[str, Any]) -> dict[str, Position]:
    """Return the positions of logs that a file records; `Damaged` is raised unless they are such."""
    positions = {}
    for name, entry in entries.items():
        fields = entry if isinstance(entry, dict) else {}
        size, sha256 = fields.get("bytes"), fields.get("sha256")
        if Path(name).name != name or type(size) is not int or size < 0 or not isinstance(sha256, str):
            raise Damaged(f"{file}: expected the position of a log, found {excerpt(name)}: {excerpt(entry)}")
        positions[name] = Position(size, sha256)
    return positions


def first_mismatch(stored: Any, expected: Mapping[str, Any]) -> str:
    """Return a sentence about the first array that is not as expected."""
    for key, entry in expected.items():
        other = stored.get(key) if isinstance(stored, dict) else None
        if other != entry:
            return f"expected the array {entry}, found {other}"
    return f"expected {len(expected)} arrays, found {len(stored)}"


def check_files(path: Path, entries: Mapping[str, Any]) -> None:
    """Raise `Damaged` unless a checkpoint has exactly the files of its manifest, unchanged."""
    present = set(list_files(path)) - {"manifest.json"}
    if different := sorted(present ^ set(entries)):
        name = different[0]
        raise Damaged(f"{path / name}: " + ("expected no such file" if name in present else "the file is missing"))
    for name, entry in entries.items():
        found = checksum(path / name)
        if found != entry:
            fields = entry if isinstance(entry, dict) else {}
            if found["bytes"] != fields.get("bytes"):
                raise Damaged(f"{path / name}: expected {fields.get('bytes')} bytes, found {found['bytes']}")
            raise Damaged(f"{path / name}: expected SHA-256 {str(fields.get('sha256'))[:12]}..., found another")


def leaves_by_key(tree: PyTree) -> dict[str, tuple[str, Any]]:
    """Return a tree's leaves, each with its path, by keys that are valid file names."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {f"array_{k:05d}": (jax.tree_util.keystr(path), leaf) for k, (path, leaf) in enumerate(leaves)}


def array_entry(path: str, value: Any) -> dict[str, Any]:
    """Return the manifest's entry of an array: its path in the tree, its shape and its dtype."""
    return {"path": path, "shape": [*np.shape(value)], "dtype": str(value.dtype)}


def checkpoint_folders(folder: Path) -> list[Path]:
    """Return the paths of a run's checkpoints, oldest first. One that is no folder is no intact checkpoint."""
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))


def remove_partial(folder: Path) -> None:
    """Remove what a killed process left half written."""
    if folder.is_dir():
        for path in folder.glob("*.partial"):
            remove_folder(path)
