"""A run folder is held by one process, and is known for what it is."""

import os
import signal
import subprocess
import sys

import pytest

from lur.runs import folder
from lur.runs.errors import RunError
from lur.runs.reader import read_run

HOLD = """
import sys, time
from pathlib import Path
from lur.runs.folder import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(600)
"""


def begun(path, kind="train", **options):
    path.mkdir(exist_ok=True)
    folder.create_run(path, kind, "task = 'digits'\n", {"jax": "1", "devices": 2}, "digest", **options)
    return path


def test_one_process_at_a_time_and_a_killed_one_holds_nothing(tmp_path):
    begun(tmp_path)
    assert read_run(tmp_path).state == "stopped"
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(RunError, match=f"that no other process uses, found it locked by process {other.pid} on "):
            folder.lock_folder(tmp_path).__enter__()
        assert read_run(tmp_path).state == "running"
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    assert not folder.is_locked(tmp_path)
    with folder.lock_folder(tmp_path):
        assert folder.is_locked(tmp_path)
        assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} on ")
    assert not folder.is_locked(tmp_path)


def test_a_new_folder_an_unfinished_beginning_and_a_strangers(tmp_path):
    assert not folder.has_run(tmp_path / "none")
    for name in ("lock", "config.toml", "environment.json", "run.json.partial"):  # killed while beginning
        (tmp_path / name).touch()
    assert not folder.has_run(tmp_path)
    assert folder.has_run(begun(tmp_path))
    (tmp_path / "run.json").unlink()
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(RunError, match=r"expected the folder of a run or an empty one, found thesis\.tex in it"):
        folder.has_run(tmp_path)
    for refuse in (folder.has_run, lambda path: folder.lock_folder(path).__enter__()):
        with pytest.raises(RunError, match="expected the folder of a run, found a file"):
            refuse(tmp_path / "thesis.tex")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"version": 2, "lur": "9.9"}, "expected a run folder of version 1, found version 2, written by lur 9.9"),
        ({"format": "other"}, "expected the format lur-run, found 'other'"),
        ({"kind": "sweep"}, "expected a run of `lur train`, found one of `lur sweep`"),
        (b"{", "run.json: expected JSON"),
        (b"[" * 100_000, "run.json: expected JSON"),
        (b"[]", "run.json: expected a JSON object, found list"),
        (b" " * (2**24 + 1), "run.json: expected at most"),
    ],
)
def test_another_version_or_kind_is_refused(tmp_path, content, says):
    file = begun(tmp_path) / "run.json"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        folder.write_with_digest(file, folder.read_run_info(tmp_path) | content)
    with pytest.raises(RunError, match=says):
        folder.read_run_info(tmp_path, "train")


def test_where_a_later_part_differs_is_noted(tmp_path):
    begun(tmp_path)
    assert folder.record_environment_changes(tmp_path, {"jax": "1", "devices": 2}, 10) == []
    assert folder.record_environment_changes(tmp_path, {"jax": "2", "devices": 2}, 20) == ["jax 1 -> 2"]
    kept = folder.read_json(tmp_path / "environment.json")
    assert kept == {"begun": {"jax": "1", "devices": 2}, "later": [{"from_round": 21, "jax": "2"}]}
