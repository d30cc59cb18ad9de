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

from lur import _extras
from lur.cli.output import Json, check_json, printer, write_json

LIST_DEVICES = """
import json, jax
devices = [{"platform": d.platform, "kind": d.device_kind} for d in jax.devices()]
print(json.dumps({"backend": jax.default_backend(), "devices": devices}))
"""
JAX_TIMEOUT = 120.0
"""Seconds that JAX gets to list its devices."""
EXTRAS = {
    **{extra: tuple(dict.fromkeys(packages.values())) for extra, packages in _extras.EXTRAS.items()},
    "notebooks": ("ipykernel", "jupytext", "nbclient"),
}
"""The packages of each extra."""
ACCELERATOR_NAMES = {"gpu": "an NVIDIA GPU", "amd": "an AMD GPU", "tpu": "a TPU"}
INSTALL = {
    "gpu": 'pip install -U "jax[cuda13]" (with an NVIDIA driver older than 580: "jax[cuda12]")',
    "amd": 'pip install -U "jax[rocm7-local]", which needs ROCm 7',
    "tpu": 'pip install -U "jax[tpu]"',
}
"""The command that installs JAX for each kind of accelerator."""


class Accelerator(NamedTuple):
    """An accelerator that the operating system shows, whether or not JAX can use it.

    Attributes:
      kind: "gpu" (NVIDIA), "amd" or "tpu".
      signs: what shows it: names that nvidia-smi lists, device files, environment variables.
    """

    kind: str
    signs: tuple[str, ...]


def doctor(quiet: bool = False, json: Json = None) -> int:
    """See what this machine has, and what to install for its GPU or TPU: lur doctor

    Prints versions, devices, caches and which folders can be written. Exit status 1 if something needs care.

    Args:
        quiet: Print nothing; the exit status tells.
    """
    check_json(json)
    say = printer(quiet, json)
    findings = examine()
    write_json(json, findings)
    for line in report_lines(findings):
        say(line)
    return 1 if findings["advice"] else 0


def examine() -> dict[str, Any]:
    """Look at versions, devices, folders and extras; `advice` lists what needs care."""
    from lur.cache_folder import cache_folder
    from lur.runs.environment import PACKAGES, installed, processor, revision

    visible, jax = accelerators(Path("/"), os.environ), jax_devices()
    cache = cache_folder()
    folders = {name: folder_status(path) for name, path in (("cache", cache), ("here", Path.cwd()))}
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
        "accelerators": visible,
        "folders": folders,
        "kept": {part.name: folder_size(part) for part in sorted(cache.glob("*")) if part.is_dir()},
        "advice": advice(jax, visible, folders),
    }


def jax_devices() -> dict[str, Any]:
    """Return JAX's backend and devices, or its error.

    JAX runs in a process of its own, because it may crash, or wait for a device that another process holds.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", LIST_DEVICES], capture_output=True, text=True, timeout=JAX_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {JAX_TIMEOUT:g} seconds; another process may hold the device"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
    return decoder.loads(done.stdout.splitlines()[-1])


def accelerators(root: Path, environment: Mapping[str, str]) -> list[Accelerator]:
    """Return the GPUs and TPUs that the system shows, whether or not JAX can use them."""
    signs = {
        "gpu": [*nvidia_names(), *device_files(root, "nvidia[0-9]*")],
        "amd": device_files(root, "kfd"),
        "tpu": [
            *device_files(root, "accel[0-9]*"),
            *(name for name in ("TPU_NAME", "TPU_WORKER_ID", "COLAB_TPU_ADDR") if environment.get(name)),
        ],
    }
    return [Accelerator(kind, tuple(seen)) for kind, seen in signs.items() if seen]


def device_files(root: Path, pattern: str) -> list[str]:
    """Return the files in dev/ that match a pattern, sorted."""
    return sorted(str(path) for path in (root / "dev").glob(pattern))


def nvidia_names() -> list[str]:
    """Return the GPUs that nvidia-smi lists; none where it is not installed or fails."""
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.startswith("GPU ")] if not done.returncode else []


def folder_status(path: Path) -> dict[str, Any]:
    """Return whether a folder, or its nearest existing parent, can be written, and the free space there."""
    nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".lur-", dir=nearest):
            writable = True
    except OSError:
        writable = False
    return {"path": str(path), "writable": writable, "free": shutil.disk_usage(nearest).free}


def folder_size(path: Path) -> int:
    """Return the total bytes of the files under a folder."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def advice(jax: Mapping[str, Any], visible: list[Accelerator], folders: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each thing that needs care: what is wrong, and what to do.

    Args:
      jax: JAX's backend and devices, or its error (`jax_devices`).
      visible: the accelerators that the system shows.
      folders: the status of the cache and of the working folder (`folder_status`).
    """
    sentences = [f"JAX does not start: {jax['error']}"] if "error" in jax else []
    backend = jax.get("backend")
    for kind, signs in visible:
        if backend == "cpu" or (backend == "gpu") != (kind in ("gpu", "amd")):
            sentences.append(f"{ACCELERATOR_NAMES[kind]} ({signs[0]}) is not used by JAX: {INSTALL[kind]}")
    for name, remedy in (
        ("cache", "set LUR_CACHE to a writable folder"),
        ("here", "change to a writable folder"),
    ):
        if not folders[name]["writable"]:
            sentences.append(f"{folders[name]['path']} cannot be written: {remedy}")
    return sentences


def report_lines(findings: Mapping[str, Any]) -> list[str]:
    """Return what `examine` found as lines for a terminal."""
    jax, lines = findings["jax"], []

    def row(name: str, value: str) -> None:
        lines.append(f"{name:12} {value}")

    revision = "" if findings["revision"] is None else f" at {findings['revision'][:12]}"
    row("lur", f"{findings['lur'] or 'not installed'}{revision}")
    row("python", f"{findings['python']}, {findings['system']}")
    row("packages", ", ".join(f"{name} {version or 'MISSING'}" for name, version in findings["packages"].items()))
    row("processor", f"{findings['processor']}, {findings['cores']} cores")
    if "error" in jax:
        row("jax", jax["error"])
    else:
        kinds = [device["kind"] for device in jax["devices"]]
        row("jax", f"{jax['backend']}: " + ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds)))
    if not findings["accelerators"]:
        row("accelerator", "none visible; lur runs on the CPU")
    for kind, signs in findings["accelerators"]:
        row("accelerator", f"{ACCELERATOR_NAMES[kind]}: {', '.join(signs)}")
    for name, status in findings["folders"].items():
        access = "writable" if status["writable"] else "NOT WRITABLE"
        row(name, f"{status['path']}, {access}, {status['free'] / 1e9:.0f} GB free")
    row("kept", ", ".join(f"{name} {bytes / 1e6:.0f} MB" for name, bytes in findings["kept"].items()) or "nothing yet")
    row("extras", ", ".join(extra for extra, complete in findings["extras"].items() if complete) or "none")
    if missing := ",".join(extra for extra, complete in findings["extras"].items() if not complete):
        row("missing", f'{missing}: pip install "lur-jax[{missing}]", or -e ".[{missing}]" in a checkout')
    return [*lines, *(f"care needed  {line}" for line in findings["advice"] or ["none"])]
