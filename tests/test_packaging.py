"""What is installed: the locks, the wheel, the core dependencies, and one sentence for each missing extra."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from lur._extras import EXTRAS, MissingExtraError, optional_imports

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = sorted({module for modules in EXTRAS.values() for module in modules})

WITHOUT_EXTRAS = f"""
import sys
for name in {OPTIONAL!r}:
    sys.modules[name] = None  # any import of it fails, as if it were not installed
"""


def packages(requirements):
    """The names of required packages, those of lur-jax's own extras included."""
    names = set()
    for requirement in requirements:
        if own := re.match(r"lur-jax\[(.*)\]", requirement):
            for extra in own[1].split(","):
                names |= packages(PROJECT["optional-dependencies"][extra])
        else:
            names.add(re.split(r"[<>=]", requirement)[0])
    return names


def pins(lock):
    return {line.rstrip("\\ ") for line in (ROOT / "lock" / lock).read_text().splitlines() if re.match(r"\w.*==", line)}


def python(program, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, cwd=ROOT, **options
    )


def test_locks_are_hashed_and_name_no_index():
    for lock in (ROOT / "lock").glob("*.txt"):
        content = lock.read_text()
        assert "://" not in content
        assert "index" not in content
        lines = [line for line in content.splitlines() if "==" in line and not line.startswith(" ")]
        assert len(lines) > 30
        assert all(line.rstrip().endswith("\\") for line in lines), "every pin is followed by its hashes"


@pytest.mark.parametrize(("lock", "extra"), [("run.txt", "all"), ("docs.txt", "docs"), ("test.txt", "test")])
def test_locks_hold_the_declared_packages(lock, extra):
    declared = packages([*PROJECT["dependencies"], f"lur-jax[{extra}]"])
    locked = {pin.partition("==")[0] for pin in pins(lock)}
    assert {name.lower() for name in declared} <= locked


def test_larger_locks_hold_the_smaller_ones():
    """`./run` relies on it: after `./run test`, the other commands install nothing."""
    assert pins("run.txt") <= pins("docs.txt") <= pins("test.txt")


def test_nothing_is_missing_from_the_lock():
    """Installed without looking at dependencies, the packages of the lock have all of them, in versions that fit."""
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_messages_name_extras_that_exist():
    for extra, modules in EXTRAS.items():
        assert set(modules.values()) <= packages([f"lur-jax[{extra}]"])
    in_all = [modules for extra, modules in EXTRAS.items() if extra != "privacy"]  # its pins hold other packages back
    assert packages(["lur-jax[all]"]) >= {name for modules in in_all for name in modules.values()}


def test_the_wheel_holds_lur_and_theory_alone(tmp_path):
    done = python("import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))", str(tmp_path))
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"lur", "theory"}
    sources = subprocess.run(
        ["git", "ls-files", "lur", "theory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert set(sources) <= set(names), "data files such as the explorer's page are in it too"


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        ("import lur.models", 'lur.models needs flax: pip install "lur-jax[models]"'),
        ("import lur; lur.models", 'lur.models needs flax: pip install "lur-jax[models]"'),
        ("from lur import plots; plots.panels(1)", 'lur.plots needs matplotlib: pip install "lur-jax[plots]"'),
        ("from lur import plots; plots.use()", 'lur.plots needs matplotlib: pip install "lur-jax[plots]"'),
        (
            "from pathlib import Path; from lur.data.readers import tff_hdf5; tff_hdf5.count(Path('pyproject.toml'))",
            'reading HDF5 needs h5py: pip install "lur-jax[data]"',
        ),
        (
            "from lur.data.readers import tfds_source; tfds_source.clients('cifar100')",
            'reading TFDS needs tensorflow-datasets: pip install "lur-jax[data]"',
        ),
        (
            "from pathlib import Path; from lur.runs.orbax_arrays import write_arrays; write_arrays(Path('no'), {})",
            'lur.runs needs orbax-checkpoint: pip install "lur-jax[runs]"',
        ),
        ("import theory.exact", 'theory.exact needs python-flint: pip install "lur-jax[exact]"'),
        ("import theory.reports.typeset", 'theory.reports needs latex2mathml: pip install "lur-jax[exact]"'),
        ("import theory.claims", 'theory.exact needs python-flint: pip install "lur-jax[exact]"'),
    ],
)
def test_a_missing_extra_is_one_sentence(use, sentence):
    done = python(f"""{WITHOUT_EXTRAS}
try:
    {use}
except ModuleNotFoundError as error:
    print(error)
    assert error.__cause__ is None
""")
    assert (done.returncode, done.stdout.strip()) == (0, sentence), done.stderr


@pytest.mark.parametrize(
    ("command", "missing", "sentence"),
    [
        (["verify"], "cli", 'lur verify needs tyro: pip install "lur-jax[cli]"'),
        (["--help"], "cli", 'lur --help needs tyro: pip install "lur-jax[cli]"'),
        (["verify"], "exact", 'lur verify needs python-flint: pip install "lur-jax[exact]"'),
        (["train", "digits", "--rounds", "1"], "models", 'lur.models needs flax: pip install "lur-jax[models]"'),
        (
            ["train", "digits", "--rounds", "1"],
            "data",
            'the task digits needs scikit-learn: pip install "lur-jax[data]"',
        ),
    ],
)
def test_commands_name_the_missing_extra(command, missing, sentence):
    program = f"""import sys
sys.modules.update(dict.fromkeys({[*EXTRAS[missing]]!r}))
from lur.cli import main
sys.exit(main())"""
    done = python(program, *command)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"lur: {sentence}\n")


def test_errors_of_installed_packages_pass_unchanged():
    with pytest.raises(ModuleNotFoundError, match="No module named 'missing'") as raised, optional_imports("lur"):
        raise ModuleNotFoundError("No module named 'missing'", name="missing")
    assert not isinstance(raised.value, MissingExtraError)


def test_the_readme_shows_the_two_commands_first():
    readme = (ROOT / "README.md").read_text()
    commands = [line.split("#")[0].strip() for line in readme.split("```bash\n")[1].split("```")[0].splitlines()]
    assert commands == ["./run verify", "./run test"]
    assert "source .venv/bin/activate" in readme


def test_runs_and_environments_are_ignored_by_git():
    for path in ("runs/digits/log.jsonl", ".venv", ".venv.lock"):
        assert not subprocess.run(["git", "check-ignore", "-q", "--no-index", path], cwd=ROOT, check=False).returncode
