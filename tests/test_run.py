"""The `run` script: where it works, what it repairs, and one clear sentence where it cannot go on.

Python, venv and pip are stand-ins that note how they are called. Every path contains spaces and quotes.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

VENV_PYTHON = """#!/usr/bin/env bash
# The interpreter of a virtual environment: notes what pip installs, prints the folder and arguments of the rest.
case "$*" in
  "-I -m pip --version") ;;
  "-I -m pip install"*) echo "$*" >>"$CALLS"; eval "${PIP_DOES:-}" ;;
  "-I "*) exec {python} "$@" ;;
  *) printf '%s\\n' "$PWD" "$@" ;;
esac
"""
BASE_PYTHON = """#!/usr/bin/env bash
# The interpreter that makes virtual environments.
case "$*" in
  "-I -m venv --clear "*)
    echo venv >>"$CALLS"
    rm -rf "$5" && mkdir -p "$5/bin" && cp {template} "$5/bin/python"
    eval "${{VENV_DOES:-}}"
    ;;
  *) exec {python} "$@" ;;
esac
"""


class Checkout:
    """A copy of the script and of what it reads, with stand-ins for Python, venv and pip."""

    def __init__(self, folder):
        self.root = folder / 'a checkout\'s "place"'
        self.elsewhere = folder / 'where I\'m "working"'
        self.python = folder / 'my "python\'s" folder' / "python3"
        self.calls_file = folder / "calls"
        for path in (self.root, self.elsewhere, self.python.parent):
            path.mkdir()
        for name in ("run", "pyproject.toml"):
            shutil.copy(ROOT / name, self.root / name)
        shutil.copytree(ROOT / "lock", self.root / "lock")
        template = folder / "venv's python"
        script(template, VENV_PYTHON.replace("{python}", shlex.quote(sys.executable)))
        script(
            self.python,
            BASE_PYTHON.format(template=shlex.quote(str(template)), python=shlex.quote(sys.executable)),
        )

    @property
    def venv(self):
        return self.root / ".venv"

    @property
    def calls(self):
        """What was made and installed so far: "venv", or the name of a lock, or "lur" itself."""
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        return [line if line == "venv" else "lur" if line.endswith("-e .") else Path(line).stem for line in lines]

    def start(self, *arguments, python=None, door=None, cwd=None, **environment):
        return subprocess.Popen(
            ["bash", str(door or self.root / "run"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd or self.elsewhere,
            env={**os.environ, "PYTHON": str(python or self.python), "CALLS": str(self.calls_file), **environment},
            start_new_session=True,
        )

    def run(self, *arguments, **options):
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def script(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


LUR = ["-P", "-m", "lur"]
FRESH = ["venv", "run", "lur"]


def test_too_old_a_python_is_one_sentence(checkout, tmp_path):
    python = script(
        tmp_path / "old", '#!/usr/bin/env bash\ncase "$1" in --version) echo Python 3.9.1;; *) exit 1;; esac'
    )
    done = checkout.run("verify", python=python)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "run: lur needs Python 3.11 to 3.14, found Python 3.9.1; install one, or set PYTHON=/path/to/it."
    )


def test_no_python_is_one_sentence(checkout, tmp_path):
    done = checkout.run("verify", python=tmp_path / "missing")
    assert done.returncode == 1
    assert done.stderr.startswith("run: lur needs Python 3.11 to 3.14, found none")


def test_no_venv_module_is_one_sentence(checkout, tmp_path):
    body = f'case "$*" in *"import venv"*) exit 1;; *) exec {shlex.quote(sys.executable)} "$@";; esac'
    done = checkout.run("verify", python=script(tmp_path / "bare", f"#!/usr/bin/env bash\n{body}\n"))
    assert done.returncode == 1
    assert done.stderr.startswith("run: this Python has no venv module; install it")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("ERROR: Could not find a version: Temporary failure in name resolution", "is there a network?"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", "the installation failed"),
    ],
)
def test_a_failed_installation_is_one_sentence_and_is_tried_again(checkout, log, message):
    for _ in range(2):
        done = checkout.run("verify", PIP_DOES=f"echo {log!r} >&2; exit 1")
        assert done.returncode == 1
        assert message in done.stderr
        assert f"{checkout.venv}/install.log" in done.stderr
    assert log in (checkout.venv / "install.log").read_text()
    assert checkout.run("verify").returncode == 0
    assert checkout.calls == ["venv", "run", "run", "run", "lur"], "the environment itself is kept"


def test_pip_installs_the_lock_and_nothing_else(checkout):
    """Older pips take the newest release of a package with extras, unless they are told not to look further."""
    checkout.run("verify")
    _, packages, project = checkout.calls_file.read_text().splitlines()
    assert packages.endswith("--no-deps --require-hashes -r lock/run.txt")
    assert project.endswith("--no-deps --no-build-isolation -e .")


def test_commands_run_in_the_callers_folder(checkout):
    done = checkout.run("train", "digits", "--run-dir", "my out")
    assert done.stdout.splitlines() == [str(checkout.elsewhere), *LUR, "train", "digits", "--run-dir", "my out"]
    assert checkout.run("--help", cwd=checkout.root).stdout.splitlines() == [str(checkout.root), *LUR, "--help"]


def test_a_second_call_installs_nothing(checkout):
    for _ in range(2):
        assert checkout.run("verify").returncode == 0
    assert checkout.calls == FRESH


def test_the_script_works_through_links(checkout, tmp_path):
    (tmp_path / "bin").mkdir()
    absolute, relative = tmp_path / "bin" / "lur run", tmp_path / "bin" / "again"
    absolute.symlink_to(checkout.root / "run")
    relative.symlink_to("lur run")
    (tmp_path / "link to the folder").symlink_to(checkout.root)
    for door in (absolute, relative, tmp_path / "link to the folder" / "run"):
        assert checkout.run("verify", door=door).stdout.splitlines() == [str(checkout.elsewhere), *LUR, "verify"]
    assert checkout.calls == FRESH


def test_tests_and_site_are_those_of_the_checkout(checkout):
    done = checkout.run("test", "tests/test_run.py", "-k", "two words")
    assert done.stdout.splitlines() == [str(checkout.root), "-m", "pytest", "tests/test_run.py", "-k", "two words"]
    assert checkout.run("docs").stdout.splitlines() == [str(checkout.root), "-m", "website.build"]


def test_the_packages_of_a_larger_lock_serve_the_smaller(checkout):
    for command in ("test", "docs", "verify"):
        assert checkout.run(command).returncode == 0
    assert checkout.calls == ["venv", "test", "lur"]


def test_scripts_are_found_in_the_callers_folder_and_then_in_the_checkout(checkout):
    (checkout.root / "colab").mkdir()
    (checkout.root / "colab" / "quickstart.py").touch()
    done = checkout.run("colab/quickstart.py", "--option")
    assert done.stdout.splitlines() == [
        str(checkout.elsewhere), str(checkout.root / "colab" / "quickstart.py"), "--option"
    ]  # fmt: skip
    (checkout.elsewhere / "my script.py").touch()
    assert checkout.run("my script.py").stdout.splitlines() == [str(checkout.elsewhere), "my script.py"]


def test_a_venv_without_pip_is_made_again(checkout):
    """`python -m venv` was killed: it had linked the interpreter and not yet installed pip."""
    (checkout.venv / "bin").mkdir(parents=True)
    body = f'#!/usr/bin/env bash\ncase "$*" in *pip*) exit 1;; *) exec {shlex.quote(sys.executable)} "$@";; esac\n'
    script(checkout.venv / "bin" / "python", body)
    assert checkout.run("verify").returncode == 0
    assert checkout.calls == FRESH


def test_a_venv_whose_interpreter_is_gone_is_made_again(checkout):
    checkout.run("verify")
    (checkout.venv / "bin" / "python").unlink()
    (checkout.venv / "bin" / "python").symlink_to("/no/such/python")
    assert checkout.run("verify").stdout.splitlines() == [str(checkout.elsewhere), *LUR, "verify"]
    assert checkout.calls == FRESH * 2


def test_a_checkout_that_moved_gets_a_new_venv(checkout, tmp_path):
    checkout.run("verify")
    checkout.root = checkout.root.rename(tmp_path / "elsewhere's checkout")
    assert checkout.run("verify").returncode == 0
    assert checkout.calls == FRESH * 2


def test_a_changed_lock_is_installed_into_the_same_venv(checkout):
    checkout.run("test")
    with (checkout.root / "lock" / "test.txt").open("a") as lock:
        lock.write("# changed\n")
    checkout.run("test")
    assert checkout.calls == ["venv", "test", "lur", "test", "lur"]
    (checkout.root / "pyproject.toml").write_text("# changed\n")
    checkout.run("verify")
    assert checkout.calls[-2:] == ["run", "lur"]
    assert [path.name for path in checkout.venv.glob("*.stamp")] == ["run.stamp"], "the other stamps are stale"


@pytest.mark.parametrize("killed", ["VENV_DOES", "PIP_DOES"])
def test_a_call_killed_while_it_installs_is_repaired_by_the_next(checkout, killed):
    process = checkout.start("verify", **{killed: "touch ready; sleep 60"})
    ready = [folder / "ready" for folder in (checkout.elsewhere, checkout.root)]  # pip works in the checkout
    deadline = time.monotonic() + 30
    while not any(path.exists() for path in ready):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    done = checkout.run("verify")
    assert done.stdout.splitlines() == [str(checkout.elsewhere), *LUR, "verify"]
    assert checkout.calls[-3:] == FRESH


def test_of_two_calls_at_once_one_installs_and_the_other_waits(checkout):
    calls = [checkout.start("verify", PIP_DOES="sleep 0.5") for _ in range(2)]
    output = [process.communicate(timeout=60) for process in calls]
    assert [out.splitlines()[1:] for out, _ in output] == [[*LUR, "verify"]] * 2
    assert checkout.calls == FRESH
    assert sum("waiting for another call" in err for _, err in output) == 1


def test_a_linked_venv_is_never_cleared(checkout, tmp_path):
    other = tmp_path / "other environment"
    other.mkdir()
    (other / "keep").touch()
    checkout.venv.symlink_to(other)
    done = checkout.run("verify")
    assert done.returncode == 1
    assert "is a link to an environment that does not fit this checkout; remove the link" in done.stderr
    assert (other / "keep").exists()


def test_a_venv_made_by_hand_is_kept(checkout):
    checkout.run("verify")
    (checkout.venv / "run.stamp").unlink()
    (checkout.venv / "mine").touch()
    assert checkout.run("verify").returncode == 0
    assert checkout.calls == [*FRESH, "run", "lur"]
    assert (checkout.venv / "mine").exists()
