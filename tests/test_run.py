"""The `run` script: one clear sentence where it cannot go on."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def checkout(tmp_path):
    """A folder with the script and what it reads, and a PATH of our own in front."""
    for name in ("run", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "lock", tmp_path / "lock")
    (tmp_path / "bin").mkdir()
    return tmp_path


def fake_python(folder, body):
    path = folder / "bin" / "fakepython"
    path.write_text(f"#!/usr/bin/env bash\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def run(checkout, python, *arguments):
    return subprocess.run(
        ["bash", str(checkout / "run"), *arguments], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHON": str(python)},
    )  # fmt: skip


def test_too_old_a_python(checkout):
    python = fake_python(checkout, 'case "$1" in --version) echo Python 3.9.1;; *) exit 1;; esac')
    done = run(checkout, python, "verify")
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "run: lur needs Python 3.11, 3.12 or 3.13, found Python 3.9.1; install one, or set PYTHON=/path/to/it."
    )


def test_no_python_at_all(checkout):
    done = run(checkout, checkout / "bin" / "missing", "verify")
    assert done.returncode == 1
    assert "lur needs Python 3.11, 3.12 or 3.13, found none" in done.stderr


def test_no_venv_module(checkout):
    python = fake_python(checkout, 'case "$2" in *venv*) exit 1;; *) exit 0;; esac')
    done = run(checkout, python, "verify")
    assert done.returncode == 1
    assert done.stderr.strip().startswith("run: this Python has no venv module; install it")
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("ERROR: Could not find a version: Temporary failure in name resolution", "is there a network?"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", "the installation failed"),
    ],
)
def test_an_installation_that_fails(checkout, log, message):
    """A pip that fails: the sentence says why and where the details are, and the next call tries again."""
    pip = checkout / ".venv" / "bin" / "python"
    pip.parent.mkdir(parents=True)
    pip.write_text(f'#!/usr/bin/env bash\necho "{log}" >&2\nexit 1\n')
    pip.chmod(0o755)
    for _ in range(2):
        done = run(checkout, "python3", "verify")
        assert done.returncode == 1
        assert message in done.stderr
        assert ".venv/install.log" in done.stderr
    assert log in (checkout / ".venv" / "install.log").read_text()


def test_locks_are_hashed_and_name_no_index():
    for lock in (ROOT / "lock").glob("*.txt"):
        text = lock.read_text()
        assert "://" not in text
        assert "index" not in text
        pins = [line for line in text.splitlines() if "==" in line and not line.startswith(" ")]
        assert len(pins) > 30
        assert all(line.rstrip().endswith("\\") for line in pins), "every pin is followed by its hashes"


def test_locked_versions_meet_the_declared_ones():
    """The lock resolves the dependencies that pyproject.toml declares."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = (ROOT / "lock" / "run.txt").read_text()
    for requirement in project["dependencies"]:
        name = requirement.split(">=")[0]
        assert f"\n{name}==" in f"\n{locked}", name


def test_a_script_runs_in_the_environment(checkout):
    """`./run colab/quickstart.py`: Python of .venv, once it is installed."""
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/usr/bin/env bash\n[ "$1" = -m ] || echo "python $*"\n')
    python.chmod(0o755)
    assert run(checkout, "python3", "colab/quickstart.py", "--option").stdout == "python colab/quickstart.py --option\n"


def test_the_lock_alone_decides(checkout):
    """pip is told not to look further than the lock: older ones take the newest release of a package with extras."""
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/usr/bin/env bash\necho "$*" >> {checkout}/calls\n')
    python.chmod(0o755)
    run(checkout, "python3", "colab/quickstart.py")
    packages, project, _ = (checkout / "calls").read_text().splitlines()
    assert packages.startswith("-m pip install")
    assert packages.endswith("--no-deps --require-hashes -r lock/run.txt")
    assert project.endswith("--no-deps --no-build-isolation -e .")


def test_nothing_is_missing_from_the_lock():
    """What the lock installed without looking at dependencies has all of them, in versions that fit."""
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
