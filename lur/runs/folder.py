"""A run folder, which one process at a time may lock.

    run.json            format and version of the folder, kind of run, its configuration, digest of its data
    config.toml         the resolved configuration, to be read; run.json has the one that counts
    environment.json    versions, devices, git revision, and how they changed when the run was resumed
    log.jsonl           one line per round; other logs are evaluation.jsonl and timing.jsonl
    checkpoints/        see `lur.runs.checkpoint`
    result.json         how the run ended, and the sizes and digests of its logs then; absent before that
    figures/            of a run that has ended, see `lur.runs.figures`
    lock                locked (`flock`) by the process that runs; the lock of a killed process is free

run.json is written last: a folder without it holds no run yet. run.json and result.json carry a digest of themselves.
Files are regular files, and folders are folders: a symbolic link or a pipe in the place of one is an error.
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
from lur.data.store_cache import digest
from lur.regular_files import kind_of, open_in_place, open_regular, read_regular
from lur.runs.errors import Damaged, Locked, RunError, excerpt
from lur.runs.files import Position, hash_prefix, json_digest, write_file
from lur.tasks.task import Task

FORMAT = "lur-run"
VERSION = 1
LOCK_TIMEOUT = 1.0
"""Seconds to wait for a lock: a reader may be testing it, or a killed process may be about to end."""
MAX_FILE_BYTES = 2**24
BEFORE_RUN = ("lock", "config.toml", "environment.json")
"""Files that may exist before run.json does."""
FILES = (*BEFORE_RUN, "run.json", "result.json", "log.jsonl", "evaluation.jsonl", "timing.jsonl")
FOLDERS = ("checkpoints", "figures", "tensorboard")
DIGESTED_LOGS = ("log.jsonl", "evaluation.jsonl")
"""The logs that equal runs have in common, whose digests result.json has."""


@contextmanager
def lock_folder(path: Path) -> Iterator[None]:
    """Create the folder if it does not exist, and lock it against other processes."""
    if path.exists() and not path.is_dir():
        raise RunError(f"{path}: expected the folder of a run, found a file")
    path.mkdir(parents=True, exist_ok=True)
    check_entries(path)
    descriptor = open_in_place(path / "lock", error=RunError)
    try:
        if not _try_lock(descriptor, exclusive=True, timeout=LOCK_TIMEOUT):
            owner = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
            raise Locked(f"{path}: expected a run that no other process uses, found it locked by {owner}")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def check_entries(path: Path) -> None:
    """Raise `RunError` if one of the folder's files or folders is something else, such as a symbolic link."""
    for names, expected in ((FILES, "a file"), (FOLDERS, "a folder")):
        for name in names:
            if (found := kind_of(path / name)) not in (None, expected):
                raise RunError(f"{path / name}: expected {expected}, found {found}")


def is_locked(path: Path) -> bool:
    """Whether a process is running in the folder."""
    try:
        file = open_regular(path / "lock", error=RunError)
    except FileNotFoundError:
        return False
    with file:
        return not _try_lock(file.fileno(), exclusive=False, timeout=0.0)


def has_run(path: Path) -> bool:
    """Whether the folder holds a run. Raises `RunError` if it holds anything else."""
    if kind_of(path / "run.json") is not None:
        return True
    if path.is_dir():
        for other in sorted(path.iterdir()):
            if other.name not in BEFORE_RUN and other.suffix != ".partial":
                raise RunError(f"{path}: expected the folder of a run or an empty one, found {other.name} in it")
    elif path.exists():
        raise RunError(f"{path}: expected the folder of a run, found a file")
    return False


def create_run(
    path: Path, kind: str, config: str, environment: Mapping[str, Any], data: str, **extra: Any
) -> dict[str, Any]:
    """Write the files that a run begins with.

    Args:
      path: the locked folder.
      kind: "train" or "sweep".
      config: the resolved configuration as TOML.
      environment: from `lur.runs.environment`.
      data: from `data_digest`.
      **extra: what else must not change; part of run.json.

    Returns:
      The content of run.json.
    """
    write_file(path / "config.toml", config)
    write_file(path / "environment.json", json.dumps({"begun": environment, "later": []}, indent=1))
    info = {"format": FORMAT, "version": VERSION, "kind": kind, "lur": __version__, "data": data, **extra}
    info["config"] = config
    write_with_digest(path / "run.json", info)
    return info


def data_digest(task: Task) -> str:
    """A digest of the content of a task's stores, by which a run recognises its data."""
    found = [digest(store) for store in (task.store, task.test, task.held_out, task.held_out_test) if store is not None]
    content = found[0] if len(found) == 1 else found
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check_data(path: Path, data: str) -> None:
    """Raise `RunError` unless the run began with the data of this digest."""
    if read_run_info(path).get("data") != data:
        raise RunError(f"{path}: expected the data that the run began with, got a store with other content")


def read_run_info(path: Path, kind: str | None = None) -> dict[str, Any]:
    """The content of run.json, with its version checked and, if `kind` is given, the kind of run."""
    file = path / "run.json"
    info = read_json(file)
    if info.get("format") != FORMAT or not isinstance(info.get("version"), int):
        raise RunError(f"{file}: expected the format {FORMAT}, found {excerpt(info.get('format'))}")
    if info["version"] != VERSION:
        raise RunError(
            f"{path}: expected a run folder of version {VERSION}, found version {info['version']}, written by lur "
            f"{info.get('lur')}; continue it with that version, or choose another folder"
        )
    info = without_digest(file, info, "config")
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
    kept = read_environment(path)
    begun = kept["begun"]
    changed = {name: value for name, value in environment.items() if begun.get(name) != value}
    if changed:
        kept["later"] = [*kept["later"], {"from_round": round + 1, **changed}]
        write_file(path / "environment.json", json.dumps(kept, indent=1))
    return [f"{name} {begun.get(name)} -> {value}" for name, value in changed.items()]


def read_environment(path: Path) -> dict[str, Any]:
    """The content of environment.json."""
    file = path / "environment.json"
    content = {"begun": {}, "later": [], **read_json(file)}
    for name, kind in (("begun", dict), ("later", list)):
        if not isinstance(content[name], kind):
            raise RunError(f"{file}: expected {kind.__name__} as {name}, found {excerpt(content[name])}")
    return content


def write_result(path: Path, result: Mapping[str, Any], positions: Mapping[str, Position]) -> None:
    """Write how a run ended, with the positions of its logs."""
    logs = {name: positions[name]._asdict() for name in DIGESTED_LOGS}
    write_with_digest(path / "result.json", {**result, "logs": logs})


def read_result(path: Path, *, check_logs: bool) -> dict[str, Any] | None:
    """How a run ended; None if it has not.

    Args:
      path: the run folder.
      check_logs: whether to compare the logs with the digests in result.json. Earlier versions wrote none.

    Raises:
      Damaged: result.json or one of the logs is not as it was written.
    """
    from lur.runs.checkpoint import read_positions

    file = path / "result.json"
    if kind_of(file) is None:
        return None
    result = without_digest(file, read_json(file), "logs")
    logs = result.pop("logs", {})
    rounds = result.get("round", result.get("rounds"))
    if result.get("state") not in ("finished", "diverged") or type(rounds) is not int or not isinstance(logs, dict):
        raise Damaged(f"{file}: expected how a run ended, found the state {excerpt(result.get('state'))}")
    for name, position in read_positions(file, logs).items() if check_logs else ():
        hash_prefix(path / name, position)
        size = (path / name).stat().st_size
        if size != position.bytes:
            raise Damaged(f"{path / name}: expected {position.bytes:,} bytes, found {size:,}")
    return result


def write_with_digest(file: Path, content: Mapping[str, Any]) -> None:
    """Write an object as JSON, with its digest."""
    write_file(file, json.dumps({**content, "sha256": json_digest(content)}, indent=1) + "\n")


def without_digest(file: Path, content: dict[str, Any], name: str) -> dict[str, Any]:
    """The object that was read from a file, its digest checked and removed.

    Earlier versions wrote no digest, and no field `name`.
    """
    digest = content.pop("sha256", None)
    if (digest is not None or name in content) and digest != json_digest(content):
        raise Damaged(f"{file}: expected the SHA-256 that it records, found another")
    return content


def read_json(file: Path) -> dict[str, Any]:
    """The object in a small JSON file."""
    try:
        content = json.loads(read_regular(file, MAX_FILE_BYTES, error=Damaged))
    except FileNotFoundError:
        raise RunError(f"{file}: expected a file, found none") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, RunError):
            raise
        raise Damaged(f"{file}: expected JSON, {error}") from None
    if not isinstance(content, dict):
        raise Damaged(f"{file}: expected a JSON object, found {type(content).__name__}")
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
