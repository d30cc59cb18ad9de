"""A run folder, which one process at a time may lock.

    run.json            format and version of the folder, kind of run, digest of its data
    config.toml         the resolved configuration
    environment.json    versions, devices, git revision, and how they changed when the run was resumed
    log.jsonl           one line per round; other logs are evaluation.jsonl and timing.jsonl
    checkpoints/        see `lur.runs.checkpoint`
    result.json         how the run ended; absent before that
    figures/            of a run that has ended, see `lur.runs.figures`
    lock                locked (`flock`) by the process that runs; the lock of a killed process is free

run.json is written last: a folder without it holds no run yet.
"""

import hashlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lur._version import __version__
from lur.data.store import Store
from lur.data.store_cache import digest
from lur.runs.errors import RunError
from lur.runs.files import write_file

FORMAT = "lur-run"
VERSION = 1
LOCK_TIMEOUT = 1.0
"""Seconds to wait for a lock: a reader may be testing it, or a killed process may be about to end."""
MAX_FILE_BYTES = 2**24
BEFORE_RUN = ("lock", "config.toml", "environment.json")
"""Files that may exist before run.json does."""


@contextmanager
def lock_folder(path: Path) -> Iterator[None]:
    """Create the folder if it does not exist, and lock it against other processes."""
    if path.exists() and not path.is_dir():
        raise RunError(f"{path}: expected the folder of a run, found a file")
    path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if not _try_lock(descriptor, exclusive=True, timeout=LOCK_TIMEOUT):
            owner = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
            raise RunError(f"{path}: expected a run that no other process uses, found it locked by {owner}")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a process is running in the folder."""
    try:
        descriptor = os.open(path / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(descriptor, exclusive=False, timeout=0.0)
    finally:
        os.close(descriptor)


def has_run(path: Path) -> bool:
    """Whether the folder holds a run. Raises `RunError` if it holds anything else."""
    if (path / "run.json").exists():
        return True
    if path.is_dir():
        for other in sorted(path.iterdir()):
            if other.name not in BEFORE_RUN and other.suffix != ".partial":
                raise RunError(f"{path}: expected the folder of a run or an empty one, found {other.name} in it")
    elif path.exists():
        raise RunError(f"{path}: expected the folder of a run, found a file")
    return False


def create_run(path: Path, kind: str, config: str, environment: Mapping[str, Any], data: str) -> None:
    """Write the files that a run begins with.

    Args:
      path: the locked folder.
      kind: "train" or "sweep".
      config: the resolved configuration as TOML.
      environment: from `lur.runs.environment`.
      data: from `data_digest`.
    """
    write_file(path / "config.toml", config)
    write_file(path / "environment.json", json.dumps({"begun": environment, "later": []}, indent=1))
    info = {"format": FORMAT, "version": VERSION, "kind": kind, "lur": __version__, "data": data}
    write_file(path / "run.json", json.dumps(info, indent=1))


def data_digest(store: Store) -> str:
    """A digest of a store's content, by which a run recognises its data."""
    return hashlib.sha256(json.dumps(digest(store), sort_keys=True).encode()).hexdigest()


def check_data(path: Path, data: str) -> None:
    """Raise `RunError` unless the run began with the data of this digest."""
    if read_run_info(path).get("data") != data:
        raise RunError(f"{path}: expected the data that the run began with, got a store with other content")


def read_run_info(path: Path, kind: str | None = None) -> dict[str, Any]:
    """The content of run.json, with its version checked and, if `kind` is given, the kind of run."""
    info = read_json(path / "run.json")
    if info.get("format") != FORMAT or not isinstance(info.get("version"), int):
        raise RunError(f"{path / 'run.json'}: expected the format {FORMAT}, found {info.get('format')!r}")
    if info["version"] != VERSION:
        raise RunError(
            f"{path}: expected a run folder of version {VERSION}, found version {info['version']}, written by lur "
            f"{info.get('lur')}; continue it with that version, or choose another folder"
        )
    if kind is not None and info.get("kind") != kind:
        raise RunError(f"{path}: expected a run of `lur {kind}`, found one of `lur {info.get('kind')}`")
    return info


def record_environment_changes(path: Path, environment: Mapping[str, Any], round: int) -> list[str]:
    """Record how the environment differs from the one that the run began in.

    Args:
      path: the run folder.
      environment: the present environment.
      round: number of rounds that are done.

    Returns:
      The differences, as text.
    """
    kept = read_json(path / "environment.json")
    begun = kept.get("begun", {})
    changed = {name: value for name, value in environment.items() if begun.get(name) != value}
    if changed:
        kept["later"] = [*kept.get("later", []), {"from_round": round + 1, **changed}]
        write_file(path / "environment.json", json.dumps(kept, indent=1))
    return [f"{name} {begun.get(name)} -> {value}" for name, value in changed.items()]


def read_json(path: Path) -> dict[str, Any]:
    """The object in a small JSON file."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise RunError(f"{path}: expected at most {MAX_FILE_BYTES:,} bytes, found {size:,}")
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RunError(f"{path}: expected a file, found none") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise RunError(f"{path}: expected JSON, {error}") from None
    if not isinstance(content, dict):
        raise RunError(f"{path}: expected a JSON object, found {type(content).__name__}")
    return content


def _try_lock(descriptor: int, *, exclusive: bool, timeout: float) -> bool:
    """Try to lock a file for some seconds. Closing the descriptor, or the end of the process, unlocks it."""
    import fcntl

    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
