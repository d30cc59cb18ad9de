"""The environment of a run: what could change its numbers, and what its reader may want to know."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("lur-jax", "jax", "jaxlib", "flax", "optax", "numpy", "orbax-checkpoint")
VARIABLES = ("XLA_FLAGS", "JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_NUM_CPU_DEVICES")


def environment(**extra: Any) -> dict[str, Any]:
    """Versions, devices, system and git revision of this process, and the `extra` entries."""
    import jax

    devices = jax.local_devices()
    return {
        **{name: installed(name) for name in PACKAGES},
        "python": platform.python_version(),
        "revision": revision(),
        "backend": jax.default_backend(),
        "device": devices[0].device_kind,
        "devices": len(devices),
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "host": platform.node(),
        **{name: os.environ[name] for name in VARIABLES if name in os.environ},
        **extra,
    }


def installed(package: str) -> str | None:
    """The installed version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def revision() -> str | None:
    """The git revision of lur's checkout, with ``-dirty`` if files changed; None outside a checkout."""
    home = Path(__file__).resolve().parents[2]
    if not (home / ".git").exists():
        return None
    command = ["git", "-C", str(home), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def processor() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
