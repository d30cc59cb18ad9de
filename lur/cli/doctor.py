"""`lur doctor`: what this machine has, and what to install where something is missing."""

import json as decoder
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lur.cli.output import Json, check_json, speaker, write_json

DEVICES = """
import json, jax
found = [{"platform": d.platform, "kind": d.device_kind} for d in jax.devices()]
print(json.dumps({"backend": jax.default_backend(), "devices": found}))
"""
PATIENCE = 120.0
"""Seconds that JAX gets to find its devices."""
EXTRAS = {
    "notebooks": ("ipykernel", "jupytext", "nbclient"),
    "data": ("tensorflow-datasets",),
    "tensorboard": ("tensorboardX",),
}
INSTALL = {
    "gpu": 'pip install -U "jax[cuda13]" (with an NVIDIA driver older than 580: "jax[cuda12]")',
    "amd": 'pip install -U "jax[rocm7-local]", beside ROCm 7',
    "tpu": 'pip install -U "jax[tpu]"',
}


class Accelerator(NamedTuple):
    """Hardware that is seen without JAX: its kind (gpu, amd, tpu) and the signs of it."""

    kind: str
    signs: tuple[str, ...]


def doctor(quiet: bool = False, json: Json = None) -> int:
    """See what this machine has, and what to install for its GPU or TPU: lur doctor

    Prints versions, devices, caches and where can be written. Exit status 1 if something needs care.

    Args:
        quiet: Print nothing; the exit status tells.
    """
    check_json(json)
    say = speaker(quiet, json)
    found = examined()
    write_json(json, found)
    for line in in_words(found):
        say(line)
    return 1 if found["advice"] else 0


def examined() -> dict[str, Any]:
    """All that is looked at."""
    from lur.cache_folder import cache_folder
    from lur.runs.environment import PACKAGES, installed, processor, revision

    seen, jax = accelerators(Path("/"), os.environ), devices()
    cache = cache_folder()
    folders = {name: folder(path) for name, path in (("cache", cache), ("here", Path.cwd()))}
    return {
        "lur": installed("lur-jax"),
        "revision": revision(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "packages": {name: installed(name) for name in PACKAGES if name != "lur-jax"},
        "extras": {extra: all(installed(name) for name in names) for extra, names in EXTRAS.items()},
        "jax": jax,
        "accelerators": seen,
        "folders": folders,
        "kept": {part.name: size(part) for part in sorted(cache.glob("*")) if part.is_dir()},
        "advice": advice(jax, seen, folders),
    }


def devices() -> dict[str, Any]:
    """What JAX sees, asked in a process of its own: it may crash, or wait for a device that others hold."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", DEVICES], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {PATIENCE:g} seconds; another process may hold the device"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
    return decoder.loads(done.stdout.splitlines()[-1])


def accelerators(root: Path, environment: Mapping[str, str]) -> list[Accelerator]:
    """GPUs and TPUs that the system shows, whether JAX can use them or not."""
    signs = {
        "gpu": [*nvidia_names(), *files(root, "dev", "nvidia[0-9]*")],
        "amd": files(root, "dev", "kfd"),
        "tpu": [
            *files(root, "dev", "accel[0-9]*"),
            *(name for name in ("TPU_NAME", "TPU_WORKER_ID", "COLAB_TPU_ADDR") if environment.get(name)),
        ],
    }
    return [Accelerator(kind, tuple(found)) for kind, found in signs.items() if found]


def files(root: Path, folder: str, pattern: str) -> list[str]:
    """Device files."""
    return sorted(str(path) for path in (root / folder).glob(pattern))


def nvidia_names() -> list[str]:
    """What nvidia-smi lists; nothing where it is not there or does not work."""
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.startswith("GPU ")] if not done.returncode else []


def folder(path: Path) -> dict[str, Any]:
    """A folder, or where it will be made: whether one can write there, and how much is free."""
    nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".lur-", dir=nearest):
            writable = True
    except OSError:
        writable = False
    return {"path": str(path), "writable": writable, "free": shutil.disk_usage(nearest).free}


def size(path: Path) -> int:
    """Bytes of the files under a folder."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def advice(jax: Mapping[str, Any], seen: list[Accelerator], folders: Mapping[str, Any]) -> list[str]:
    """What needs care, and what to do."""
    found = [f"JAX does not start: {jax['error']}"] if "error" in jax else []
    used = jax.get("backend")
    for kind, signs in seen:
        if used == "cpu" or (used == "gpu") != (kind in ("gpu", "amd")):
            found.append(f"{NAMES[kind]} ({signs[0]}) is not used by JAX: {INSTALL[kind]}")
    for name, what in (("cache", "set LUR_CACHE to a folder that can be"), ("here", "go to a folder that can be")):
        if not folders[name]["writable"]:
            found.append(f"{folders[name]['path']} cannot be written: {what}")
    return found


NAMES = {"gpu": "an NVIDIA GPU", "amd": "an AMD GPU", "tpu": "a TPU"}


def in_words(found: Mapping[str, Any]) -> list[str]:
    """For a terminal."""
    jax, lines = found["jax"], []

    def row(name: str, text: str) -> None:
        lines.append(f"{name:12} {text}")

    row(
        "lur",
        f"{found['lur'] or 'not installed'}{'' if found['revision'] is None else ' at ' + found['revision'][:12]}",
    )
    row("python", f"{found['python']}, {found['system']}")
    row("packages", ", ".join(f"{name} {version or 'MISSING'}" for name, version in found["packages"].items()))
    row("processor", f"{found['processor']}, {found['cores']} cores")
    if "error" in jax:
        row("jax", jax["error"])
    else:
        kinds = [device["kind"] for device in jax["devices"]]
        row("jax", f"{jax['backend']}: " + ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds)))
    if not found["accelerators"]:
        row("accelerator", "none is seen; lur runs on the CPU")
    for kind, signs in found["accelerators"]:
        row("accelerator", f"{NAMES[kind]}: {', '.join(signs)}")
    for name, about in found["folders"].items():
        access = "writable" if about["writable"] else "NOT WRITABLE"
        row(name, f"{about['path']}, {access}, {about['free'] / 1e9:.0f} GB free")
    row("kept", ", ".join(f"{name} {bytes / 1e6:.0f} MB" for name, bytes in found["kept"].items()) or "nothing yet")
    for extra, there in found["extras"].items():
        row(extra, "installed" if there else f'not installed: pip install -e ".[{extra}]" in a checkout')
    return [*lines, *(f"care needed  {line}" for line in found["advice"] or ["none"])]
