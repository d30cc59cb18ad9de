"""Checks that commands make before they run: the packages next to lur, and the folders to be written."""

import importlib.util
import tempfile
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
"""The folder that holds lur: a checkout, or the site-packages of an installation."""


def require_benchmarks(command: str) -> None:
    """Refuse to run a command that needs `benchmarks`, which is in the repository and not in the wheel.

    Args:
      command: the command, for the message.

    Raises:
      ValueError: lur does not run from a checkout, or another package named `benchmarks` hides the checkout's.
    """
    if not all((HOME / name).is_file() for name in ("pyproject.toml", "benchmarks/__init__.py")):
        raise ValueError(
            f"`{command}` needs the folder benchmarks/, which is in the repository only: run it in a checkout of lur"
        )
    require_sibling("benchmarks")


def require_sibling(name: str) -> None:
    """Refuse a package `theory` or `benchmarks` that is not the one next to lur.

    Raises:
      ValueError: Python would import another package of this name, or none.
    """
    spec = importlib.util.find_spec(name)
    folder = Path(spec.origin).resolve().parent.parent if spec and spec.origin else None
    if folder != HOME:
        got = f"the one in {folder}" if folder else "none"
        raise ValueError(
            f"the package `{name}` must be the one next to lur in {HOME}, got {got}; uninstall or rename the other one"
        )


def check_folder(option: str, folder: Path) -> None:
    """Refuse a folder that cannot be made or written, before anything runs.

    Args:
      option: the flag that names the folder, for the message.
      folder: the folder; it need not exist yet.

    Raises:
      ValueError: the path is a file, or nothing can be created in its nearest existing parent.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{option} must name a folder, got the file {folder}")
    nearest = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    try:  # permission bits do not tell: root passes them, and /proc refuses root too
        with tempfile.TemporaryDirectory(prefix=".lur-", dir=nearest):
            pass
    except OSError as error:
        raise ValueError(
            f"{option} must name a folder that can be written, got {folder}: nothing can be created in {nearest}"
        ) from error
