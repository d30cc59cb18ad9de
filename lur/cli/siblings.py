"""What commands check before they run: the packages beside lur, and the folders they will write into."""

import importlib.util
import tempfile
from pathlib import Path


def require_sibling(name: str) -> None:
    """Refuse a `theory` or `benchmarks` package that is not the one that ships with lur."""
    spec = importlib.util.find_spec(name)
    home = Path(__file__).resolve().parents[2]
    found = Path(spec.origin).resolve().parent.parent if spec and spec.origin else None
    if found != home:
        where = f"from {found}" if found else "nowhere"
        raise ValueError(
            f"the package `{name}` must be the one beside lur in {home}, got it {where}; "
            f"uninstall or rename the other one"
        )


def require_benchmarks(command: str) -> None:
    """Refuses a command that needs `benchmarks/`, which is in the repository but not in the wheel."""
    home = Path(__file__).resolve().parents[2]
    if not (home / "benchmarks" / "speed").is_dir():
        raise ValueError(
            f"`{command}` needs the folder benchmarks/, which is in the repository only: run it in a checkout of lur"
        )
    require_sibling("benchmarks")


def check_folder(option: str, folder: Path) -> None:
    """Refuse a folder that is none, or that could not be made or written into, before anything is run."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{option} must name a folder, got the file {folder}")
    nearest = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".lur-", dir=nearest):  # the only answer that /proc and root respect
            pass
    except OSError as error:
        raise ValueError(
            f"{option} must name a folder that can be written, got {folder}: nothing can be made in {nearest}"
        ) from error
