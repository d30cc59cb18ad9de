"""One virtual environment per peer, created once from the package index and kept in the cache folder."""

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
"""Most seconds for creating an environment."""
LOG_LINES = 3
"""Lines of a failed command's log that the reason for skipping a peer quotes."""


class Environment(NamedTuple):
    """What a peer needs.

    Attributes:
        requirements: Pinned packages.
        pythons: Versions of Python it runs on, best first.
    """

    requirements: tuple[str, ...]
    pythons: tuple[str, ...] = ("3.11", "3.12")


class Unavailable(Exception):
    """A contender cannot be measured here; the message says why."""


def python_of(name: str, environment: Environment, limit: float = LIMIT) -> Path:
    """Path of the Python of a peer's environment, which is created if it does not exist. Raises `Unavailable`."""
    key = hashlib.sha256(json.dumps(environment).encode()).hexdigest()[:12]
    folder = cache_folder() / "peers" / f"{name}-{key}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            create(folder, environment, limit)
            complete.touch()
        except Unavailable:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return python


def create(folder: Path, environment: Environment, limit: float) -> None:
    """Creates an environment and installs its packages: with uv if it is installed, otherwise with venv and pip."""
    python = folder / "bin" / "python"
    uv = shutil.which("uv")
    base = interpreter(environment.pythons)
    if uv:
        call([uv, "venv", "--quiet", "--python", base or environment.pythons[0], str(folder)], limit)
        call([uv, "pip", "install", "--quiet", "--python", str(python), *environment.requirements], limit)
        return
    if base is None:
        raise Unavailable(f"needs Python {' or '.join(environment.pythons)}, which is not installed")
    call([base, "-m", "venv", str(folder)], limit)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    call([*pip, *environment.requirements], limit)


def interpreter(versions: Sequence[str]) -> str | None:
    """Path of a working Python of one of these versions: the running one, or one on PATH. None if there is none."""
    for version in versions:
        if version == f"{sys.version_info.major}.{sys.version_info.minor}":
            return sys.executable
        python = shutil.which(f"python{version}")
        if python and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            return python
    return None


def call(command: Sequence[str], limit: float) -> None:
    """Runs a command. Raises `Unavailable` with the last lines of its log if it fails."""
    shortened = " ".join([Path(command[0]).name, *command[1:3]])
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"`{shortened}` took more than {limit:.0f} s") from error
    except OSError as error:
        raise Unavailable(f"`{shortened}` could not be run: {error}") from error
    if done.returncode:
        raise Unavailable(f"`{shortened}` failed: {reason(done.stdout)}")


def reason(log: str) -> str:
    """Why an installation failed: the package that pip does not find, or the last lines of the log."""
    missing = re.search(r"No matching distribution found for (\S+)", log)
    return f"no matching distribution found for {missing[1]}" if missing else last_lines(log)


def last_lines(log: str, count: int = LOG_LINES) -> str:
    """The last lines of a log, joined and without escape sequences."""
    uncoloured = re.sub(r"\x1b\[[0-9;]*m", "", log)
    lines = [re.sub(r"\s+", " ", line).strip() for line in uncoloured.splitlines() if line.strip()]
    return " | ".join(line if len(line) <= 300 else f"{line[:150]} ... {line[-150:]}" for line in lines[-count:])
