"""A run folder, held by one process at a time.

    run.json            format and version of the folder, what kind of run it is, a digest of its data
    config.toml         the configuration, settled
    environment.json    versions, device, git revision; where a later part of the run differed
    log.jsonl           a line per round; others, as evaluation.jsonl and timing.jsonl, beside it
    checkpoints/        see `lur.runs.checkpoint`
    result.json         how the run ended; not there before it did
    figures/            of a run that has ended, see `lur.runs.figures`
    lock                held (`flock`) by the process that runs; a killed one holds nothing

run.json is written last: a folder without it was never begun.
"""

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lur import __version__
from lur.runs.errors import RunError
from lur.runs.files import write_file

FORMAT = "lur-run"
VERSION = 1
PATIENCE = 1.0
"""Seconds that a lock may take to become free: a reader may be looking, or a killed process going."""
LARGEST_FILE = 2**24
FIRST = ("lock", "config.toml", "environment.json")
"""What there may be before run.json."""


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Make the folder if it is not there, and hold it: no other process can meanwhile."""
    if path.exists() and not path.is_dir():
        raise RunError(f"{path}: expected the folder of a run, found a file")
    path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if not locked(descriptor, exclusive=True, patience=PATIENCE):
            owner = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            raise RunError(f"{path}: expected a run that no other process is at, found it held by {owner or 'one'}")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a process is at the run."""
    try:
        descriptor = os.open(path / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not locked(descriptor, exclusive=False, patience=0.0)
    finally:
        os.close(descriptor)


def locked(descriptor: int, *, exclusive: bool, patience: float) -> bool:
    """Try to lock, for some seconds. Closing the descriptor, or the end of the process, unlocks."""
    import fcntl

    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.05)


def is_begun(path: Path) -> bool:
    """Whether there is a run in the folder. Refuses one that holds something else."""
    if (path / "run.json").exists():
        return True
    if path.is_dir():
        for other in sorted(path.iterdir()):
            if other.name not in FIRST and other.suffix != ".partial":
                raise RunError(f"{path}: expected the folder of a run or an empty one, found {other.name} in it")
    elif path.exists():
        raise RunError(f"{path}: expected the folder of a run, found a file")
    return False


def begin(path: Path, kind: str, config: str, environment: Mapping[str, Any], data: str) -> None:
    """Write what a run starts with."""
    write_file(path / "config.toml", config)
    write_file(path / "environment.json", json.dumps({"begun": environment, "later": []}, indent=1))
    about = {"format": FORMAT, "version": VERSION, "kind": kind, "lur": __version__, "data": data}
    write_file(path / "run.json", json.dumps(about, indent=1))


def about(path: Path, kind: str | None = None) -> dict[str, Any]:
    """run.json, checked: of this version and, where given, of this kind."""
    found = read_json(path / "run.json")
    if found.get("format") != FORMAT or not isinstance(found.get("version"), int):
        raise RunError(f"{path / 'run.json'}: expected the format {FORMAT}, found {found.get('format')!r}")
    if found["version"] != VERSION:
        raise RunError(
            f"{path}: expected a run folder of version {VERSION}, found version {found['version']}, made by lur "
            f"{found.get('lur')}; continue it with that one, or choose another folder"
        )
    if kind is not None and found.get("kind") != kind:
        raise RunError(f"{path}: expected a run of `lur {kind}`, found one of `lur {found.get('kind')}`")
    return found


def resume_environment(path: Path, environment: Mapping[str, Any], round: int) -> list[str]:
    """Note where this part of the run differs from its beginning, and say how."""
    kept = read_json(path / "environment.json")
    begun = kept.get("begun", {})
    changed = {name: value for name, value in environment.items() if begun.get(name) != value}
    if changed:
        kept["later"] = [*kept.get("later", []), {"from_round": round + 1, **changed}]
        write_file(path / "environment.json", json.dumps(kept, indent=1))
    return [f"{name} {begun.get(name)} -> {value}" for name, value in changed.items()]


def read_json(path: Path) -> dict[str, Any]:
    """A small JSON file with one object."""
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise RunError(f"{path}: expected at most {LARGEST_FILE:,} bytes, found {size:,}")
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RunError(f"{path}: expected a file, found none") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise RunError(f"{path}: expected JSON, {error}") from None
    if not isinstance(found, dict):
        raise RunError(f"{path}: expected a JSON object, found {type(found).__name__}")
    return found
