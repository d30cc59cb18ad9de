"""Imports of hostile files: an error that names the file, or a store. No code runs, no other file is touched."""

import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lur.data.importing import import_store
from lur.data.store import StoreError, open_store
from tests.lur.data.readers.hostile import BOMBS, CANARY, MAKERS, SECRET, SECRET_CONTENT

PROGRAMS = ("os.system", "os.exec", "os.posix_spawn", "pickle.find_class", "ctypes.dlopen", "sqlite3.load_extension")
WATCHDOG_SECONDS = 300
"""An import that takes longer hangs."""
seen: list[str] = []


def watch(event, arguments):
    """Remember what would run a program."""
    if event in PROGRAMS or (event == "subprocess.Popen" and "hdf5_child" not in str(arguments[1])):
        seen.append(f"{event}{arguments}"[:200])


@pytest.fixture(scope="module", autouse=True)
def audit():
    sys.addaudithook(watch)  # for good: Python has no way to remove it


@pytest.fixture(autouse=True)
def watchdog():
    def fail(number, frame):
        raise AssertionError("the import hangs")

    previous = signal.signal(signal.SIGALRM, fail)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


def attack(tmp_path: Path, makers, count: int, seed: int) -> Counter:
    """Import `count` hostile files."""
    rng, counts = np.random.default_rng(seed), Counter()
    (tmp_path / SECRET).write_bytes(SECRET_CONTENT)
    for i in range(count):
        format, make = makers[i % len(makers)]
        folder, stores = tmp_path / "files", tmp_path / "stores"
        folder.mkdir()
        stores.mkdir()
        path = make(folder, rng)
        before = {file.relative_to(folder) for file in folder.rglob("*")}
        seen.clear()
        signal.alarm(WATCHDOG_SECONDS)
        store, refusal = None, ""
        try:
            store = import_store(format, path, stores / "s")
        except StoreError as error:
            refusal = str(error)
        if store is None:
            assert str(path) in refusal, (format, make, refusal)
            assert not list(stores.iterdir()), "an error leaves no store behind"
            counts["refused"] += 1
        else:
            assert [file.name for file in stores.iterdir()] == ["s"]
            assert open_store(stores / "s").examples == store.examples > 0
            assert not any(SECRET_CONTENT[:20] in file.read_bytes() for file in (stores / "s").iterdir())
            counts["imported"] += 1
        signal.alarm(0)
        assert not seen, (format, make)
        assert {file.name for file in tmp_path.iterdir()} == {SECRET, "files", "stores"}, (format, make)
        assert {file.relative_to(folder) for file in folder.rglob("*")} == before, (format, make)
        assert not Path("/tmp", CANARY).exists()
        shutil.rmtree(folder)
        shutil.rmtree(stores)
    return counts


def test_hostile_imports(tmp_path):
    quick = [maker for maker in MAKERS if maker[0] != "tff-hdf5"]  # each of which starts two processes
    counts = attack(tmp_path, quick, 2 * len(quick), 0)
    assert counts["refused"] >= len(quick)


@pytest.mark.full
def test_a_thousand_hostile_imports(tmp_path):
    counts = attack(tmp_path, MAKERS, 1200, 1)
    print(f"1200 hostile imports: {dict(counts)}")
    assert counts["refused"] >= 600


@pytest.mark.full
def test_imports_that_unpack_to_a_gibibyte(tmp_path):
    counts = attack(tmp_path, BOMBS, 2 * len(BOMBS), 2)
    print(f"{2 * len(BOMBS)} bombs: {dict(counts)}")
    assert counts["imported"] == 0
