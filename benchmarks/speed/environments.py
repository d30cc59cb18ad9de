"""Each peer in an environment of its own, made once from the package index and kept in the cache folder."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lur.cache_folder import cache_folder

LIMIT = 1800.0
"""Seconds that making an environment may take."""
LAST = 3
"""Lines of a failed command that its skip repeats."""


class Environment(NamedTuple):
    """A peer's pinned packages, and the Pythons it runs on, best first."""

    requirements: tuple[str, ...]
    pythons: tuple[str, ...] = ("3.11", "3.12")


class Unavailable(Exception):
    """A contender that cannot be measured here, and why."""


def python_of(name: str, environment: Environment, limit: float = LIMIT) -> Path:
    """The Python of a peer's environment, which is made if it is not there. Raises `Unavailable`."""
    key = hashlib.sha256(json.dumps(environment).encode()).hexdigest()[:12]
    folder = cache_folder() / "peers" / f"{name}-{key}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            make(folder, environment, limit)
            complete.touch()
        except Unavailable:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return python


def make(folder: Path, environment: Environment, limit: float) -> None:
    """An environment with its packages: by uv where there is one, else by venv and pip."""
    python = folder / "bin" / "python"
    uv = shutil.which("uv")
    base = interpreter(environment.pythons)
    if uv:
        call([uv, "venv", "--quiet", "--python", base or environment.pythons[0], str(folder)], limit)
        call([uv, "pip", "install", "--quiet", "--python", str(python), *environment.requirements], limit)
        return
    if base is None:
        raise Unavailable(f"needs Python {' or '.join(environment.pythons)}, found none")
    call([base, "-m", "venv", str(folder)], limit)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    call([*pip, *environment.requirements], limit)


def interpreter(versions: Sequence[str]) -> str | None:
    """A Python of one of these versions that starts: the one running, or one on the path."""
    for version in versions:
        if version == f"{sys.version_info.major}.{sys.version_info.minor}":
            return sys.executable
        found = shutil.which(f"python{version}")
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    return None


def call(command: Sequence[str], limit: float) -> None:
    """Run a command; its last lines are the reason where it fails."""
    what = " ".join([Path(command[0]).name, *command[1:3]])
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"`{what}` took more than {limit:.0f} s") from error
    except OSError as error:
        raise Unavailable(f"`{what}` could not be run: {error}") from error
    if done.returncode:
        raise Unavailable(f"`{what}` failed: {reason(done.stdout)}")


def reason(log: str) -> str:
    """Why an installation failed: the package that pip does not find, or else the last lines of the log."""
    missing = re.search(r"No matching distribution found for (\S+)", log)
    return f"no matching distribution found for {missing[1]}" if missing else last_lines(log)


def last_lines(log: str, count: int = LAST) -> str:
    """The last lines of a log as one, without decoration."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log)
    lines = [re.sub(r"\s+", " ", line).strip() for line in plain.splitlines() if line.strip()]
    return " | ".join(line if len(line) <= 300 else f"{line[:150]} ... {line[-150:]}" for line in lines[-count:])
